package admit_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/admit"
)

// What a peer of some standing gets does not depend on what those below it have, up to their ceiling; and what is given back can be
// taken again.
func TestPlaces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 60).Draw(t, "total")
		p := admit.NewPlaces(total)
		type place struct {
			s    admit.Standing
			at   netip.Prefix
			free func()
		}
		var taken []place
		count := func(keep func(place) bool) (n int) {
			for _, x := range taken {
				if keep(x) {
					n++
				}
			}
			return n
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				s := admit.Standing(rapid.IntRange(0, 2).Draw(t, "standing"))
				var at netip.Prefix
				if n := rapid.IntRange(0, 3).Draw(t, "network"); n > 0 {
					at = netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/24", n))
				}
				strangersHere := count(func(x place) bool { return x.s == admit.Stranger && x.at == at })
				want := len(taken) < s.Share(total) &&
					(s != admit.Stranger || !at.IsValid() || strangersHere < max(admit.Stranger.Share(total)/4, 1))
				free := p.Take(s, at)
				if (free != nil) != want {
					t.Fatalf("%d of %d in use, standing %d from %v, %d strangers of it: got a place: %t", len(taken), total, s, at, strangersHere, free != nil)
				}
				if free != nil {
					taken = append(taken, place{s, at, free})
				}
			},
			"free": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("nothing is taken")
				}
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				taken[i].free()
				taken[i].free()
				taken = append(taken[:i], taken[i+1:]...)
			},
		})
	})
}

func TestNetworkOf(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"/ip4/10.1.2.3/tcp/1": "10.1.2.0/24", "/ip6/2001:db8:0:1ff::5/udp/1/quic-v1": "2001:db8:0:100::/56",
		"/ip6/::ffff:10.1.2.3/tcp/1": "10.1.2.0/24", "/ip4/127.0.0.1/tcp/1": "invalid Prefix", "/ip6/::1/tcp/1": "invalid Prefix",
		"/dns4/a.example/tcp/1": "invalid Prefix",
	} {
		if got := admit.NetworkOf(ma.StringCast(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if admit.NetworkOf(nil).IsValid() {
		t.Error("no address has a network")
	}
}

// manager is a manager of real limits: memory of 64 windows.
func manager(t *testing.T, s *admit.Standings, l admit.Limits) *admit.Manager {
	t.Helper()
	limits := rcmgr.InfiniteLimits.ToPartialLimitConfig()
	limits.System.Memory = 64 << 18
	inner, err := rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits.Build(rcmgr.InfiniteLimits)), rcmgr.WithMetricsDisabled(),
		rcmgr.WithLimitPerSubnet([]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: 1000}}, nil), rcmgr.WithConnRateLimiters(&rate.Limiter{}))
	if err != nil {
		t.Fatal(err)
	}
	m := admit.NewManager(inner, s, l)
	t.Cleanup(func() { m.Close() })
	return m
}

var wide = admit.Limits{Handshakes: 1000, Conns: 1000, Streams: 1000, PerPeer: [...]int{1000, 1000, 1000}}

// open opens a connection of p from an address and ends its handshake.
func open(t *testing.T, m *admit.Manager, p peer.ID, from string) (network.ConnManagementScope, error) {
	t.Helper()
	c, err := m.OpenConnection(network.DirInbound, false, ma.StringCast(from))
	if err != nil {
		return nil, err
	}
	if err := c.SetPeer(p); err != nil {
		c.Done()
		return nil, err
	}
	return c, nil
}

// TestAttackHandshakes: connections that never say who they are take a quarter of the handshakes of strangers from one network, and
// those of others go on.
func TestAttackHandshakes(t *testing.T) {
	t.Parallel()
	l := wide
	l.Handshakes = 40
	m := manager(t, admit.NewStandings(), l)
	held := 0
	for i := range 1000 {
		if _, err := m.OpenConnection(network.DirInbound, true, ma.StringCast(fmt.Sprintf("/ip4/10.0.0.%d/tcp/1", i%250))); err == nil {
			held++
		} else if !errors.Is(err, network.ErrResourceLimitExceeded) {
			t.Fatal(err)
		}
	}
	if held != 10 {
		t.Errorf("one network holds %d of 40 handshakes, want 10", held)
	}
	for i := range 20 { // a handshake that ended takes no place
		if _, err := open(t, m, peer.ID(fmt.Sprint("honest ", i)), "/ip4/10.9.0.1/tcp/1"); err != nil {
			t.Errorf("connection %d from elsewhere: %v", i, err)
		}
	}
}

// TestAttackConnections: a thousand keys of one network have a tenth of the connections, all strangers four tenths.
func TestAttackConnections(t *testing.T) {
	t.Parallel()
	l, s := wide, admit.NewStandings()
	l.Conns = 100
	m := manager(t, s, l)
	for i := range 1000 {
		if _, err := open(t, m, peer.ID(fmt.Sprint("stranger ", i)), fmt.Sprintf("/ip4/10.0.%d.1/tcp/1", i/100)); err != nil {
			t.Fatal(err) // another's connection ends for it
		}
		if used, want := m.Stats().Conns[admit.Stranger].Used, min(i+1, 10*(i/100+1), 40); used > want {
			t.Fatalf("strangers of %d networks hold %d of 100 connections, want %d", i/100+1, used, want)
		}
	}
	if st := m.Stats(); st.Conns[admit.Stranger].Used != 40 || st.Evicted != 960 {
		t.Errorf("strangers hold %d of 100 connections, and %d were ended for others; want 40, 960", st.Conns[admit.Stranger].Used, st.Evicted)
	}
	s.Deal("buyer", "lease/1")
	if _, err := open(t, m, "buyer", "/ip4/10.0.0.1/tcp/1"); err != nil {
		t.Errorf("a buyer with a lease, from the attackers' network: %v", err)
	}
	s.NoDeal("buyer", "lease/1")
	if _, err := open(t, m, "buyer", "/ip4/10.0.0.1/tcp/1"); err == nil && m.Stats().Conns[admit.Counterparty].Used > 1 {
		t.Error("it is a counterparty without a lease")
	}
}

// TestAttackStreamWindows: strangers reserve windows of streams up to four tenths of the memory; who has a lease gets its own all the same,
// and so does the stranger that becomes one.
func TestAttackStreamWindows(t *testing.T) {
	t.Parallel()
	s := admit.NewStandings()
	m := manager(t, s, wide)
	windows := func(p peer.ID) (n int) {
		c, err := open(t, m, p, "/ip4/127.0.0.1/tcp/1")
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			span, err := c.PeerScope().BeginSpan()
			if err != nil {
				t.Fatal(err)
			}
			if span.ReserveMemory(1<<18, network.ReservationPriorityAlways) != nil {
				span.Done()
				return n
			}
			n++
		}
		return n
	}
	strangers := 0
	for i := range 8 {
		strangers += windows(peer.ID(fmt.Sprint("stranger ", i)))
	}
	if strangers < 24 || strangers > 26 {
		t.Errorf("strangers hold %d of 64 windows, want four tenths", strangers)
	}
	s.Deal("buyer", "lease/1")
	if n := windows("buyer"); n != 64-strangers {
		t.Errorf("a buyer with a lease has %d windows, want the other %d", n, 64-strangers)
	}
}

// TestStreams: each peer has its number of streams, strangers together their ceiling, and each that ends makes room.
func TestStreams(t *testing.T) {
	t.Parallel()
	l, s := wide, admit.NewStandings()
	l.Streams, l.PerPeer = 100, [...]int{3, 5, 90}
	m := manager(t, s, l)
	streams := func(p peer.ID) (held []network.StreamManagementScope) {
		for range 100 {
			st, err := m.OpenStream(p, network.DirInbound)
			if err != nil {
				return held
			}
			held = append(held, st)
		}
		return held
	}
	first := streams("stranger")
	if len(first) != 3 {
		t.Errorf("a stranger holds %d streams, want 3", len(first))
	}
	first[0].Done()
	if n := len(streams("stranger")); n != 1 {
		t.Errorf("with one ended, a stranger gets %d more, want 1", n)
	}
	all := 3
	for i := range 50 {
		all += len(streams(peer.ID(fmt.Sprint(i))))
	}
	if all != 40 {
		t.Errorf("strangers hold %d of 100 streams, want 40", all)
	}
	s.Deal("buyer", "lease")
	if n := len(streams("buyer")); n != 60 {
		t.Errorf("a buyer with a lease holds %d streams, want the other 60", n)
	}
	if _, err := m.OpenStream("stranger", network.DirOutbound); err != nil {
		t.Errorf("a stream of our own: %v", err)
	}
}
