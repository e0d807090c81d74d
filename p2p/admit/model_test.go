package admit

import (
	"fmt"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"
)

// makes gives p a standing, from where a is.
func makes(s *Standings, p peer.ID, to Standing, a ma.Multiaddr) {
	switch to {
	case Stranger:
	case Answered:
		s.answers(p, a)
	case Funded:
		s.Remember(p, a)
		s.Fund(p)
	default:
		s.Remember(p, a)
		s.Deal(p, "lease")
	}
}

// TestAttackModel: whatever peers below a standing do, in whatever order, from however many networks and with however
// many keys, peers of that standing still get all places of its step: those between its ceiling and the next lower one.
func TestAttackModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const conns, streams, places = 50, 60, 20
		s := NewStandings()
		s.Watch(&wire{ended: map[peer.ID]bool{}})
		m := newTestManager(t, s, Limits{Handshakes: 20, Known: 60, Conns: conns, Streams: streams, PerPeer: [len(ceilings)]int{10, 10, 10, 10}})
		work := NewPlaces(places)
		high := Standing(rapid.IntRange(1, len(ceilings)-1).Draw(t, "standing"))
		step := func(total int) int { return high.Share(total) - (high - 1).Share(total) }
		addr := func(first, i int) ma.Multiaddr {
			return ma.StringCast(fmt.Sprintf("/ip4/%d.%d.%d.1/tcp/1", first, i/200, i%200))
		}
		for i := range conns { // who has the standing, from addresses of their own
			makes(s, peer.ID(fmt.Sprint("high ", i)), high, addr(50, i))
		}
		var free []func()
		get := func(p peer.ID, a ma.Multiaddr) (network.ConnManagementScope, error) {
			c, err := m.OpenConnection(network.DirInbound, true, a)
			if err != nil {
				return nil, err
			}
			if err := c.SetPeer(p); err != nil {
				c.Done()
				return nil, err
			}
			return c, nil
		}
		check := func(t *rapid.T) {
			var back []func()
			got := [3]int{}
			for i := range conns {
				if c, err := get(peer.ID(fmt.Sprint("high ", i)), addr(50, i)); err == nil {
					got[0]++
					back = append(back, c.Done)
				}
			}
			for i := range streams {
				if st, err := m.OpenStream(peer.ID(fmt.Sprint("high ", i%conns)), network.DirInbound); err == nil {
					got[1]++
					back = append(back, st.Done)
				}
			}
			for range places {
				if f := work.Take(high, NetworkOf(addr(50, 0))); f != nil {
					got[2]++
					back = append(back, f)
				}
			}
			for _, f := range back {
				f()
			}
			for i, total := range []int{conns, streams, places} {
				if got[i] < step(total) {
					t.Fatalf("of %d places number %d %s gets %d, want %d", total, i, high, got[i], step(total))
				}
			}
		}
		who := func(t *rapid.T) (peer.ID, Standing, ma.Multiaddr) {
			to := Standing(rapid.IntRange(0, int(high)-1).Draw(t, "as"))
			i := rapid.IntRange(0, 200).Draw(t, "key")
			p, a := peer.ID(fmt.Sprint(to, i)), addr(60+int(to), rapid.IntRange(0, 40).Draw(t, "network"))
			makes(s, p, to, a)
			return p, s.Of(p), a
		}
		many := func(t *rapid.T, once func()) {
			for range rapid.IntRange(1, 30).Draw(t, "times") {
				once()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"handshakes": func(t *rapid.T) {
				_, _, a := who(t)
				many(t, func() {
					if c, err := m.OpenConnection(network.DirInbound, true, a); err == nil {
						free = append(free, c.Done)
					}
				})
			},
			"connections": func(t *rapid.T) {
				many(t, func() {
					p, _, a := who(t)
					if c, err := get(p, a); err == nil {
						free = append(free, c.Done)
					}
				})
			},
			"streams": func(t *rapid.T) {
				p, _, _ := who(t)
				many(t, func() {
					if st, err := m.OpenStream(p, network.DirInbound); err == nil {
						free = append(free, st.Done)
					}
				})
			},
			"work": func(t *rapid.T) {
				_, as, a := who(t)
				many(t, func() {
					if f := work.Take(as, NetworkOf(a)); f != nil {
						free = append(free, f)
					}
				})
			},
			"end": func(t *rapid.T) {
				many(t, func() {
					if n := len(free); n > 0 {
						i := rapid.IntRange(0, n-1).Draw(t, "which")
						free[i]()
						free = append(free[:i], free[i+1:]...)
					}
				})
			},
			"": check,
		})
	})
}
