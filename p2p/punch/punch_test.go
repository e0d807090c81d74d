package punch

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/addr"
)

const relayA = "/p2p/12D3KooWPECgJvMCjuF6G4QQbHUU1Gssr2KWfokMoCiihN3Yd1Bm/p2p-circuit"

// seenBy is a connection over which we are seen.
type seenBy struct {
	network.Conn
	remote string
	dir    network.Direction
	closed bool
}

func (s seenBy) RemoteMultiaddr() ma.Multiaddr { return ma.StringCast(s.remote) }
func (s seenBy) Stat() network.ConnStats {
	return network.ConnStats{Stats: network.Stats{Direction: s.dir}}
}
func (s seenBy) IsClosed() bool { return s.closed }

// fakeHost is a host with some connections.
type fakeHost struct {
	host.Host
	net fakeNet
}

func (f *fakeHost) Network() network.Network { return &f.net }

type fakeNet struct {
	network.Network
	listens []ma.Multiaddr
	conns   map[peer.ID][]network.Conn
}

func (f *fakeNet) ListenAddresses() []ma.Multiaddr      { return f.listens }
func (f *fakeNet) ConnsToPeer(p peer.ID) []network.Conn { return f.conns[p] }
func (f *fakeNet) Peers() (out []peer.ID) {
	for p := range f.conns {
		out = append(out, p)
	}
	return out
}

// A host announces where it was seen, and guesses the port of the transport over which nobody saw it.
func TestAddrs(t *testing.T) {
	t.Parallel()
	h := &fakeHost{net: fakeNet{listens: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/4001"), ma.StringCast("/ip4/127.0.0.1/udp/4001/quic-v1")}}}
	direct, relayed := seenBy{remote: "/ip4/8.8.8.8/tcp/1"}, seenBy{remote: "/ip4/8.8.8.8/tcp/1" + relayA}
	p := New(h, slog.New(slog.DiscardHandler))
	p.Observed(direct, nil)
	p.Observed(direct, ma.StringCast("/ip4/192.168.1.1/tcp/1"))
	p.Observed(relayed, ma.StringCast("/ip4/5.5.5.5/tcp/1"))
	if got := p.Addrs(); len(got) != 0 {
		t.Errorf("%v", got)
	}
	for i := range 20 { // of which the last are kept
		p.Observed(direct, ma.StringCast("/ip4/5.5.5.5/udp/"+string(rune('1'+i%9))+"/quic-v1"))
	}
	got := p.Addrs()
	var tcp, quic int
	for _, a := range got {
		if !strings.HasPrefix(a.String(), "/ip4/5.5.5.5/") {
			t.Errorf("announces %s", a)
		}
		if addr.Has(a, ma.P_TCP) {
			tcp++
		} else {
			quic++
		}
	}
	if tcp != 1 || quic != maxSeen+1 {
		t.Errorf("%d over TCP and %d over QUIC: %v", tcp, quic, got)
	}
}

// Relayed connections that others opened are tried, each after its pause and a few at a time; a direct one ends that.
func TestPick(t *testing.T) {
	t.Parallel()
	h := &fakeHost{net: fakeNet{conns: map[peer.ID][]network.Conn{
		"direct": {seenBy{remote: "/ip4/8.8.8.8/tcp/1"}, seenBy{remote: "/ip4/8.8.8.8/tcp/1" + relayA, dir: network.DirInbound}},
		"ours":   {seenBy{remote: "/ip4/8.8.8.8/tcp/1" + relayA, dir: network.DirOutbound}},
		"ended":  {seenBy{remote: "/ip4/8.8.8.8/tcp/1" + relayA, dir: network.DirInbound, closed: true}},
	}}}
	for i := range 3 * triesAtOnce {
		h.net.conns[peer.ID(fmt.Sprint("relayed", i))] = []network.Conn{seenBy{remote: "/ip4/8.8.8.8/tcp/1" + relayA, dir: network.DirInbound}}
	}
	p := New(h, slog.New(slog.DiscardHandler))
	now := time.Unix(0, 0)
	if got := p.pick(now); len(got) != 0 || len(p.due) != 3*triesAtOnce {
		t.Fatalf("%d are tried at once, %d are due later", len(got), len(p.due))
	}
	now = now.Add(firstPause)
	for round := range 3 {
		got := p.pick(now)
		if len(got) != triesAtOnce || slices.ContainsFunc(got, func(a attempt) bool { return !a.first }) {
			t.Fatalf("round %d: %d attempts", round, len(got))
		}
	}
	if got := p.pick(now); len(got) != 0 {
		t.Fatalf("%d attempts before their pause is over", len(got))
	}
	pause := firstPause
	for range 30 {
		now = now.Add(2 * lastPause)
		for range 3 {
			for _, a := range p.pick(now) {
				if a.first {
					t.Fatal("a first attempt again")
				}
			}
		}
		pause = min(pause*3/2, lastPause)
	}
	for id, next := range p.due {
		if next.pause != lastPause || next.at.Sub(now) > lastPause*5/4 {
			t.Errorf("%s: pause %v, next in %v", id, next.pause, next.at.Sub(now))
		}
	}
	h.net.conns = nil
	if p.pick(now); len(p.due) != 0 {
		t.Errorf("%d peers that have gone are remembered", len(p.due))
	}
}

// TestAttackPunchAddresses: of the addresses that a peer sends a few public ones are dialled, whatever it sends.
func TestAttackPunchAddresses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var raw [][]byte
		for range rapid.IntRange(0, 100).Draw(t, "addresses") {
			if rapid.Bool().Draw(t, "noise") {
				raw = append(raw, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"))
				continue
			}
			ip := rapid.SampledFrom([]string{"127.0.0.1", "10.1.2.3", "169.254.169.254", "8.8.8.8", "9.9.9.9"}).Draw(t, "ip")
			port := rapid.IntRange(1, 65535).Draw(t, "port")
			end := rapid.SampledFrom([]string{"", relayA}).Draw(t, "end")
			raw = append(raw, ma.StringCast(fmt.Sprintf("/ip4/%s/tcp/%d%s", ip, port, end)).Bytes())
		}
		theirs := dialable(raw)
		for _, a := range theirs {
			if addr.ClassOf(a) != addr.Public {
				t.Fatalf("%s would be dialled", a)
			}
		}
		all := guess(theirs, theirs)
		if len(theirs) > 2*maxSeen || len(all) > 2*maxSeen {
			t.Fatalf("%d addresses, %d with guesses", len(theirs), len(all))
		}
	})
}
