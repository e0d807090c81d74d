package conns_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/conns"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// A peer answers over a connection if it says anything in time; one that keeps silent does not. A caller that stops
// gets no verdict against the peer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	p2ptest.ConnectAll(t, hosts...)
	c := hosts[0].Network().ConnsToPeer(hosts[1].ID())[0]
	if !conns.Answers(t.Context(), c, 10*time.Second) {
		t.Error("a peer that is there does not answer")
	}
	hosts[1].RemoveStreamHandler(ping.ID)
	if !conns.Answers(t.Context(), c, 10*time.Second) {
		t.Error("a peer that knows no pings does not answer")
	}
	hosts[1].SetStreamHandler(ping.ID, func(network.Stream) { <-t.Context().Done() })
	if conns.Answers(t.Context(), c, 50*time.Millisecond) {
		t.Error("a silent peer answers")
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if !conns.Answers(stopped, c, time.Second) {
		t.Error("a caller that stopped has a verdict")
	}
}

// A relayed connection is closed once a direct one stands beside it and no stream of ours uses it.
func TestCloseRelayed(t *testing.T) {
	t.Parallel()
	relay := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), NAT: p2p.NAT{Serve: true}})
	hidden := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1)})
	asking := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	p2ptest.ConnectAll(t, relay, hidden)
	p2ptest.ConnectAll(t, relay, asking)
	if _, err := client.Reserve(t.Context(), hidden, relay.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	hidden.SetStreamHandler("/starling/long/1/test", func(network.Stream) {})
	if err := asking.Connect(t.Context(), p2ptest.Through(relay, hidden.ID())); err != nil {
		t.Fatal(err)
	}
	s, err := asking.NewStream(t.Context(), hidden.ID(), "/starling/long/1/test")
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	relayed := func() (n int) {
		for _, c := range asking.Network().ConnsToPeer(hidden.ID()) {
			if conns.Relayed(c) {
				n++
			}
		}
		return n
	}
	if conns.CloseRelayed(asking, quiet); relayed() != 1 || conns.Direct(asking, hidden.ID()) {
		t.Fatalf("%d relayed connections, want the only one to stay", relayed())
	}
	if err := asking.Connect(network.WithForceDirectDial(t.Context(), "test"), hidden.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	if conns.CloseRelayed(asking, quiet); relayed() != 1 || !conns.Direct(asking, hidden.ID()) {
		t.Fatalf("%d relayed connections, want one with a stream to stay", relayed())
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	if conns.CloseRelayed(asking, quiet); relayed() != 0 {
		t.Errorf("%d relayed connections, want none", relayed())
	}
}
