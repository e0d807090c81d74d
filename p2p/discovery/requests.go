package discovery

import (
	"context"
	"time"

	dhtpb "github.com/libp2p/go-libp2p-kad-dht/pb"
	"github.com/libp2p/go-libp2p/core/network"

	"github.com/starling-network/starling/p2p/admit"
)

// Questions to the DHT cost tokens: one, and one more for each 256 providers in an answer. A peer without tokens waits
// for them.
const (
	// askRate and askBurst are the limits of one peer. An honest peer sends a few hundred requests when it starts, and
	// four for each search.
	askRate, askBurst = 200, 600
	// networkRate and networkBurst are the limits of all strangers of an IPv4 /24 or IPv6 /56, except loopback.
	networkRate, networkBurst = 400, 1200
	// strangersRate and strangersBurst are the limits of all strangers.
	strangersRate, strangersBurst = 800, 2400
	// maxAskWait bounds the wait of a request. A stream with a longer wait is reset.
	maxAskWait = 5 * time.Second
)

func newRequests() *admit.Rates {
	return admit.NewRates(admit.Rate{PerSecond: askRate, Burst: askBurst},
		admit.Rate{PerSecond: networkRate, Burst: networkBurst},
		admit.Rate{PerSecond: strangersRate, Burst: strangersBurst})
}

// limitRequest makes a question wait until it has its tokens. It resets the stream of a peer that would wait too long,
// or that sends ADD_PROVIDER too often. The library handles that message nonetheless, and then finds that the stream is
// closed, so that each further message needs another one.
func (d *Discovery) limitRequest(ctx context.Context, s network.Stream, m *dhtpb.Message) {
	p, at := s.Conn().RemotePeer(), s.Conn().RemoteMultiaddr()
	if m.GetType() == dhtpb.Message_ADD_PROVIDER && !d.providers.Allow(p, at) {
		_ = s.ResetWithError(network.StreamRateLimited)
		return
	}
	n := 1
	if m.GetType() == dhtpb.Message_GET_PROVIDERS {
		n += d.providers.Under(m.GetKey()) / 256
	}
	wait, ok := d.requests.Wait(p, d.standing()(p), admit.NetworkOf(at), n, time.Now(), maxAskWait)
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
