package p2p_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// TestAttackClosedAddresses: a peer that takes part from everywhere knocks at no address of its own machine, of a
// private network or of a cloud's metadata because a stranger says that a peer is there. It does where its user says
// so.
func TestAttackClosedAddresses(t *testing.T) {
	t.Parallel()
	door, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	knocks := make(chan struct{}, 100)
	go func() {
		for {
			c, err := door.Accept()
			if err != nil {
				return
			}
			c.Close()
			knocks <- struct{}{}
		}
	}()
	_, port, err := net.SplitHostPort(door.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	at := ma.StringCast("/ip4/127.0.0.1/tcp/" + port)
	hosts := 0
	dial := func(cfg p2p.Config, a ma.Multiaddr) error {
		hosts++
		if cfg.Listen == nil {
			cfg.Listen = []string{"/ip4/0.0.0.0/tcp/0"}
		}
		cfg.Key = p2ptest.Key(100 + hosts)
		h := p2ptest.LoopbackHost(t, cfg)
		target, err := peer.IDFromPrivateKey(p2ptest.Key(99))
		if err != nil {
			t.Fatal(err)
		}
		return h.Connect(t.Context(), peer.AddrInfo{ID: target, Addrs: []ma.Multiaddr{a}})
	}
	relay, err := peer.IDFromPrivateKey(p2ptest.Key(98))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{
		at.String(), "/ip4/169.254.169.254/tcp/80", "/ip4/10.255.255.254/tcp/22", "/ip4/100.64.0.1/tcp/80", "/ip6/::1/tcp/" + port, "/ip6/fd5e:11d5:9a3c::1/tcp/80",
		"/ip6/::ffff:127.0.0.1/tcp/" + port, fmt.Sprintf("%s/p2p/%s/p2p-circuit", at, relay), "/dns4/localhost/tcp/" + port,
	} {
		if err := dial(p2p.Config{}, ma.StringCast(a)); !errors.Is(err, swarm.ErrNoGoodAddresses) {
			t.Errorf("dialling %s: %v", a, err)
		}
	}
	if n := len(knocks); n > 0 {
		t.Fatalf("%d knocks at a closed address", n)
	}
	boot := peer.AddrInfo{ID: relay, Addrs: []ma.Multiaddr{ma.StringCast("/ip4/127.1.2.3/tcp/1")}}
	for what, cfg := range map[string]p2p.Config{
		"a testnet's peer":                 {Listen: []string{"/ip4/127.0.0.1/tcp/0"}},
		"a peer of a private network":      {PSK: new([32]byte)},
		"who joins by a peer there":        {Bootstrap: []peer.AddrInfo{boot}},
		"who has a relay there":            {NAT: p2p.NAT{Relays: []peer.AddrInfo{boot}}},
		"who has another host's addresses": {Dials: p2p.Config{Bootstrap: []peer.AddrInfo{boot}}.ClosedDials()},
	} {
		if err := dial(cfg, at); errors.Is(err, swarm.ErrNoGoodAddresses) {
			t.Errorf("%s: %v", what, err)
		}
		<-knocks
	}
}

// TestClosedDiagnosis: who cannot be dialled for where it is said to be is not on a block list, and a user can dial it
// by its whole address.
func TestClosedDiagnosis(t *testing.T) {
	t.Parallel()
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Listen: []string{"/ip4/0.0.0.0/tcp/0"}})
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	err := h.Connect(t.Context(), other.AddrInfo())
	if d := h.Diagnose(other.ID(), err); d == nil || d.Reason != p2p.ReasonClosed || !strings.Contains(d.Text, "private networks") {
		t.Errorf("%+v", d)
	}
	h.Forgive(other.ID())
	if _, err := h.Ping(t.Context(), tcpOf(other), 1); err != nil {
		t.Errorf("pinged by its whole address: %v", err)
	}
}

func TestClosedDials(t *testing.T) {
	t.Parallel()
	c := p2p.Config{Listen: []string{"/ip4/10.1.2.3/tcp/1"}, Announce: []string{"/ip4/192.168.1.1/tcp/1", "/ip4/8.8.8.8/tcp/1", "/ip4/192.168.2.2/tcp/1"}}
	if got, want := fmt.Sprint(c.ClosedDials()), fmt.Sprint([]netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
