package p2p_test

import (
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	circuit "github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// A peer with relays configured is reached through one; a peer without cannot dial such addresses.
func TestRelay(t *testing.T) {
	t.Parallel()
	relay := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), NAT: p2p.NAT{Serve: true}})
	// Serve begins to relay when the host finds itself reachable, which loopback never shows.
	service, err := circuit.New(relay)
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	nat := p2p.NAT{Relays: []peer.AddrInfo{relay.AddrInfo()}}
	hidden := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), NAT: nat})
	asking := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2), NAT: nat})
	plain := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(3)})
	p2ptest.ConnectAll(t, relay, hidden)
	p2ptest.ConnectAll(t, relay, asking)
	if _, err := client.Reserve(t.Context(), hidden, relay.AddrInfo()); err != nil {
		t.Fatal(err)
	}
	via := peer.AddrInfo{ID: hidden.ID()}
	for _, a := range relay.Addrs() {
		via.Addrs = append(via.Addrs, a.Encapsulate(ma.StringCast("/p2p/"+relay.ID().String()+"/p2p-circuit")))
	}
	if err := asking.Connect(network.WithAllowLimitedConn(t.Context(), "test"), via); err != nil {
		t.Fatal(err)
	}
	relayed := false
	for _, c := range asking.Network().ConnsToPeer(hidden.ID()) {
		relayed = relayed || strings.Contains(c.RemoteMultiaddr().String(), "p2p-circuit") && c.Stat().Limited
	}
	if !relayed {
		t.Error("not connected through the relay")
	}
	if err := plain.Connect(t.Context(), via); err == nil {
		t.Error("a peer without relays dialled through one")
	}
}
