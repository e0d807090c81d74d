package p2p_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/protocol/ping"
	ma "github.com/multiformats/go-multiaddr"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

var echo = stream.Protocol[*wrapperspb.StringValue, *wrapperspb.StringValue]{Name: "echo", Version: 1}

// lightWorld is entries that relay, one peer that answers echo, and a light host that knows nobody.
type lightWorld struct {
	entries []*p2p.Host
	far     *p2p.Host
	light   *p2p.Light
}

func newLightWorld(t *testing.T, entries int, direct bool) *lightWorld {
	t.Helper()
	w := &lightWorld{}
	var infos []peer.AddrInfo
	for i := range entries {
		e := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(i), NAT: p2p.NAT{Serve: true}})
		w.entries, infos = append(w.entries, e), append(infos, e.AddrInfo())
	}
	// It is a peer like any other: connected to the entries, with no place reserved anywhere.
	w.far = p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(50)})
	for _, e := range infos {
		if err := w.far.Connect(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	serveEcho(t, w.far)
	var err error
	if w.light, err = p2p.NewLight(p2p.Config{Key: p2ptest.Key(60), Network: p2ptest.Network, Logger: p2ptest.Quiet()}, direct); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.light.Close() })
	serveEcho(t, w.light.Host)
	return w
}

func serveEcho(t *testing.T, h *p2p.Host) {
	t.Helper()
	s := echo.Handle(h, p2ptest.Network, func(_ context.Context, from peer.ID, m *wrapperspb.StringValue) (*wrapperspb.StringValue, error) {
		return wrapperspb.String(from.String() + " " + m.Value), nil
	}, stream.Limits{})
	t.Cleanup(s.Close)
}

func say(t *testing.T, from *p2p.Host, to peer.ID) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := echo.Call(ctx, from, p2ptest.Network, to, wrapperspb.String("hello"))
	if err == nil && got.Value != from.ID().String()+" hello" {
		t.Errorf("answer %q", got.Value)
	}
	return err
}

// A light host reaches a peer, and is reached by it, with no connection but those to its entries, and goes on through
// the second when the first is gone.
func TestLight(t *testing.T) {
	t.Parallel()
	w := newLightWorld(t, 2, false)
	if err := say(t, w.light.Host, w.far.ID()); !errors.Is(err, p2p.ErrNoEntry) {
		t.Errorf("without an entry: %v", err)
	}
	for _, e := range w.entries {
		if err := w.light.Enter(t.Context(), e.AddrInfo()); err != nil {
			t.Fatal(err)
		}
	}
	w.light.Peerstore().AddAddrs(w.far.ID(), w.far.Addrs(), time.Hour) // known, and not to be dialled
	if err := say(t, w.light.Host, w.far.ID()); err != nil {
		t.Fatal(err)
	}
	if err := say(t, w.far, w.light.ID()); err != nil {
		t.Fatal(err)
	}
	// To one peer there may be two connections: TCP and QUIC are both dialled when the first is slow, and may both come.
	dialled := func() (direct []peer.ID) {
		for _, c := range w.light.Network().Conns() {
			if !strings.Contains(c.RemoteMultiaddr().String(), "p2p-circuit") && !slices.Contains(direct, c.RemotePeer()) {
				direct = append(direct, c.RemotePeer())
			}
		}
		return direct
	}
	if d := dialled(); len(d) != 2 || !slices.Contains(d, w.entries[0].ID()) || !slices.Contains(d, w.entries[1].ID()) {
		t.Errorf("connected to %v, want the two entries", d)
	}
	for _, a := range w.light.Addrs() {
		if !strings.HasSuffix(a.String(), "/p2p-circuit") {
			t.Errorf("address %s is no circuit", a)
		}
	}
	// Nobody is let in but through an entry.
	if err := w.far.Connect(network.WithForceDirectDial(t.Context(), "test"), peer.AddrInfo{ID: w.light.ID()}); err == nil {
		t.Error("a light host was dialled directly")
	}

	kept := make(chan error, 1)
	go func() { kept <- w.light.Keep(t.Context(), w.entries[0].ID(), 20*time.Millisecond, time.Second) }()
	w.entries[0].Close()
	if err := <-kept; err == nil {
		t.Fatal("a dead entry answers")
	}
	w.light.Leave(w.entries[0].ID())
	if e := w.light.Entries(); len(e) != 1 || e[0] != w.entries[1].ID() {
		t.Fatalf("entries %v", e)
	}
	if err := say(t, w.light.Host, w.far.ID()); err != nil {
		t.Errorf("through the second entry: %v", err)
	}
	if d := dialled(); len(d) != 1 {
		t.Errorf("connected to %v, want the second entry", d)
	}
}

// An entry that is slow is kept while it answers, the only one longer than the patience for others; a silent one is left
// where there is another.
func TestLightSlowEntry(t *testing.T) {
	t.Parallel()
	w := newLightWorld(t, 2, false)
	slow := w.entries[0]
	var silent atomic.Bool
	answered := make(chan struct{})
	slow.SetStreamHandler(ping.ID, func(s network.Stream) {
		defer s.Close()
		var b [ping.PingSize]byte
		if _, err := io.ReadFull(s, b[:]); err != nil || silent.Load() {
			<-t.Context().Done()
			return
		}
		time.Sleep(800 * time.Millisecond)
		if _, err := s.Write(b[:]); err == nil {
			answered <- struct{}{}
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.light.Enter(t.Context(), slow.AddrInfo()))
	kept := make(chan error, 1)
	go func() { kept <- w.light.Keep(t.Context(), slow.ID(), 10*time.Millisecond, 10*time.Millisecond) }()
	pings := func() {
		t.Helper()
		for range 2 {
			select {
			case <-answered:
			case err := <-kept:
				t.Fatal(err)
			}
		}
	}
	pings()
	must(w.light.Enter(t.Context(), w.entries[1].AddrInfo()))
	pings()
	silent.Store(true)
	for {
		select {
		case <-answered: // it was under way
		case err := <-kept:
			if err == nil {
				t.Error("a silent entry answers")
			}
			return
		}
	}
}

// Where it is allowed a light host dials other peers too, and is not dialled.
func TestLightDirect(t *testing.T) {
	t.Parallel()
	direct := func(w *lightWorld, p peer.ID) bool {
		return slices.ContainsFunc(w.light.Network().ConnsToPeer(p), func(c network.Conn) bool {
			return !strings.Contains(c.RemoteMultiaddr().String(), "p2p-circuit")
		})
	}
	enter := func(t *testing.T) *lightWorld {
		w := newLightWorld(t, 1, true)
		if err := w.light.Enter(t.Context(), w.entries[0].AddrInfo()); err != nil {
			t.Fatal(err)
		}
		return w
	}
	t.Run("first", func(t *testing.T) {
		t.Parallel()
		w := enter(t)
		opened := make(chan struct{}, 16)
		w.light.Network().Notify(&network.NotifyBundle{ConnectedF: func(network.Network, network.Conn) { opened <- struct{}{} }})
		// A circuit is dialled too when the direct way is slow, and may come first: the next call dials again then.
		for range 2 {
			if err := w.light.Connect(t.Context(), w.far.AddrInfo()); err != nil {
				t.Fatal(err)
			}
		}
		for !direct(w, w.far.ID()) {
			<-opened
		}
	})
	t.Run("beside a circuit", func(t *testing.T) {
		t.Parallel()
		w := enter(t)
		opened := make(chan struct{}, 16)
		w.light.Network().Notify(&network.NotifyBundle{ConnectedF: func(network.Network, network.Conn) { opened <- struct{}{} }})
		via := peer.AddrInfo{ID: w.light.ID(), Addrs: w.light.Addrs()}
		if err := w.far.Connect(t.Context(), via); err != nil { // as a provider does that heard an order
			t.Fatal(err)
		}
		<-opened
		w.light.Peerstore().AddAddrs(w.far.ID(), w.far.Addrs(), time.Hour)
		if err := say(t, w.light.Host, w.far.ID()); err != nil { // over the circuit, and dials meanwhile
			t.Fatal(err)
		}
		for !direct(w, w.far.ID()) {
			<-opened
		}
		if err := say(t, w.far, w.light.ID()); err != nil {
			t.Error(err)
		}
	})
	t.Run("no way", func(t *testing.T) {
		t.Parallel()
		w := enter(t)
		nobody := peer.AddrInfo{ID: w.far.ID(), Addrs: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/1")}}
		w.far.Peerstore().ClearAddrs(w.light.ID())
		if err := w.light.Connect(t.Context(), nobody); err != nil {
			t.Errorf("a peer that cannot be dialled is not reached through the entry: %v", err)
		}
		if direct(w, w.far.ID()) {
			t.Error("the circuit is none")
		}
		// Without an entry those are reached that can be dialled, and of the others it is said why not.
		w.light.Leave(w.entries[0].ID())
		if err := w.light.Connect(t.Context(), peer.AddrInfo{ID: p2ptestID(t, 70), Addrs: nobody.Addrs}); !errors.Is(err, p2p.ErrNoEntry) || !strings.Contains(err.Error(), "cannot be dialled") {
			t.Errorf("neither an entry nor a direct way: %v", err)
		}
		w.light.Forgive(w.far.ID())
		if err := w.light.Connect(t.Context(), w.far.AddrInfo()); err != nil || !direct(w, w.far.ID()) {
			t.Errorf("without an entry, a peer that can be dialled: %v", err)
		}
	})
}

func p2ptestID(t *testing.T, i int) peer.ID {
	t.Helper()
	id, err := peer.IDFromPrivateKey(p2ptest.Key(i))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// An entry that does not relay is refused with the reason, and not kept.
func TestLightNoRelay(t *testing.T) {
	t.Parallel()
	plain := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	light, err := p2p.NewLight(p2p.Config{Key: p2ptest.Key(1), Network: p2p.AnyNetwork, Logger: p2ptest.Quiet()}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer light.Close()
	if err := light.Enter(t.Context(), plain.AddrInfo()); !errors.Is(err, p2p.ErrNoRelay) {
		t.Errorf("entered a peer that does not relay: %v", err)
	}
	if n := len(light.Network().Peers()); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}
