package relay_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/relay"
)

// simulated is a relay, a client that is connected to it alone, and a target, in a bubble.
func simulated(t *testing.T, cfg relay.Config) (at, client, target *p2p.Host) {
	t.Helper()
	w := p2ptest.NewNet(t, 3, 10*time.Millisecond)
	cfg.Logger = p2ptest.Quiet()
	s, err := relay.New(w.Hosts[0], cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, h := range w.Hosts[1:] {
		if err := h.Connect(t.Context(), w.Addr(0)); err != nil {
			t.Fatal(err)
		}
	}
	return w.Hosts[0], w.Hosts[1], w.Hosts[2]
}

// TestAttackBandwidth: a relay carries what its operator gives, however much is sent through it.
func TestAttackBandwidth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, sent = 256 << 10, 1 << 20
		at, client, target := simulated(t, relay.Config{Limits: relay.Limits{Rate: rate}})
		serveEcho(target)
		if err := client.Connect(t.Context(), via(at, target.ID())); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := exchange(t.Context(), client, target.ID(), sent); err != nil {
			t.Fatal(err)
		}
		if least := time.Second * (2*sent - rate) / rate; time.Since(begun) < least {
			t.Errorf("%d bytes there and back took %v, want at least %v", sent, time.Since(begun), least)
		}
	})
}

// TestAttackFind: a client that asks for peers that nobody has heard of makes the relay walk the DHT for few of them at a time.
func TestAttackFind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var walking, most, walked atomic.Int32
		at, client, _ := simulated(t, relay.Config{Find: func(ctx context.Context, _ peer.ID) (peer.AddrInfo, error) {
			most.Store(max(most.Load(), walking.Add(1))) // a moment apart in the bubble's time
			defer walking.Add(-1)
			walked.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			return peer.AddrInfo{}, errors.New("nobody")
		}})
		var wg sync.WaitGroup
		for i := range 12 {
			id, err := peer.IDFromPrivateKey(p2ptest.Key(100 + i))
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { _, _ = ask(t, client, at, connectTo(t, peer.AddrInfo{ID: id})) })
		}
		wg.Wait()
		if most.Load() > 4 || walked.Load() != 12 {
			t.Errorf("%d walks at a time and %d in all, want 4 and 12", most.Load(), walked.Load())
		}
	})
}
