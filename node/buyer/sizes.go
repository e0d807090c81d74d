package buyer

import (
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
)

const (
	// turnoutAfter is how long after an order its quotes are counted: one that comes too late to be taken counts too.
	turnoutAfter = 3 * time.Second
	// maxTurnouts bounds the orders whose quotes are being counted, and maxSizes the classes with an estimate.
	maxTurnouts, maxSizes = 256, 256
	// wideOrders is how many orders of a class go to all of its providers after one was asked again: whoever keeps a shard from
	// quoting delays one order of so many.
	wideOrders = 16
)

// sizes are how many providers of each class would quote, as orders have shown it.
type sizes struct {
	guess func(c market.Class) int // before the first order

	mu      sync.Mutex
	of      map[market.Class]match.Population
	waiting map[market.OrderID]*turnout
	wide    map[market.Class]int // how many more orders go to all shards
}

func newSizes(guess func(market.Class) int) *sizes {
	return &sizes{
		guess: guess, of: map[market.Class]match.Population{},
		waiting: map[market.OrderID]*turnout{}, wide: map[market.Class]int{},
	}
}

// turnout is how many quotes one order brings.
type turnout struct {
	order  market.Order
	since  time.Time
	quotes int
}

// draw returns the draw for an order of a class that was asked already so often, and whether it can be one shard's.
func (s *sizes) draw(c market.Class, leases uint32, asked int) (draw uint32, shard bool) {
	s.mu.Lock()
	s.settle(time.Now())
	p, ok := s.of[c]
	wide := s.goesWide(c, asked)
	s.mu.Unlock()
	if !ok {
		p = match.Guess(s.guess(c))
	}
	return p.Draw(leases, asked), !wide && p.FitsShard(leases)
}

// goesWide reports whether an order is for the providers of all shards: it is asked again, or one of its class was lately. s.mu is held.
func (s *sizes) goesWide(c market.Class, asked int) bool {
	left := s.wide[c]
	if asked == 0 && left == 0 {
		return false
	}
	if asked > 0 {
		if left == 0 && len(s.wide) >= maxSizes {
			clear(s.wide)
		}
		left = wideOrders + 1 // this one goes beside those
	}
	if s.wide[c] = left - 1; left == 1 {
		delete(s.wide, c)
	}
	return true
}

// asked begins to count the quotes for an order.
func (s *sizes) asked(o market.Order, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settle(now); len(s.waiting) >= maxTurnouts {
		return
	}
	s.waiting[o.ID] = &turnout{order: o, since: now}
}

// waits reports whether the quotes for an order are counted, and for how many leases it is.
func (s *sizes) waits(o market.OrderID) (leases uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.waiting[o]
	if t == nil {
		return 0, false
	}
	return t.order.Count, true
}

// came counts a quote.
func (s *sizes) came(o market.OrderID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.waiting[o]; t != nil && time.Since(t.since) < turnoutAfter {
		t.quotes++
	}
}

// settle learns from the orders that have been counted; s.mu is held.
func (s *sizes) settle(now time.Time) {
	for id, t := range s.waiting {
		if now.Sub(t.since) < turnoutAfter {
			continue
		}
		delete(s.waiting, id)
		if _, ok := s.of[t.order.Class]; !ok && len(s.of) >= maxSizes {
			clear(s.of)
		}
		// Half of all that are passed on comes one way at the most.
		s.of[t.order.Class] = s.of[t.order.Class].Learn(t.order.Draw, t.quotes, match.MaxQuotes(t.order.Count))
	}
}

// guess is how many providers of a class there may be: the offers that are known are some of them, and there are no
// more than peers that could take part.
func (b *Buyer) guess(c market.Class) int {
	return max(len(b.known.class(c, time.Now())), b.cfg.Size(c))
}
