package portmap

import (
	"testing"
	"testing/synctest"
	"time"

	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	ma "github.com/multiformats/go-multiaddr"
)

// search is one search for a router.
type search struct{ found, closed bool }

func (s *search) GetMapping(a ma.Multiaddr) ma.Multiaddr {
	if !s.found {
		return nil
	}
	return ma.StringCast("/ip4/5.9.1.1").Encapsulate(ma.StringCast("/tcp/20000"))
}
func (s *search) HasDiscoveredNAT() bool { return s.found }
func (s *search) Close() error           { s.closed = true; return nil }

// A router that comes up after the peer is found, and not looked for any more.
func TestPortMapSearchesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all []*search
		p := (&Mapper{}).start(func() basichost.NATManager {
			all = append(all, &search{found: len(all) == 2})
			return all[len(all)-1]
		})
		listening := ma.StringCast("/ip4/0.0.0.0/tcp/4001")
		for searches, after := range []time.Duration{0, firstPause, 2 * firstPause} {
			time.Sleep(after)
			synctest.Wait()
			if len(all) != searches+1 || p.HasDiscoveredNAT() != (searches == 2) || (p.GetMapping(listening) != nil) != (searches == 2) {
				t.Errorf("search %d: %d searches, found: %v", searches, len(all), p.HasDiscoveredNAT())
			}
		}
		time.Sleep(10 * lastPause)
		synctest.Wait()
		if len(all) != 3 || !all[0].closed || !all[1].closed || all[2].closed {
			t.Errorf("%d searches: %+v", len(all), all)
		}
		if got := p.Addrs([]ma.Multiaddr{listening}); len(got) != 1 || !got["/ip4/5.9.1.1/tcp/20000"] {
			t.Errorf("mapped: %v", got)
		}
		if err := p.Close(); err != nil || !all[2].closed {
			t.Errorf("closed: %v, %v", all[2].closed, err)
		}
	})
}

// Without port mapping there is nothing to ask and nothing to close.
func TestPortMapOff(t *testing.T) {
	t.Parallel()
	p := &Mapper{}
	if p.HasDiscoveredNAT() || len(p.Addrs([]ma.Multiaddr{ma.StringCast("/ip4/0.0.0.0/tcp/4001")})) != 0 || p.Close() != nil {
		t.Error("there is a mapping")
	}
}
