package exchange

import (
	"container/heap"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/replies"
)

const (
	// maxHeard bounds the orders that are remembered until they expire, so that none is answered twice.
	maxHeard = 1 << 15
	// sweepHeard is the minimum interval between removals of expired orders.
	sweepHeard = time.Second
)

// heard is the memory of orders. It fails closed: an order that may have been forgotten is refused. When it is full of
// live orders, it forgets the longest-lived, and refuses orders with that lifetime until these have expired. An honest
// order lives for minutes, so a flood of orders with the maximum lifetime blocks only itself.
type heard struct {
	mu     sync.Mutex
	known  map[market.OrderID]memory
	latest byLife // the same ones, the longest life first
	swept  time.Time

	least time.Time // none that lives as long as this is taken; zero: all are
	over  time.Time // when all have expired that were forgotten
}

// memory is one order.
type memory struct {
	at, until time.Time // when it was received, and until when it is remembered
	way       replies.Way
}

// life is an order and until when it must be remembered.
type life struct {
	id    market.OrderID
	until time.Time
}

// byLife is a heap of orders.
type byLife []life

// Len implements heap.Interface.
func (b byLife) Len() int { return len(b) }

// Less implements heap.Interface.
func (b byLife) Less(i, j int) bool { return b[i].until.After(b[j].until) }

// Swap implements heap.Interface.
func (b byLife) Swap(i, j int) { b[i], b[j] = b[j], b[i] }

// Push implements heap.Interface.
func (b *byLife) Push(x any) { *b = append(*b, x.(life)) }

// Pop implements heap.Interface.
func (b *byLife) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}

// has reports whether an order was received before.
func (h *heard) has(id market.OrderID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.known[id]
	return ok
}

// way returns the next hop for quotes for a recently received order.
func (h *heard) way(id market.OrderID, now time.Time) (replies.Way, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m, ok := h.known[id]
	return m.way, ok && now.Sub(m.at) < replies.Fresh
}

// first reports whether an order is new, and remembers it and the neighbour that it came from. It is false for an order
// that may have been forgotten.
func (h *heard) first(o market.Order, via peer.ID, now time.Time) bool {
	until := o.Expires.Add(market.MaxClockSkew) // a clock may be behind by as much as orders allow
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[market.OrderID]memory{}
	}
	if now.After(h.over) {
		h.least, h.over = time.Time{}, time.Time{}
	}
	if _, again := h.known[o.ID]; again {
		return false
	}
	if len(h.latest) >= maxHeard && now.Sub(h.swept) >= sweepHeard {
		h.sweep(now)
	}
	if !h.least.IsZero() && !until.Before(h.least) {
		return false
	}
	if len(h.latest) >= maxHeard {
		longest := h.latest[0]
		if !until.Before(longest.until) {
			return false
		}
		heap.Pop(&h.latest)
		delete(h.known, longest.id)
		h.least = longest.until // no later than before: longer-lived orders were removed
		if longest.until.After(h.over) {
			h.over = longest.until
		}
	}
	h.known[o.ID] = memory{now, until, replies.Way{To: via, Leases: o.Count}}
	heap.Push(&h.latest, life{o.ID, until})
	return true
}

// sweep forgets expired orders; h.mu is held.
func (h *heard) sweep(now time.Time) {
	h.swept = now
	kept := h.latest[:0]
	for _, l := range h.latest {
		if now.After(l.until) {
			delete(h.known, l.id)
			continue
		}
		kept = append(kept, l)
	}
	h.latest = kept
	heap.Init(&h.latest)
}
