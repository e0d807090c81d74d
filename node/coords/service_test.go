package coords

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// Peers that are connected find out how far they are from one another, tell it, and know it still when they run again; a journal that has
// something else in it is no reason not to run.
func TestService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, rtt = 4, 30 * time.Millisecond
		net := p2ptest.NewNet(t, n, rtt)
		var services []*Service
		journals := make([]*store.Memory, n)
		var stops []func()
		for i, h := range net.Hosts {
			journals[i] = store.NewMemory()
			s, err := New(t.Context(), Config{Host: h, Network: p2ptest.Network, Store: journals[i], Log: p2ptest.Quiet()})
			if err != nil {
				t.Fatal(err)
			}
			if !s.Coordinate().IsZero() {
				t.Error("who has observed nothing says where it is")
			}
			services, stops = append(services, s), append(stops, p2ptest.Go(t, s.Run))
		}
		net.ConnectAll()
		time.Sleep(40 * time.Minute) // of the bubble
		for i, s := range services {
			for _, other := range services[:i] {
				if d := s.Coordinate().Distance(other.Coordinate()); d < rtt*2/3 || d > rtt*4/3 {
					t.Errorf("%v apart, the network says %v", d, rtt)
				}
			}
		}
		for _, stop := range stops {
			stop()
		}
		again, err := New(t.Context(), Config{Host: net.Hosts[0], Network: p2ptest.Network, Store: journals[0], Log: p2ptest.Quiet()})
		if err != nil || again.Coordinate().Distance(services[1].Coordinate()) < rtt/2 || again.Coordinate().Error < doubted*1e6 {
			t.Error(again.Coordinate(), err)
		}
		if err := journals[0].Write(t.Context(), store.Put{Kind: coordinates.Kind(), Key: ownKey, Value: []byte(`"0102"`)}); err != nil {
			t.Fatal(err)
		}
		again, err = New(t.Context(), Config{Host: net.Hosts[0], Network: p2ptest.Network, Store: journals[0], Log: p2ptest.Quiet()})
		if err != nil || again.Coordinate() != (market.Coordinate{}) {
			t.Error(again.Coordinate(), err)
		}
	})
}
