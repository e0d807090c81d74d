package entries

import (
	"log/slog"
	"testing"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/addr"
)

const (
	entryA = "12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm"
	entryB = "12D3KooWFUk3fp7MBjuJs3x4ExVoSwBBtatxUCqks2DkQKHDZZDW"
)

func id(t rapid.TB, text string) peer.ID {
	t.Helper()
	p, err := peer.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestAttackVouchedAddresses: whatever addresses an entry vouches for, few are announced, each once, and each is a
// circuit.
func TestAttackVouchedAddresses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (out []ma.Multiaddr) {
			for range rapid.IntRange(0, 20).Draw(t, name) {
				out = append(out, ma.StringCast(rapid.SampledFrom([]string{"/ip4/8.8.8.8/tcp/1", "/ip4/8.8.8.8/udp/1/quic-v1", "/ip6/2600::1/tcp/1",
					"/ip4/127.0.0.1/tcp/1", "/ip4/8.8.4.4/tcp/1/p2p/" + entryA, "/ip4/8.8.4.4/tcp/1/p2p/" + entryB + "/p2p-circuit",
					"/p2p/" + entryB + "/p2p-circuit", "/dns4/example.org/tcp/1"}).Draw(t, "address")))
			}
			return out
		}
		e := id(t, entryA)
		got := circuits(e, draw("vouched"), draw("known"))
		if len(got) > maxAddrs+1 || !got[len(got)-1].Equal(circuitVia(e)) {
			t.Fatalf("%v", got)
		}
		for i, a := range got {
			if addr.Relay(a) != e || ma.Contains(got[:i], a) {
				t.Fatalf("announced: %s of %v", a, got)
			}
		}
	})
}

// only allows one address.
type only struct {
	connmgr.ConnectionGater
	addr string
}

func (o only) InterceptAddrDial(_ peer.ID, a ma.Multiaddr) bool { return a.String() == o.addr }

// from is where a connection comes from.
type from struct {
	network.ConnMultiaddrs
	remote ma.Multiaddr
}

func (f from) RemoteMultiaddr() ma.Multiaddr { return f.remote }

// Circuits go through entries that are in use, other dials to entries that are being entered, and nobody comes in but
// through an entry. With dials, others are left to the inner gater.
func TestGate(t *testing.T) {
	t.Parallel()
	const open = "/ip4/8.8.8.8/tcp/1"
	a, b, other := id(t, entryA), id(t, entryB), peer.ID("other")
	s := New(false, slog.New(slog.DiscardHandler))
	s.doors = []*door{{id: a, live: true}, {id: b, open: 1}}
	through := func(e string) ma.Multiaddr { return ma.StringCast(open + "/p2p/" + e + "/p2p-circuit") }
	for _, dials := range []bool{false, true} {
		s.dials = dials
		g := s.Gate(only{addr: open})
		for _, c := range []struct {
			to   peer.ID
			at   ma.Multiaddr
			want bool
		}{
			{other, through(entryA), true},
			{other, through(entryB), false},
			{other, ma.StringCast("/p2p/" + entryA + "/p2p-circuit"), true},
			{other, ma.StringCast("/p2p-circuit"), false},
			{a, ma.StringCast(open), dials},
			{b, ma.StringCast(open), true},
			{other, ma.StringCast(open), dials},
			{other, ma.StringCast("/ip4/9.9.9.9/tcp/1"), false},
		} {
			if got := g.InterceptAddrDial(c.to, c.at); got != c.want {
				t.Errorf("dials others: %v: %s at %s: %v, want %v", dials, c.to, c.at, got, c.want)
			}
		}
		if !g.InterceptAccept(from{remote: through(entryA)}) || g.InterceptAccept(from{remote: through(entryB)}) ||
			g.InterceptAccept(from{remote: ma.StringCast(open)}) {
			t.Error("wrong connections are accepted")
		}
	}
	if got := s.Entries(); len(got) != 1 || got[0] != a {
		t.Errorf("entries %v", got)
	}
}
