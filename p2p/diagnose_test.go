package p2p_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// over is p with only those addresses that contain part.
func over(p peer.AddrInfo, part string) peer.AddrInfo {
	out := peer.AddrInfo{ID: p.ID}
	for _, a := range p.Addrs {
		if strings.Contains(a.String(), part) {
			out.Addrs = append(out.Addrs, a)
		}
	}
	return out
}

// wantReason pings and wants the diagnosis.
func wantReason(t *testing.T, h *p2p.Host, to peer.AddrInfo, want p2p.Reason, words ...string) {
	t.Helper()
	_, err := h.Ping(t.Context(), to, 1)
	d, ok := errors.AsType[*p2p.Diagnosis](err)
	if !ok || d.Reason != want {
		t.Fatalf("got %v (%v), want %s", err, errors.Unwrap(err), want)
	}
	for _, w := range words {
		if !strings.Contains(d.Text, w) || d.Advice == "" {
			t.Errorf("%q, advice %q: want %q in it", d.Text, d.Advice, w)
		}
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	hosts := p2ptest.Loopback(t, 2)
	for _, part := range []string{"/tcp/", "/quic-v1"} {
		r, err := hosts[0].Ping(t.Context(), over(hosts[1].AddrInfo(), part), 3)
		if err != nil || len(r.RTTs) != 3 || r.Conn.Path != p2p.PathDirect || !r.Fresh || !strings.Contains(r.Conn.Addr.String(), part) {
			t.Errorf("%s: %+v, %v", part, r, err)
		}
		if err := hosts[0].Network().ClosePeer(hosts[1].ID()); err != nil {
			t.Error(err)
		}
		hosts[0].Peerstore().ClearAddrs(hosts[1].ID())
	}
	if _, err := hosts[0].Ping(t.Context(), hosts[0].AddrInfo(), 1); err == nil {
		t.Error("pinged itself")
	}
}

// A blocked peer is told that it is, over either transport, every time; whoever blocked it does not dial it.
func TestBlocked(t *testing.T) {
	t.Parallel()
	banned := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Block: []peer.ID{banned.ID()}})
	for _, part := range []string{"/tcp/", "/quic-v1"} {
		for range 20 {
			banned.Peerstore().ClearAddrs(h.ID())
			wantReason(t, banned, over(h.AddrInfo(), part), p2p.ReasonBlocked, "online", "blocked this peer")
		}
	}
	wantReason(t, h, banned.AddrInfo(), p2p.ReasonBlockedHere, "own block list")
	if n := len(h.Network().ConnsToPeer(banned.ID())); n != 0 {
		t.Errorf("%d connections to a blocked peer", n)
	}
}

func TestOffline(t *testing.T) {
	t.Parallel()
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	gone := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
	info := gone.AddrInfo()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	wantReason(t, h, info, p2p.ReasonOffline, "does not answer")
	other := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(2)})
	for _, part := range []string{"/tcp/", "/quic-v1"} {
		h.Peerstore().ClearAddrs(info.ID)
		wantReason(t, h, peer.AddrInfo{ID: info.ID, Addrs: over(other.AddrInfo(), part).Addrs}, p2p.ReasonOtherPeer, "another peer")
	}
	h.Peerstore().ClearAddrs(info.ID)
	wantReason(t, h, peer.AddrInfo{ID: info.ID}, p2p.ReasonNoAddress, "no address")
}

// A peer that was connected and left is missed since then.
func TestLastSeen(t *testing.T) {
	t.Parallel()
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	gone := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
	info := gone.AddrInfo()
	if err := h.Connect(t.Context(), info); err != nil {
		t.Fatal(err)
	}
	p2ptest.Go(t, h.Run)() // its end writes down who was there
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := h.Ping(t.Context(), info, 1)
		d, ok := errors.AsType[*p2p.Diagnosis](err)
		if ok && d.Reason == p2p.ReasonGone { // over the connection that is just ending
			continue
		}
		if !ok || d.Reason != p2p.ReasonOffline || time.Since(d.Seen) > time.Minute || !strings.Contains(d.Text, "last seen") {
			t.Errorf("%v", err)
		}
		return
	}
}

func TestOtherNetworkDiagnosed(t *testing.T) {
	t.Parallel()
	a := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	b := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Network: "other"})
	p2ptest.Go(t, a.Run)
	p2ptest.Go(t, b.Run)
	reason := p2p.ReasonGone
	for reason == p2p.ReasonGone { // while both say goodbye before they said who they are
		_, err := a.Ping(t.Context(), b.AddrInfo(), 1)
		d, ok := errors.AsType[*p2p.Diagnosis](err)
		if !ok {
			t.Fatalf("got %v", err)
		}
		reason = d.Reason
	}
	for range 5 {
		wantReason(t, a, b.AddrInfo(), p2p.ReasonOtherNetwork, "another network")
	}
}

// A wrong or missing key is named as what it is, on the side that dials.
func TestWrongPSK(t *testing.T) {
	t.Parallel()
	host := func(i int, psk *[32]byte) *p2p.Host {
		return p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(i), PSK: psk, Listen: []string{"/ip4/127.0.0.1/tcp/0"}})
	}
	one, two := &[32]byte{1}, &[32]byte{2}
	a, same, other, none := host(0, one), host(1, one), host(2, two), host(3, nil)
	if _, err := a.Ping(t.Context(), same.AddrInfo(), 1); err != nil {
		t.Errorf("the same key: %v", err)
	}
	wantReason(t, a, other.AddrInfo(), p2p.ReasonOtherKey, "another private network", "no pre-shared key", "127.0.0.1")
	wantReason(t, a, none.AddrInfo(), p2p.ReasonOtherKey, "another private network")
	wantReason(t, none, a.AddrInfo(), p2p.ReasonOtherKey, "private network", "127.0.0.1")
}

func TestPSKListensOnTCPOnly(t *testing.T) {
	t.Parallel()
	_, err := p2p.New(p2p.Config{Key: p2ptest.Key(0), Network: "test", PSK: &[32]byte{1}, Listen: []string{"/ip4/127.0.0.1/udp/0/quic-v1"}})
	if !errors.Is(err, p2p.ErrConfig) || !strings.Contains(err.Error(), "QUIC") {
		t.Errorf("got %v", err)
	}
	h, err := p2p.New(p2p.Config{Key: p2ptest.Key(0), Network: "test", PSK: &[32]byte{1}, Logger: p2ptest.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, a := range h.Addrs() {
		if _, err := a.ValueForProtocol(ma.P_UDP); err == nil {
			t.Errorf("listens on %s", a)
		}
	}
}
