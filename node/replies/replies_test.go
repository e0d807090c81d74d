package replies

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// line is hosts in a row, each connected to the next: the first one's user buys, and every other has its orders from
// the one before it.
type line struct {
	*p2ptest.Net
	t       *testing.T
	routers []*Router

	mu    sync.Mutex
	taken map[market.OrderID][][]byte
	ways  map[market.OrderID]bool
}

func newLine(t *testing.T, n int) *line {
	t.Helper()
	l := &line{Net: p2ptest.NewNet(t, n, 20*time.Millisecond), t: t, taken: map[market.OrderID][][]byte{}, ways: map[market.OrderID]bool{}}
	for i, h := range l.Hosts {
		r := New(Config{Host: h, Network: p2ptest.Network, Log: p2ptest.Quiet(),
			Way: func(o market.OrderID) (Way, bool) {
				l.mu.Lock()
				defer l.mu.Unlock()
				return Way{To: l.Addr(max(i-1, 0)).ID, Leases: 1}, l.ways[o]
			},
			Take: func(_ peer.ID, o market.OrderID, box []byte) error {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.taken[o] = append(l.taken[o], box)
				return nil
			}})
		p2ptest.Go(t, r.Run)
		l.routers = append(l.routers, r)
	}
	for i := range n - 1 {
		if err := l.Hosts[i].Connect(t.Context(), l.Addr(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(5 * time.Second) // until all have told what they speak
	return l
}

var reply = sealed.Reply{1: 1}

// order is one that everybody in the line heard.
func (l *line) order(i byte) market.Order {
	o := market.Order{ID: market.OrderID{i, 1}, Count: 1, ReplyKey: reply.Public()}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ways[o.ID] = true
	return o
}

func (l *line) got(o market.Order) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.taken[o.ID])
}

// bring has a host bring a box to the one before it in the line.
func (l *line) bring(from int, o market.OrderID, box []byte) error {
	_, err := protocol.Quote.Call(l.t.Context(), l.Hosts[from], p2ptest.Network, l.Addr(from-1).ID, &marketpb.QuoteRequest{Order: o[:], Box: box})
	return err
}

func junk() []byte { return make([]byte, 100) }

// A quote comes to its buyer by the way of its order, and only the buyer reads it.
func TestComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		l := newLine(t, n)
		o := l.order(1)
		if err := l.routers[n-1].Send(o, []byte("quote"), []byte("offer")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if l.got(o) != 1 {
			t.Fatalf("%d quotes came", l.got(o))
		}
		plain, err := reply.Open(protocol.QuoteBox(p2ptest.Network, o.ID), l.taken[o.ID][0])
		var m marketpb.Quoted
		if err != nil || proto.Unmarshal(plain, &m) != nil || string(m.Quote) != "quote" || string(m.Offer) != "offer" {
			t.Errorf("%x, %v", plain, err)
		}
		if _, err := (sealed.Reply{1: 2}).Open(protocol.QuoteBox(p2ptest.Network, o.ID), l.taken[o.ID][0]); err == nil {
			t.Error("another key opens it")
		}
		unknown := market.Order{ID: market.OrderID{9}, ReplyKey: o.ReplyKey}
		var no *stream.Refused
		if err := l.routers[n-1].Send(unknown, nil, nil); !errors.As(err, &no) || no.Code != "closed" {
			t.Errorf("a quote for an order that nobody heard: %v", err)
		}
		if err := l.bring(2, unknown.ID, junk()); !errors.As(err, &no) || no.Code != "closed" {
			t.Errorf("a box for an order that nobody heard: %v", err)
		}
		if err := l.bring(2, o.ID, nil); !errors.As(err, new(*stream.Malformed)) {
			t.Errorf("no box: %v", err)
		}
		if err := l.bring(2, o.ID, make([]byte, protocol.MaxQuoteBox+1)); !errors.As(err, new(*stream.Malformed)) {
			t.Errorf("a large box: %v", err)
		}
	})
}

// TestAttackReflector: an order named addresses of its sender's choice, and every provider sent 105 KB of packets
// there. A quote goes to whom the order came from, over the connection that there is, and to nobody else: where that is
// gone, no packet is sent, though addresses of it are known.
func TestAttackReflector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 3)
		provider := l.Hosts[2]
		var mu sync.Mutex
		dialled := 0
		provider.Network().Notify(&network.NotifyBundle{ConnectedF: func(network.Network, network.Conn) {
			mu.Lock()
			dialled++
			mu.Unlock()
		}})
		if err := provider.Network().ClosePeer(l.Addr(1).ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		provider.Peerstore().AddAddrs(l.Addr(1).ID, l.Addr(1).Addrs, time.Hour)
		provider.Peerstore().AddAddr(l.Addr(1).ID, ma.StringCast("/ip4/1.2.3.4/udp/4001/quic-v1"), time.Hour)
		for i := range byte(50) {
			_ = l.routers[2].Send(l.order(i), []byte("quote"), []byte("offer"))
		}
		time.Sleep(30 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if dialled > 0 || provider.Network().Connectedness(l.Addr(1).ID) == network.Connected {
			t.Errorf("%d connections were made for quotes", dialled)
		}
		if s := l.routers[2].Stats(); s.Lost+s.Refused != 50 || s.Passed > 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestAttackQuoteRelay: a neighbour that floods its peer with boxes has half of the quotes for each order passed on at
// the most, and so many a second in all. What others bring is passed on beside it.
func TestAttackQuoteRelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 4)
		o := l.order(1)
		for range 2 * Most(1) {
			_ = l.bring(2, o.ID, junk())
			time.Sleep(time.Second / perPeer)
		}
		time.Sleep(time.Second)
		if got := l.got(o); got != Most(1)/2 {
			t.Errorf("of one neighbour's %d boxes for one order %d came to its buyer, want %d", 2*Most(1), got, Most(1)/2)
		}
		if err := l.routers[1].Send(o, []byte("quote"), []byte("offer")); err != nil {
			t.Errorf("another's quote is not passed on: %v", err)
		}
		time.Sleep(10 * time.Second)
		passed := 0
		for i := range byte(200) {
			o := l.order(i + 2)
			for range 3 {
				if l.bring(2, o.ID, junk()) == nil {
					passed++
				}
			}
		}
		if passed > peerBurst+200*3*20*perPeer/1000 { // a round trip each
			t.Errorf("%d boxes of one neighbour were taken", passed)
		}
	})
}

// A peer that takes nothing over holds up what goes to it, and nothing else.
func TestAttackStalledNeighbour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 3)
		r := l.routers[1]
		l.Hosts[0].RemoveStreamHandler(protocol.Quote.ID(p2ptest.Network))
		l.Hosts[0].SetStreamHandler(protocol.Quote.ID(p2ptest.Network), func(network.Stream) {})
		sent := 0
		for i := range byte(250) {
			if r.Send(l.order(i), []byte("quote"), []byte("offer")) == nil {
				sent++
			}
		}
		r.mu.Lock()
		lane := r.lanes[l.Addr(0).ID]
		if sent > maxFlying+maxWaiting || lane.flying > maxFlying || len(lane.waiting) > maxWaiting {
			t.Errorf("%d boxes for a peer that takes none: %d on their way, %d wait", sent, lane.flying, len(lane.waiting))
		}
		r.mu.Unlock()
		time.Sleep(time.Minute)
		if r.mu.Lock(); len(r.lanes) > 0 {
			t.Error("what nobody took still waits")
		}
		r.mu.Unlock()
		if free := r.places.Take(0, netip.Prefix{}); free == nil {
			t.Error("no place came back")
		}
	})
}

// However many parties there are, each gets something, and all together no more than there is.
func TestTally(t *testing.T) {
	t.Parallel()
	tal := &tally{of: map[party]int{}}
	const most = 136
	for i := range 5 {
		p := party{peer: peer.ID(fmt.Sprint(i))}
		for range 1000 {
			tal.add(p, most)
		}
		if tal.of[p] == 0 {
			t.Errorf("party %d gets nothing: %v", i, tal.of)
		}
	}
	if tal.all > most {
		t.Errorf("%d of %d were given", tal.all, most)
	}
}
