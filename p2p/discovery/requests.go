package discovery

import (
	"context"
	"net/netip"
	"sync"
	"time"

	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"github.com/starling-network/starling/p2p/admit"
)

// Questions of the DHT cost tokens: one, and one more for each 256 providers in an answer. Who has none waits for them.
const (
	// askRate and askBurst are those of one peer. An honest one asks a few hundred questions when it starts, and four
	// for each search.
	askRate, askBurst = 200, 600
	// networkRate and networkBurst are those of all strangers of an IPv4 /24 or IPv6 /56, loopback apart.
	networkRate, networkBurst = 400, 1200
	// strangersRate and strangersBurst are those of all strangers.
	strangersRate, strangersBurst = 800, 2400
	// maxAskWait is how long a question waits. Streams with one that had to wait longer are reset.
	maxAskWait = 5 * time.Second
	// maxAskers bounds how many peers, and how many networks, are remembered.
	maxAskers = 4096
)

// requests bounds what the DHT's library answers. It is safe for concurrent use.
type requests struct {
	mu        sync.Mutex
	peers     buckets[peer.ID]
	networks  buckets[netip.Prefix]
	strangers *rate.Limiter
}

func newRequests() *requests {
	return &requests{
		peers:     buckets[peer.ID]{rate: askRate, burst: askBurst, of: map[peer.ID]*rate.Limiter{}},
		networks:  buckets[netip.Prefix]{rate: networkRate, burst: networkBurst, of: map[netip.Prefix]*rate.Limiter{}},
		strangers: rate.NewLimiter(strangersRate, strangersBurst),
	}
}

// buckets are token buckets by key, of the last keys that were used first.
type buckets[K comparable] struct {
	rate  rate.Limit
	burst int
	of    map[K]*rate.Limiter
	order []K
}

func (b *buckets[K]) get(k K) *rate.Limiter {
	l := b.of[k]
	if l == nil {
		if len(b.order) >= maxAskers {
			delete(b.of, b.order[0])
			b.order = b.order[1:]
		}
		l = rate.NewLimiter(b.rate, b.burst)
		b.of[k] = l
		b.order = append(b.order, k)
	}
	return l
}

// wait takes n tokens for a question. It returns how long the question has to wait for them, and false if that is too
// long: then it takes none.
func (r *requests) wait(p peer.ID, s admit.Standing, at netip.Prefix, n int, now time.Time) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := []*rate.Limiter{r.peers.get(p)}
	if s == admit.Stranger {
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
	if longest <= maxAskWait {
		return longest, true
	}
	for _, t := range taken {
		t.CancelAt(now)
	}
	return longest, false
}

// limitRequest makes a question wait until it has its tokens. The stream of who has to wait too long, or that sends
// ADD_PROVIDER too often, is reset: the library handles that message nonetheless, and then finds that the stream is
// closed, so that another one is needed for each further message.
func (d *Discovery) limitRequest(ctx context.Context, s network.Stream, m *dhtpb.Message) {
	p, at := s.Conn().RemotePeer(), s.Conn().RemoteMultiaddr()
	if m.GetType() == dhtpb.Message_ADD_PROVIDER && !d.providers.allow(p, at) {
		_ = s.ResetWithError(network.StreamRateLimited)
		return
	}
	n := 1
	if m.GetType() == dhtpb.Message_GET_PROVIDERS {
		n += d.providers.under(m.GetKey()) / 256
	}
	wait, ok := d.requests.wait(p, d.standing()(p), admit.NetworkOf(at), n, time.Now())
	if !ok {
		_ = s.ResetWithError(network.StreamRateLimited)
	}
	if wait = min(wait, maxAskWait); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}
