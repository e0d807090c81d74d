package exchange

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// inShards is a network of a buyer, peer 0, and of providers of gpu/h100 in shards, so that the buyer has the
// neighbours given.
func inShards(t *testing.T, shards []uint32, neighbours []int) *crowd {
	t.Helper()
	sells := make([][]market.Class, len(shards))
	for i := 1; i < len(shards); i++ {
		sells[i] = []market.Class{"gpu/h100"}
	}
	w := newCrowdIn(t, sells, shards)
	for _, i := range neighbours {
		w.connect(t, 0, i)
	}
	return w
}

// p2pID is the id of the peer with a key.
func p2pID(t *testing.T, k sign.Private) peer.ID {
	t.Helper()
	id, err := p2p.PeerIDFromKey(k.Key())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// connect connects two peers.
func (w *crowd) connect(t *testing.T, i, j int) {
	t.Helper()
	if err := w.Hosts[i].Connect(t.Context(), w.Addr(j)); err != nil {
		t.Fatal(err)
	}
}

// heardBy are the peers that heard an order and hand it to their providers.
func (w *crowd) heardBy(id market.OrderID) (out []int) {
	for i, o := range w.orders {
		for {
			ord, ok := o.heard.next()
			if !ok {
				break
			}
			if ord.ID == id {
				out = append(out, i)
			}
		}
	}
	return out
}

// TestOrderOfOneShard: an order to a shard is heard by its providers and by nobody else, their quotes come back, and
// where the buyer cannot reach the shard, all providers of the class hear it.
func TestOrderOfOneShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The buyer knows three of shard 1, two of shard 2 and none of shard 3.
		w := inShards(t, []uint32{0, 1, 1, 1, 1, 2, 2, 3, 3}, []int{1, 2, 3, 5, 6})
		w.connect(t, 3, 4)
		w.connect(t, 5, 7)
		w.connect(t, 6, 8)
		quotes := w.replies(t)
		time.Sleep(20 * time.Second)
		if got := w.orders[0].shardFor("gpu/h100"); got != 1 {
			t.Errorf("shard %d is chosen, the buyer has enough neighbours in shard 1 alone", got)
		}
		if got := w.orders[0].shardFor("gpu/a10"); got != 0 {
			t.Errorf("shard %d is chosen of a class that nobody sells", got)
		}
		for _, c := range []struct {
			shard             uint32
			neighbours, heard int
		}{{1, 3, 4}, {2, 5, 8}, {3, 5, 8}, {0, 5, 8}} {
			was := quotes.Load()
			id, n := w.orderOf(t, 0, "gpu/h100", c.shard)
			time.Sleep(5 * time.Second)
			by := w.heardBy(id)
			if n != c.neighbours || len(by) != c.heard {
				t.Errorf("an order to shard %d has %d neighbours, %v heard it", c.shard, n, by)
			}
			for _, i := range by {
				ord := market.Order{ID: id, Count: 1, ReplyKey: market.ReplyKey{9}}
				if err := w.routers[i].Send(ord, []byte("quote"), []byte("offer")); err != nil {
					t.Errorf("provider %d does not answer: %v", i, err)
				}
			}
			time.Sleep(5 * time.Second)
			if got := quotes.Load() - was; int(got) != len(by) {
				t.Errorf("%d quotes for an order to shard %d came back, %d were sent", got, c.shard, len(by))
			}
		}
	})
}

// replies gives every peer a router for quotes and counts those that the buyer, peer 0, gets.
func (w *crowd) replies(t *testing.T) *atomic.Int32 {
	var got atomic.Int32
	for i, h := range w.Hosts {
		way := w.orders[i].way
		if i == 0 {
			way = func(market.OrderID) (replies.Way, bool) { return replies.Way{To: h.ID(), Leases: 1}, true }
		}
		r := replies.New(replies.Config{Host: h, Network: p2ptest.Network, Way: way, Log: p2ptest.Quiet(), Take: func(peer.ID, market.OrderID, []byte) error {
			got.Add(1)
			return nil
		}})
		p2ptest.Go(t, r.Run)
		w.routers = append(w.routers, r)
	}
	return &got
}

// TestEntryReachesShard: an order that a peer publishes for a light client goes to its shard, and its quotes to the
// client; one to a shard in which the peer is itself goes there too.
func TestEntryReachesShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := inShards(t, []uint32{0, 1, 1, 1, 1, 2}, []int{1, 2, 3, 4, 5})
		for i := 2; i <= 5; i++ {
			w.connect(t, 1, i)
		}
		time.Sleep(20 * time.Second)
		for _, entry := range []int{0, 1} {
			ord, env := w.seal(t, sign.NewPrivate([32]byte{200, byte(entry)}), "gpu/h100", 1)
			if _, err := w.orders[entry].publishFor(t.Context(), "client", ord, env); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if way, ok := w.orders[entry].way(ord.ID); !ok || way.To != "client" {
				t.Errorf("entry %d passes quotes to %q, %v", entry, way.To, ok)
			}
			if by := w.heardBy(ord.ID); len(by) != 4-entry {
				t.Errorf("an order of a client of peer %d is heard by %v", entry, by)
			}
			if _, err := w.orders[entry].publishFor(t.Context(), "client", ord, env); err == nil {
				t.Errorf("entry %d publishes an order twice", entry)
			}
		}
	})
}

// TestAttackShardTopic: all neighbours that a buyer has in a shard's topic drop what they hear. Where they are of few
// networks, the order goes to the class at once, else the next one does, and the honest hear it.
func TestAttackShardTopic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys, apart int
		tricked     bool
	}{"one network": {12, 1, false}, "three networks": {3, 256, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := inShards(t, []uint32{0, 2, 2, 1, 1}, []int{1, 2})
				w.connect(t, 1, 3)
				w.connect(t, 2, 4)
				for i := range c.keys {
					w.deaf(t, p2ptest.Key(100+i), 1<<16+i*c.apart)
				}
				time.Sleep(20 * time.Second)
				if got := w.orders[0].shardFor("gpu/h100"); got == 0 && c.tricked || got == 1 && !c.tricked { // in shard 2 are honest ones
					t.Errorf("the buyer chooses shard %d", got)
				}
				id, _ := w.orderOf(t, 0, "gpu/h100", 1)
				time.Sleep(5 * time.Second)
				if by := w.heardBy(id); c.tricked != (len(by) == 0) {
					t.Errorf("an order to the shard is heard by %v", by)
				}
				id, _ = w.orderOf(t, 0, "gpu/h100", 0)
				time.Sleep(5 * time.Second)
				if by := w.heardBy(id); len(by) != 4 {
					t.Errorf("the next order is heard by %v, want the four honest", by)
				}
			})
		})
	}
}

// deaf adds a neighbour of the buyer that takes part in topics and drops what it hears.
func (w *crowd) deaf(t *testing.T, key crypto.PrivKey, address int) {
	t.Helper()
	at := w.Add(key, address)
	g, err := gossip.New(t.Context(), w.Hosts[at], gossip.Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"orders/gpu/h100", shardTopic("gpu/h100", 1), shardTopic("gpu/h100", 2)} {
		drop := func(peer.ID, []byte) (int, error) { return 0, fmt.Errorf("%w: dropped", gossip.ErrIgnore) }
		if _, err := gossip.Join(g, topic, drop, 0); err != nil {
			t.Fatal(err)
		}
	}
	w.connect(t, 0, at)
}

// A shard's topic has its own orders alone: who passes on another is blamed.
func TestShardTopicRefusesOthers(t *testing.T) {
	t.Parallel()
	w := &crowd{domain: sign.Domain{Network: "test", Chain: sign.Sum([]byte("chain"))}}
	o := newOrders(nil, w.domain, 3, nil, nil)
	from := p2pID(t, w.key(t, 0))
	for shard, want := range map[uint32]error{0: gossip.ErrReject, 2: gossip.ErrReject, 3: nil} {
		_, env := w.seal(t, w.key(t, 0), "gpu/h100", shard)
		if _, err := o.decodeOf(3, from, from, env); !errors.Is(err, want) {
			t.Errorf("an order of shard %d in the topic of shard 3: %v, want %v", shard, err, want)
		}
	}
}

// Those of its shard that a provider meets are among the hints of its class. In a small class it looks for none.
func TestShardHints(t *testing.T) {
	t.Parallel()
	w := &crowd{}
	var hints []peer.AddrInfo
	for i := range 4 * shardHints {
		hints = append(hints, peer.AddrInfo{ID: p2pID(t, w.key(t, i))})
	}
	o := newOrders(nil, sign.Domain{}, match.ShardOf(w.key(t, 0).Key()), nil, nil)
	few := hints[:shardHints-1]
	if got := o.inShard(nil); got != nil {
		t.Errorf("%d before any are known", len(got))
	}
	if got := o.inShard(&few); got != nil {
		t.Errorf("%d of a small class", len(got))
	}
	got := o.inShard(&hints)
	if len(got) < 16 || len(got) > 64 || got[0].ID != hints[0].ID {
		t.Errorf("%d of %d are in the shard", len(got), len(hints))
	}
}

// TestShardMeets: the members of a shard find each other among the hints of their class, and ask for no others.
func TestShardMeets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const members = 6
		net := p2ptest.NewNet(t, 0, 20*time.Millisecond)
		d := sign.Domain{Network: p2ptest.Network, Chain: sign.Sum([]byte("chain"))}
		var hints []peer.AddrInfo
		for i := 0; len(net.Hosts) < members || len(hints) < shardHints; i++ {
			info := peer.AddrInfo{ID: p2pID(t, sign.NewPrivate([32]byte{byte(i), byte(i >> 8), 7})), Addrs: []ma.Multiaddr{ma.StringCast("/ip4/192.0.2.1/udp/9/quic-v1")}}
			if key, _ := p2p.KeyFromPeerID(info.ID); match.ShardOf(sign.Key(key)) == 1 {
				info = net.Addr(net.Add(p2p.PrivKey([32]byte{byte(i), byte(i >> 8), 7}), i))
			}
			hints = append(hints, info)
		}
		var all []*orders
		var looked atomic.Int32
		for i, h := range net.Hosts {
			g, err := gossip.New(t.Context(), h, gossip.Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			o := newOrders(g, d, 1, []market.Class{"cpu"}, func(context.Context, market.Class, int) ([]peer.AddrInfo, error) {
				if looked.Add(1); i == 0 {
					return hints, nil
				}
				return nil, nil
			})
			o.ctx = t.Context()
			t.Cleanup(o.close)
			if err := o.joinSold(); err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
		if err := net.Hosts[0].Connect(t.Context(), net.Addr(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		if got := len(all[0].g.PeersOf(shardTopic("cpu", 1))); got < 4 {
			t.Errorf("a member of a shard has met %d others, want 4", got)
		}
		if n := looked.Load(); n > 8*members {
			t.Errorf("%d look-ups of %d peers in three minutes", n, members)
		}
	})
}
