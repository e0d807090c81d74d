package p2p_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// tcpOf is a host at its TCP address on loopback alone.
func tcpOf(h *p2p.Host) peer.AddrInfo {
	for _, a := range h.Addrs() {
		if strings.HasPrefix(a.String(), "/ip4/127.0.0.1/tcp/") {
			return peer.AddrInfo{ID: h.ID(), Addrs: []ma.Multiaddr{a}}
		}
	}
	return peer.AddrInfo{}
}

// pings sends one ping to a peer that is connected.
func pings(t *testing.T, from *p2p.Host, to peer.ID) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r := <-ping.Ping(network.WithNoDial(ctx, "test"), from, to)
	return r.Error
}

// TestAttackMuteStreams: twelve strangers open 512 streams each that name no protocol. Peers with a lease, and those that this one dials, get
// theirs in both directions, and no connection of theirs ends.
func TestAttackMuteStreams(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 15)
	victim, tenant, dialled, attackers := hosts[0], hosts[1], hosts[2], hosts[3:]
	if err := tenant.Connect(t.Context(), tcpOf(victim)); err != nil {
		t.Fatal(err)
	}
	if err := victim.Connect(t.Context(), tcpOf(dialled)); err != nil {
		t.Fatal(err)
	}
	victim.Protect(tenant.ID(), "lease")
	ends := make(chan peer.ID, 100)
	victim.Network().Notify(&network.NotifyBundle{DisconnectedF: func(_ network.Network, c network.Conn) {
		if p := c.RemotePeer(); p == tenant.ID() || p == dialled.ID() {
			ends <- p
		}
	}})
	for _, a := range attackers {
		if err := a.Connect(t.Context(), tcpOf(victim)); err != nil {
			continue // refused is as good
		}
		for range 512 {
			conns := a.Network().ConnsToPeer(victim.ID())
			if len(conns) == 0 {
				break
			}
			s, err := conns[0].NewStream(t.Context())
			if err != nil {
				break
			}
			if _, err := s.Write([]byte("\x13/multistream/1.0.0\n")); err != nil {
				break
			}
		}
		for what, err := range map[string]error{
			"from a peer with a lease": pings(t, tenant, victim.ID()), "to it": pings(t, victim, tenant.ID()),
			"from a peer that was dialled": pings(t, dialled, victim.ID()), "to one that was dialled": pings(t, victim, dialled.ID()),
		} {
			if err != nil {
				t.Errorf("a stream %s: %v", what, err)
			}
		}
	}
	select {
	case p := <-ends:
		t.Errorf("the connection to %s ended", p)
	default:
	}
}

// TestAttackSilentHandshakes: 1,100 TCP connections that never shake hands leave room for the connections that this peer dials.
func TestAttackSilentHandshakes(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	victim, other := hosts[0], hosts[1]
	port, err := tcpOf(victim).Addrs[0].ValueForProtocol(ma.P_TCP)
	if err != nil {
		t.Fatal(err)
	}
	for range 1100 {
		c, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := victim.Connect(ctx, tcpOf(other)); err != nil {
		t.Errorf("a dial beside silent connections: %v", err)
	}
}
