// Package turnout estimates how many providers of each class would quote, from the quotes that orders brought. The
// estimate decides the draw of the next order, and whether it goes to one shard.
package turnout

import (
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
)

const (
	// countFor is how long the quotes of an order are counted. Late quotes count, too.
	countFor = 3 * time.Second
	// maxCounted bounds the orders with quotes that are being counted, and maxClasses the classes with an estimate.
	maxCounted, maxClasses = 256, 256
	// wideOrders is the number of orders of a class that go to all of its providers after a repeated order. A provider
	// that suppresses a shard's quotes delays one in wideOrders orders.
	wideOrders = 16
)

// Turnout has the estimates of one buyer. It may be used by many goroutines.
type Turnout struct {
	guess func(c market.Class) int // before the first order

	mu      sync.Mutex
	of      map[market.Class]match.Population
	counted map[market.OrderID]*count
	wide    map[market.Class]int // how many more orders go to all shards
}

// New returns a Turnout without estimates. The guess of a class holds until its first order was counted.
func New(guess func(market.Class) int) *Turnout {
	return &Turnout{
		guess: guess, of: map[market.Class]match.Population{},
		counted: map[market.OrderID]*count{}, wide: map[market.Class]int{},
	}
}

// count has the number of quotes that one order brought.
type count struct {
	order  market.Order
	since  time.Time
	quotes int
}

// Draw returns the draw of an order with asked earlier attempts, and whether it may go to one shard.
func (t *Turnout) Draw(c market.Class, leases uint32, asked int) (draw uint32, shard bool) {
	t.mu.Lock()
	t.settle(time.Now())
	p, ok := t.of[c]
	wide := t.goesWide(c, asked)
	t.mu.Unlock()
	if !ok {
		p = match.Guess(t.guess(c))
	}
	return p.Draw(leases, asked), !wide && p.FitsShard(leases)
}

// goesWide reports whether an order is for the providers of all shards: it, or another recent one of its class, is a
// repetition. t.mu is held.
func (t *Turnout) goesWide(c market.Class, asked int) bool {
	left := t.wide[c]
	if asked == 0 && left == 0 {
		return false
	}
	if asked > 0 {
		if left == 0 && len(t.wide) >= maxClasses {
			clear(t.wide)
		}
		left = wideOrders + 1 // this one goes beside those
	}
	if t.wide[c] = left - 1; left == 1 {
		delete(t.wide, c)
	}
	return true
}

// Ordered begins to count the quotes for an order.
func (t *Turnout) Ordered(o market.Order, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.settle(now); len(t.counted) >= maxCounted {
		return
	}
	t.counted[o.ID] = &count{order: o, since: now}
}

// Counts reports whether the quotes for an order are being counted, and returns the number of its leases.
func (t *Turnout) Counts(o market.OrderID) (leases uint32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counted[o]
	if c == nil {
		return 0, false
	}
	return c.order.Count, true
}

// Quoted counts n quotes.
func (t *Turnout) Quoted(o market.OrderID, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.counted[o]; c != nil && time.Since(c.since) < countFor {
		c.quotes += n
	}
}

// settle updates the estimates from the counted orders. t.mu is held.
func (t *Turnout) settle(now time.Time) {
	for id, c := range t.counted {
		if now.Sub(c.since) < countFor {
			continue
		}
		delete(t.counted, id)
		class := c.order.Class
		if _, ok := t.of[class]; !ok && len(t.of) >= maxClasses {
			clear(t.of)
		}
		// At most half of the forwarded quotes come by one way.
		t.of[class] = t.of[class].Learn(c.order.Draw, c.quotes, match.MaxQuotes(c.order.Count))
	}
}
