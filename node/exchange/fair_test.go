package exchange

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/replies"
)

// TestAttackOrderFlood: a neighbour that passes on a flood of orders, by any number of keys, keeps a provider from
// those of no other neighbour, and of these each has its turn.
func TestAttackOrderFlood(t *testing.T) {
	t.Parallel()
	f, n := newFair(), uint64(0)
	put := func(via string) {
		var o market.Order
		n++
		binary.BigEndian.PutUint64(o.ID[:], n)
		o.Regions = []market.Region{market.Region(via)}
		f.put(peer.ID(via), o)
	}
	for i := range 20 { // more neighbours than all places have room for
		for range 1000 {
			put(fmt.Sprint("flooder", i))
		}
	}
	if f.all > maxOrders || len(f.waiting["flooder0"]) > ordersPerVia {
		t.Errorf("%d orders wait, %d of one neighbour", f.all, len(f.waiting["flooder0"]))
	}
	for range 5 {
		put("honest")
	}
	honest, taken := 0, 0
	for honest < 5 {
		o, err := f.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if taken++; o.Regions[0] == "honest" {
			honest++
		}
		if taken > 5*21 {
			t.Fatalf("of an honest neighbour's 5 orders %d were among the first %d", honest, taken)
		}
	}
	for f.all > 0 {
		if _, err := f.take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.take(ctx); err == nil || len(f.waiting) > 0 || len(f.turns) > 0 || f.lost() == 0 {
		t.Errorf("afterwards %d wait, %d have turns, %d were dropped, %v", len(f.waiting), len(f.turns), f.lost(), err)
	}
}

// The way of an order is that of the neighbour that it came from first, for a minute; of a light client's the client.
func TestWay(t *testing.T) {
	t.Parallel()
	h, now := &heard{}, time.Unix(1000, 0)
	o := market.Order{ID: market.OrderID{1}, Count: 3, Expires: now.Add(10 * time.Minute)}
	h.first(o, "one", now)
	h.first(o, "two", now)
	if w, ok := h.way(o.ID, now); !ok || w != (replies.Way{To: "one", Leases: 3}) {
		t.Errorf("%+v, %v", w, ok)
	}
	if _, ok := h.way(o.ID, now.Add(replies.Fresh)); ok || !h.has(o.ID) {
		t.Error("a quote goes back after a minute, or the order is forgotten")
	}
	if _, ok := h.way(market.OrderID{2}, now); ok {
		t.Error("an order that nobody heard has a way")
	}
}
