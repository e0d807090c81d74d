package p2p_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// A peer that lost power and came back at once is heard again at once: the connection that its old process left behind
// is found dead long before it times out.
func TestBackFromPowerCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		net := p2ptest.NewNet(t, 2, 20*time.Millisecond)
		join := func(h *p2p.Host) *gossip.Topic[[]byte] {
			ctx, cancel := context.WithCancel(context.Background())
			t.Cleanup(cancel)
			g, err := gossip.New(ctx, h, gossip.Config{Network: p2ptest.Network, Logger: p2ptest.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			topic, err := gossip.Join(g, "news", func(_ peer.ID, b []byte) ([]byte, error) { return b, nil }, 0)
			if err != nil {
				t.Fatal(err)
			}
			return topic
		}
		a := net.Hosts[0]
		defer p2ptest.Go(t, a.Run)()
		heard := join(a)
		defer heard.Close()
		first := join(net.Hosts[1])
		net.ConnectAll()
		time.Sleep(3 * time.Second)
		net.Crash(1)
		_ = first.Close()
		time.Sleep(time.Second)
		b := net.Restart(1, p2p.Config{})
		defer p2ptest.Go(t, b.Run)()
		again := join(b)
		defer again.Close()
		if err := b.Connect(t.Context(), net.Addr(0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if n := len(a.Network().ConnsToPeer(b.ID())); n != 1 {
			t.Errorf("%d connections to the peer that is back, want the new one", n)
		}
		if n := len(again.Peers()); n != 1 {
			t.Fatalf("the peer that is back knows %d neighbours in the topic, want 1", n)
		}
		if err := again.Publish(t.Context(), []byte("back")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if m, err := heard.Next(ctx); err != nil || string(m.Data) != "back" {
			t.Errorf("heard %q, %v", m.Data, err)
		}
	})
}
