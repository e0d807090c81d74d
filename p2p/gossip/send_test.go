package gossip

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/p2p/p2ptest"
)

// TestSend: who has not joined a topic reaches all neighbours that have, several times and at once, and hears nothing of it.
func TestSend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, messages = 3, 20
		net := p2ptest.NewNet(t, n, 20*time.Millisecond)
		var gs []*Gossip
		for _, h := range net.Hosts {
			gs = append(gs, start(t, h))
		}
		topics := []*Topic[string]{join(t, gs[1], 0), join(t, gs[2], 0)}
		for i := 1; i < n; i++ {
			if err := net.Hosts[0].Connect(t.Context(), net.Addr(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		if got := len(gs[0].PeersOf("orders/cpu")); got != 2 {
			t.Fatalf("%d neighbours in the topic, want 2", got)
		}
		errs := make(chan error, messages)
		for range messages {
			go func() { errs <- gs[0].Send(t.Context(), "orders/cpu", []byte("order")) }()
		}
		for range messages {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		for _, topic := range topics {
			for i := range messages {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				m, err := topic.Next(ctx)
				cancel()
				if err != nil || m.From != net.Hosts[0].ID() || m.Data != "order" {
					t.Fatalf("message %d: %+v, %v", i, m, err)
				}
			}
		}
		if got := gs[1].PeersOf("orders/cpu"); len(got) != 0 {
			t.Errorf("%v is taken to be in the topic", got)
		}
		if err := gs[0].Send(t.Context(), "Orders", nil); !errors.Is(err, ErrName) {
			t.Errorf("a bad name: %v", err)
		}
		if err := gs[0].Send(t.Context(), "orders/cpu", []byte(strings.Repeat("a", MaxMessage+1))); !errors.Is(err, ErrTooLarge) {
			t.Errorf("a large message: %v", err)
		}
	})
}
