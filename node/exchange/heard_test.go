package exchange

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
)

// TestAttackHeard: a flood of orders, each with a key of its own, neither makes this peer take an order twice nor
// keeps it from taking those of others, which live as long as honest ones do.
func TestAttackHeard(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	n := uint64(0)
	order := func(life time.Duration) market.Order {
		n++
		var id market.OrderID
		binary.BigEndian.PutUint64(id[:], n)
		return market.Order{ID: id, Expires: now.Add(life)}
	}
	h := &heard{}
	var flood []market.Order
	for i := range 2 * maxHeard {
		o := order(market.MaxOrderValidity - time.Duration(i)*time.Millisecond)
		flood = append(flood, o)
		h.first(o, "", now)
	}
	again := 0
	for _, o := range flood {
		if h.first(o, "", now) {
			again++
		}
	}
	if again > 0 {
		t.Errorf("%d of %d orders of the flood were taken twice", again, len(flood))
	}
	honest := order(2 * time.Minute)
	if !h.first(honest, "", now) || h.first(honest, "", now) || !h.has(honest.ID) {
		t.Error("an honest order during the flood is not taken once")
	}
	if h.first(order(market.MaxOrderValidity), "", now) {
		t.Error("an order is taken that may be a forgotten one")
	}
	if len(h.known) > maxHeard || len(h.latest) != len(h.known) {
		t.Errorf("%d orders are remembered, %d in the heap", len(h.known), len(h.latest))
	}
	now = now.Add(market.MaxOrderValidity + 2*market.MaxClockSkew)
	for range maxHeard {
		if !h.first(order(market.MaxOrderValidity), "", now) {
			t.Fatal("the flood has expired, and an order is not taken")
		}
	}
}
