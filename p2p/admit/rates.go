package admit

import (
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"
)

// maxBuckets bounds how many peers, and how many networks, Rates remember.
const maxBuckets = 4096

// Rate is a limit of requests per second, and its burst.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Rates bounds the requests of each peer, of the strangers of one network (except loopback), and of all strangers. They
// are safe for concurrent use.
type Rates struct {
	mu        sync.Mutex
	peers     buckets[peer.ID]
	networks  buckets[netip.Prefix]
	strangers *rate.Limiter
}

// NewRates makes full buckets.
func NewRates(ofPeer, ofNetwork, ofStrangers Rate) *Rates {
	return &Rates{peers: newBuckets[peer.ID](ofPeer), networks: newBuckets[netip.Prefix](ofNetwork),
		strangers: ofStrangers.bucket()}
}

func (r Rate) bucket() *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst) }

// Wait takes n tokens for a request of p. It returns how long the request has to wait for them, and false if that is
// longer than most: then it takes none.
func (r *Rates) Wait(
	p peer.ID, s Standing, at netip.Prefix, n int, now time.Time, most time.Duration,
) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := []*rate.Limiter{r.peers.get(p)}
	if s == Stranger {
		if at.IsValid() {
			from = append(from, r.networks.get(at))
		}
		from = append(from, r.strangers)
	}
	var taken []*rate.Reservation
	var longest time.Duration
	for _, l := range from {
		t := l.ReserveN(now, n)
		taken, longest = append(taken, t), max(longest, t.DelayFrom(now))
	}
	if longest <= most {
		return longest, true
	}
	for _, t := range taken {
		t.CancelAt(now)
	}
	return longest, false
}

// buckets are token buckets by key, of the last keys that were used first.
type buckets[K comparable] struct {
	rate  Rate
	of    map[K]*rate.Limiter
	order []K
}

func newBuckets[K comparable](r Rate) buckets[K] {
	return buckets[K]{rate: r, of: map[K]*rate.Limiter{}}
}

func (b *buckets[K]) get(k K) *rate.Limiter {
	l := b.of[k]
	if l == nil {
		if len(b.order) >= maxBuckets {
			delete(b.of, b.order[0])
			b.order = b.order[1:]
		}
		l = b.rate.bucket()
		b.of[k] = l
		b.order = append(b.order, k)
	}
	return l
}
