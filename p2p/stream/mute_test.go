package stream_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// TestAttackMuteCallers: streams of strangers that name the protocol and then send one byte take places of reading and none of answering, and
// those of them all leave room for a peer with a lease.
func TestAttackMuteCallers(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 13)
	server, honest, attackers := hosts[0], hosts[1], hosts[2:]
	srv := echo.Handle(server, p2ptest.Network, upper, stream.Limits{Concurrent: 16, PerPeer: 16, Logger: p2ptest.Quiet()})
	defer srv.Close()
	call := func() error {
		_, err := echo.Call(t.Context(), honest, p2ptest.Network, server.ID(), say("x"))
		return err
	}
	connect(t, honest, server)
	mute := func(from int) {
		connect(t, hosts[from], server)
		for range 16 {
			s, err := hosts[from].NewStream(t.Context(), server.ID(), echo.ID(p2ptest.Network))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write([]byte{0}); err != nil {
				t.Fatal(err)
			}
		}
	}
	mute(2) // as many as may be answered
	for i := range 38 {
		if err := call(); err != nil {
			t.Fatalf("call %d beside one that says nothing: %v", i, err)
		}
	}
	for i := range attackers {
		mute(2 + i)
	}
	server.Protect(honest.ID(), "lease")
	for i := range 38 {
		if err := call(); err != nil {
			t.Fatalf("call %d of a peer with a lease, beside %d that say nothing: %v", i, len(attackers), err)
		}
	}
}

// A request that does not come in time ends its stream.
func TestReadTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := p2ptest.NewNet(t, 2, 10*time.Millisecond)
		a, b := n.Hosts[0], n.Hosts[1]
		srv := echo.Handle(b, p2ptest.Network, func(_ context.Context, _ peer.ID, req text) (text, error) { return req, nil }, quiet)
		defer srv.Close()
		connect(t, a, b)
		s, err := a.NewStream(t.Context(), b.ID(), echo.ID(p2ptest.Network))
		if err == nil {
			_, err = s.Write([]byte{0})
		}
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, network.ErrReset) || time.Since(start) > 5100*time.Millisecond {
			t.Errorf("the stream ended with %v after %v", err, time.Since(start))
		}
	})
}
