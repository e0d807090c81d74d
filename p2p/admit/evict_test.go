package admit

import (
	"fmt"
	"math"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
)

// tb is a test, a benchmark or one of rapid's checks.
type tb interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}

func newTestManager(t tb, s *Standings, l Limits) *Manager {
	t.Helper()
	inner, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(rcmgr.InfiniteLimits), rcmgr.WithMetricsDisabled(), rcmgr.WithConnRateLimiters(&rate.Limiter{}),
		rcmgr.WithLimitPerSubnet([]rcmgr.ConnLimitPerSubnet{{PrefixLength: 8, ConnCount: math.MaxInt}}, nil))
	if err != nil {
		t.Fatal(err)
	}
	m := NewManager(inner, s, l)
	t.Cleanup(func() { m.Close() })
	return m
}

// wire is a network of connections that only notes who was disconnected.
type wire struct {
	network.Network
	mu    sync.Mutex
	ended map[peer.ID]bool
}

type wireConn struct {
	network.Conn
	w *wire
	p peer.ID
}

func (w *wire) Notify(network.Notifiee)              {}
func (w *wire) ConnsToPeer(p peer.ID) []network.Conn { return []network.Conn{wireConn{w: w, p: p}} }
func (c wireConn) Stat() (s network.ConnStats)       { s.Direction = network.DirInbound; return s }
func (c wireConn) CloseWithError(network.ConnErrorCode) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.ended[c.p] = true
	return nil
}

// connect opens a connection whose handshake takes a while.
func connect(t *testing.T, m *Manager, p peer.ID, at string, shake time.Duration) error {
	t.Helper()
	c, err := m.OpenConnection(network.DirInbound, true, ma.StringCast(at))
	if err != nil {
		return err
	}
	time.Sleep(shake)
	if err := c.SetPeer(p); err != nil {
		c.Done()
		return err
	}
	return nil
}

// TestAttackYoungConnections: strangers of four networks that come with ever more keys, when all places are taken,
// drive out their own. Honest strangers of other networks stay and still come in; in the attackers' networks those stay
// that are near, that ask for something, and that came long ago.
func TestAttackYoungConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := NewStandings(), &wire{ended: map[peer.ID]bool{}}
		s.Watch(w)
		m := newTestManager(t, s, Limits{Handshakes: 1000, Conns: 100, Streams: 1000, PerPeer: [len(ceilings)]int{100, 100, 100, 100}})
		honest := map[peer.ID]string{}
		come := func(p peer.ID, at string, shake time.Duration) {
			t.Helper()
			honest[p] = at
			if err := connect(t, m, p, at, shake); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
		for i := range 4 {
			come(peer.ID(fmt.Sprint("early ", i)), fmt.Sprintf("/ip4/11.0.%d.1/tcp/1", i), time.Second)
		}
		come("neighbour since long", "/ip4/10.0.0.200/tcp/1", time.Second)
		for i := range 36 {
			if err := connect(t, m, peer.ID(fmt.Sprint("attacker ", i)), fmt.Sprintf("/ip4/10.0.%d.%d/tcp/1", i%4, i/4%50), time.Second); err != nil {
				t.Fatal(err)
			}
		}
		come("near neighbour", "/ip4/10.0.0.201/tcp/1", time.Millisecond)
		come("active neighbour", "/ip4/10.0.0.202/tcp/1", time.Second)
		for i := range 500 {
			st, err := m.OpenStream("active neighbour", network.DirInbound)
			if err != nil {
				t.Fatal(err)
			}
			st.Done()
			_ = connect(t, m, peer.ID(fmt.Sprint("more ", i)), fmt.Sprintf("/ip4/10.0.%d.%d/tcp/1", i%4, i/4%50), time.Second)
			if i%100 == 50 {
				come(peer.ID(fmt.Sprint("late ", i)), fmt.Sprintf("/ip4/12.0.%d.1/tcp/1", i/100), time.Second)
			}
		}
		m.evictions.Wait()
		for p, at := range honest {
			if w.ended[p] {
				t.Errorf("%s at %s was driven out", p, at)
			}
		}
		if used := m.Stats().Conns[Stranger].Used; used != 40 {
			t.Errorf("strangers have %d places, want 40", used)
		}
	})
}

// TestEvictKeepsOthers: a stranger that got a lease is not driven out, and where there are no strangers nobody is.
func TestEvictKeepsOthers(t *testing.T) {
	t.Parallel()
	s, w := NewStandings(), &wire{ended: map[peer.ID]bool{}}
	s.Watch(w)
	m := newTestManager(t, s, Limits{Handshakes: 1000, Conns: 10, Streams: 10, PerPeer: [len(ceilings)]int{1, 1, 1, 1}})
	strangers := []peer.ID{"a", "b", "c", "d"}
	for i, p := range strangers {
		if err := connect(t, m, p, fmt.Sprintf("/ip4/10.0.%d.1/tcp/1", i), 0); err != nil {
			t.Fatal(err)
		}
		s.Deal(p, "lease")
	}
	if err := connect(t, m, "e", "/ip4/10.0.9.1/tcp/1", 0); err == nil {
		t.Error("a place was taken from a counterparty")
	}
	s.NoDeal("c", "lease")
	if err := connect(t, m, "e", "/ip4/10.0.9.1/tcp/1", 0); err != nil {
		t.Error(err)
	}
	m.evictions.Wait()
	if len(w.ended) != 1 || !w.ended["c"] {
		t.Errorf("ended: %v", w.ended)
	}
}

// TestAttackHandshakesKeepKnown: silent connections from many networks, the counterparty's own among them, have all
// handshakes of strangers; a counterparty that lost its connection, and a peer that answered lately, get in from where
// they were.
func TestAttackHandshakesKeepKnown(t *testing.T) {
	t.Parallel()
	s := NewStandings()
	m := newTestManager(t, s, Limits{Handshakes: 40, Known: 48, Conns: 1000, Streams: 10, PerPeer: [len(ceilings)]int{1, 1, 1, 1}})
	c, err := m.OpenConnection(network.DirInbound, true, ma.StringCast("/ip4/11.0.0.7/tcp/1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetPeer("tenant"); err != nil {
		t.Fatal(err)
	}
	s.Deal("tenant", "lease")
	c.Done()
	s.answers("answered", ma.StringCast("/ip4/12.0.0.7/tcp/1"))
	s.leaves("answered")
	for i := range 1000 {
		_, _ = m.OpenConnection(network.DirInbound, true, ma.StringCast(fmt.Sprintf("/ip4/%d.0.0.%d/tcp/1", 10+i%20, 8+i/20)))
	}
	if _, err := m.OpenConnection(network.DirInbound, true, ma.StringCast("/ip4/99.0.0.1/tcp/1")); err == nil {
		t.Fatal("there are handshakes left")
	}
	for p, at := range map[peer.ID]string{"tenant": "/ip4/11.0.0.7/tcp/2", "answered": "/ip4/12.0.0.7/tcp/2"} {
		if err := connect(t, m, p, at, 0); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	// Who shares such an address has a quarter of the places that are kept.
	held := 0
	for range 100 {
		if _, err := m.OpenConnection(network.DirInbound, true, ma.StringCast("/ip4/11.0.0.7/tcp/3")); err == nil {
			held++
		}
	}
	if held != 4 {
		t.Errorf("one address of a counterparty has %d of 16 handshakes, want 4", held)
	}
	s.NoDeal("tenant", "lease")
	for i := range maxRecent {
		s.answers(peer.ID(fmt.Sprint(i)), ma.StringCast(fmt.Sprintf("/ip4/13.%d.%d.7/tcp/1", i/256, i%256)))
	}
	if len(s.homes.of) != maxRecent || len(s.homes.at) != maxRecent || len(s.homes.recent) != maxRecent || s.homes.at[netip.MustParseAddr("11.0.0.7")] != nil {
		t.Errorf("%d, %d, %d peers are remembered", len(s.homes.of), len(s.homes.at), len(s.homes.recent))
	}
}

// BenchmarkAdmission is what admission adds to a stream, and to a message of one that takes a place.
func BenchmarkAdmission(b *testing.B) {
	s := NewStandings()
	limits := Limits{Handshakes: 512, Conns: 3072, Streams: 12288, PerPeer: [len(ceilings)]int{128, 256, 256, 512}}
	m := newTestManager(b, s, limits)
	for i := range 1000 {
		p := peer.ID(fmt.Sprint(i))
		c, err := m.OpenConnection(network.DirInbound, true, ma.StringCast(fmt.Sprintf("/ip4/10.%d.%d.1/tcp/1", i/256, i%256)))
		if err == nil {
			err = c.SetPeer(p)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	stream := func(b *testing.B, m network.ResourceManager) {
		b.ReportAllocs()
		for b.Loop() {
			st, err := m.OpenStream("7", network.DirInbound)
			if err != nil {
				b.Fatal(err)
			}
			st.Done()
		}
	}
	b.Run("stream/libp2p", func(b *testing.B) { stream(b, m.ResourceManager) })
	b.Run("stream/starling", func(b *testing.B) { stream(b, m) })
	b.Run("message", func(b *testing.B) {
		places, at := NewPlaces(256), netip.MustParsePrefix("10.0.7.0/24")
		b.ReportAllocs()
		for b.Loop() {
			places.Take(s.Of("7"), at)()
		}
	})
}
