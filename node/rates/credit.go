package rates

import (
	"sync"
	"time"
)

// Credit bounds the work that all keys together begin on trust. A key takes one unit and returns it when its work is
// paid; other units refill over time. Safe for concurrent use.
type Credit[K comparable] struct {
	most float64
	over time.Duration

	mu    sync.Mutex
	taken map[K]bool
	spent float64   // units
	at    time.Time // spent is as of then
}

// NewCredit returns a credit of most units. A spent credit refills within over.
func NewCredit[K comparable](most int, over time.Duration) *Credit[K] {
	return &Credit[K]{most: float64(most), over: over, taken: map[K]bool{}}
}

// Take reports whether k has a unit at the time now, and takes one for it. The answer for a key that has one is true
// until Return.
func (c *Credit[K]) Take(k K, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken[k] {
		return true
	}
	c.spent = max(c.spent-c.most*now.Sub(c.at).Seconds()/c.over.Seconds(), 0)
	if c.at = now; c.spent > c.most-1 {
		return false
	}
	c.spent++
	c.taken[k] = true
	return true
}

// Has reports whether k has a unit.
func (c *Credit[K]) Has(k K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken[k]
}

// Return forgets k. If the trust in it proved right, its unit can be taken again at once.
func (c *Credit[K]) Return(k K, right bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken[k] && right {
		c.spent = max(c.spent-1, 0)
	}
	delete(c.taken, k)
}
