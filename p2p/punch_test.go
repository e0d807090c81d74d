package p2p

import (
	"strings"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
)

// seenBy is a connection over which we are seen.
type seenBy struct {
	network.Conn
	remote string
}

func (s seenBy) RemoteMultiaddr() ma.Multiaddr { return ma.StringCast(s.remote) }

// A host tells where it was seen, and guesses the port of the transport over which nobody saw it.
func TestPunchAddrs(t *testing.T) {
	t.Parallel()
	h, err := New(Config{Key: PrivKey([32]byte{1}), Network: "test", Listen: []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	direct, relayed := seenBy{remote: "/ip4/8.8.8.8/tcp/1"}, seenBy{remote: "/ip4/8.8.8.8/tcp/1" + relayA}
	p := h.punches
	p.observed(direct, nil)
	p.observed(direct, ma.StringCast("/ip4/192.168.1.1/tcp/1"))
	p.observed(relayed, ma.StringCast("/ip4/5.5.5.5/tcp/1"))
	if got := p.addrs(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	for i := range 20 { // of which the last are kept
		p.observed(direct, ma.StringCast("/ip4/5.5.5.5/udp/"+string(rune('1'+i%9))+"/quic-v1"))
	}
	got := p.addrs()
	var tcp, quic int
	for _, a := range got {
		if !strings.HasPrefix(a.String(), "/ip4/5.5.5.5/") {
			t.Errorf("tells %s", a)
		}
		if has(a, ma.P_TCP) {
			tcp++
		} else {
			quic++
		}
	}
	if tcp != 1 || quic != maxSeen+1 {
		t.Errorf("%d over TCP and %d over QUIC: %v", tcp, quic, got)
	}
}
