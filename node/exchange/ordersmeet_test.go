package exchange

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// crowd is a simulated network of peers that take part in DHT and gossip, each with the classes that it sells.
type crowd struct {
	*p2ptest.Net
	orders []*orders
	found  []*discovery.Discovery
	domain sign.Domain

	routers []*replies.Router // of replies
}

func newCrowd(t *testing.T, sells [][]market.Class) *crowd {
	t.Helper()
	return newCrowdIn(t, sells, nil)
}

// newCrowdIn is newCrowd with peers in the shards given, each in a network of its own, and without a DHT, so that
// nobody meets by itself; nil: in their keys' shards.
func newCrowdIn(t *testing.T, sells [][]market.Class, shards []uint32) *crowd {
	t.Helper()
	w := &crowd{domain: sign.Domain{Network: p2ptest.Network, Chain: sign.Sum([]byte("chain"))}}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	if shards != nil {
		w.Net = p2ptest.NewNet(t, 0, 20*time.Millisecond)
		for i := range shards {
			w.Add(p2ptest.Key(i), 256*(i+1))
		}
	} else {
		w.Net = p2ptest.NewNet(t, len(sells), 20*time.Millisecond)
	}
	for i, h := range w.Hosts {
		g, err := gossip.New(ctx, h, gossip.Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
		if err != nil {
			t.Fatal(err)
		}
		shard, hints := match.ShardOf(w.key(t, i).Key()), func(context.Context, market.Class, int) ([]peer.AddrInfo, error) { return nil, nil }
		if shards != nil {
			shard = shards[i]
		} else {
			d, err := discovery.New(h, discovery.Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			p2ptest.Go(t, d.Run)
			w.found, hints = append(w.found, d), (&Exchange{cfg: Config{Discovery: d}}).hints
		}
		o := newOrders(g, w.domain, shard, sells[i], hints)
		o.ctx = ctx
		t.Cleanup(o.close)
		if err := o.joinSold(); err != nil {
			t.Fatal(err)
		}
		w.orders = append(w.orders, o)
	}
	return w
}

// dialled counts the connections that a host opens from now on.
func dialled(h *p2p.Host) func() int32 {
	var n atomic.Int32
	h.Network().Notify(&network.NotifyBundle{ConnectedF: func(_ network.Network, c network.Conn) {
		if c.Stat().Direction == network.DirOutbound {
			n.Add(1)
		}
	}})
	return n.Load
}

// offer publishes that a peer sells its classes.
func (w *crowd) offer(t *testing.T, i int, classes []market.Class) {
	t.Helper()
	var topics []discovery.Topic
	for _, c := range classes {
		topics = append(topics, discovery.Topic{Class: string(c), Region: "local"})
	}
	if err := w.found[i].Publish(t.Context(), discovery.Record{Topics: topics}); err != nil {
		t.Fatal(err)
	}
}

// order has peer i publish an order of a class, and says how many neighbours heard it.
func (w *crowd) order(t *testing.T, i int, c market.Class) (market.OrderID, int) {
	t.Helper()
	return w.orderOf(t, i, c, 0)
}

// key is the key of peer i.
func (w *crowd) key(t *testing.T, i int) sign.Private {
	t.Helper()
	seed, err := p2p.SeedOf(p2ptest.Key(i))
	if err != nil {
		t.Fatal(err)
	}
	return sign.NewPrivate(seed)
}

// seal makes an order of a class, to a shard unless it is 0.
func (w *crowd) seal(t *testing.T, key sign.Private, c market.Class, shard uint32) (market.Order, []byte) {
	t.Helper()
	ord := market.Order{
		Class: c, Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 100, ReplyKey: market.ReplyKey{1}, Draw: 1, Shard: shard, Expires: time.Now().Add(time.Minute),
	}
	env, err := ord.Encode(w.domain, key)
	if err != nil {
		t.Fatal(err)
	}
	if ord, err = market.DecodeOrder(w.domain, env, time.Now()); err != nil {
		t.Fatal(err)
	}
	return ord, env
}

// orderOf is order, to a shard unless it is 0.
func (w *crowd) orderOf(t *testing.T, i int, c market.Class, shard uint32) (market.OrderID, int) {
	t.Helper()
	ord, env := w.seal(t, w.key(t, i), c, shard)
	n, err := w.orders[i].publish(t.Context(), ord, env)
	if err != nil {
		t.Fatal(err)
	}
	return ord.ID, n
}

// TestOrdersReachTheirClass: a buyer whose neighbours all sell something else is
// heard by everyone who sells what it orders, for a few connections; providers of
// one class that never were neighbours make one mesh.
func TestOrdersReachTheirClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, rare = 22, 6 // peer 0 buys; 1 to 6 sell gpu/h100; the others gpu/a10 or cpu
		sells := make([][]market.Class, n)
		for i := 1; i < n; i++ {
			sells[i] = []market.Class{[]market.Class{"gpu/a10", "cpu"}[i%2]}
			if i <= rare {
				sells[i] = []market.Class{"gpu/h100"}
			}
		}
		w := newCrowd(t, sells)
		// The others are a tree; each of the rare ones, and the buyer, hangs at two of them.
		connect := func(i, j int) {
			if err := w.Hosts[i].Connect(t.Context(), w.Addr(j)); err != nil {
				t.Fatal(err)
			}
		}
		for i := rare + 2; i < n; i++ {
			connect(i, max(i/2, rare+1))
		}
		for i := 0; i <= rare; i++ {
			connect(i, rare+1+2*i)
			connect(i, rare+2+2*i)
		}
		time.Sleep(10 * time.Second)
		for i := 1; i < n; i++ {
			w.offer(t, i, sells[i])
		}
		time.Sleep(time.Minute)
		// A network of this size is one neighbourhood to the DHT; in a large one the class is scattered.
		part := func(i int) {
			for j := range rare + 1 {
				if err := w.Hosts[i].Network().ClosePeer(w.Addr(j).ID); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		for i := range rare + 1 {
			part(i)
		}
		time.Sleep(20 * time.Second)
		part(0)
		before := dialled(w.Hosts[0])
		id, heard := w.order(t, 0, "gpu/h100")
		if n := before(); n == 0 || n > 11 {
			t.Errorf("%d peers were dialled for one order", n)
		}
		if heard == 0 {
			t.Error("nobody hears the order")
		}
		for i := 1; i <= rare; i++ {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			ord, err := w.orders[i].heard.take(ctx)
			cancel()
			if err != nil || ord.ID != id {
				t.Errorf("provider %d of the class has not heard the order: %v", i, err)
			}
		}
		time.Sleep(10 * time.Second)
		for i := rare + 1; i < n; i++ {
			if w.orders[i].heard.all > 0 {
				t.Errorf("peer %d sells something else and heard the order", i)
			}
		}
		for i := 0; i <= rare; i++ {
			kept := 0
			for j := range n {
				if w.Hosts[i].ConnManager().IsProtected(w.Addr(j).ID, "topic:/starling/"+p2ptest.Network+"/orders/gpu/h100") {
					kept++
				}
			}
			if kept > 4 {
				t.Errorf("peer %d keeps %d of the class, want at most 4", i, kept)
			}
		}
	})
}

// TestOrdersIdle: topics that were joined to order something are left when they
// are idle, or when there are too many; those of what is sold are not.
func TestOrdersIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, [][]market.Class{{"gpu/a10"}, nil})
		if err := w.Hosts[1].Connect(t.Context(), w.Addr(0)); err != nil {
			t.Fatal(err)
		}
		o := w.orders[0]
		has := func() int {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.topics["gpu/a10"] == nil || o.topics["gpu"] == nil {
				t.Error("what is sold is not listened to")
			}
			return len(o.topics)
		}
		for i := range 2 * maxClasses {
			w.order(t, 0, market.Class(fmt.Sprint("class/", i)))
		}
		if got := has(); got != maxClasses {
			t.Errorf("%d topics, want %d", got, maxClasses)
		}
		time.Sleep(classIdle / 2)
		w.order(t, 0, "gpu/a10")
		w.order(t, 0, market.Class(fmt.Sprint("class/", 2*maxClasses-1)))
		time.Sleep(classIdle/2 + time.Minute)
		if got := has(); got != 3 {
			t.Errorf("%d topics, want the two that are sold and the one that was used", got)
		}
		time.Sleep(classIdle)
		if got := has(); got != 2 {
			t.Errorf("%d topics, want the two that are sold", got)
		}
	})
}

// Hints of a DHT that nobody is in are an answer, too.
func TestHintsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newCrowd(t, [][]market.Class{nil})
		n := &Exchange{cfg: Config{Discovery: w.found[0]}}
		var none []peer.AddrInfo
		if none, _ = n.hints(t.Context(), "cpu", 10); len(none) != 0 {
			t.Errorf("hints %v", none)
		}
		if _, heard := w.order(t, 0, "cpu"); heard != 0 {
			t.Errorf("%d heard an order of somebody alone", heard)
		}
	})
}
