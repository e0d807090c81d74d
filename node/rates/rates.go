// Package rates limits the rate of requests of each of many strangers, in bounded memory.
package rates

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter is one token bucket per key. Safe for concurrent use.
type Limiter[K comparable] struct {
	perSecond rate.Limit
	burst     int
	most      int

	mu sync.Mutex
	m  map[K]*rate.Limiter
}

// New returns a limiter that allows every key perSecond events a second after a burst, and remembers at most most keys.
// While all of these are active, it refuses new keys.
func New[K comparable](perSecond float64, burst, most int) *Limiter[K] {
	return &Limiter[K]{perSecond: rate.Limit(perSecond), burst: burst, most: most, m: map[K]*rate.Limiter{}}
}

// Allow reports whether k may send one more request at the time now, and counts it.
func (l *Limiter[K]) Allow(k K, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.m[k]
	if b == nil {
		if len(l.m) >= l.most {
			for old, b := range l.m { // those with a bucket that is full again have been quiet
				if b.TokensAt(now) >= float64(l.burst) {
					delete(l.m, old)
				}
			}
			if len(l.m) >= l.most {
				return false
			}
		}
		b = rate.NewLimiter(l.perSecond, l.burst)
		l.m[k] = b
	}
	return b.AllowN(now, 1)
}
