package mesh

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// noMembers are the members of a cluster that has none yet.
type noMembers struct{}

func (noMembers) Leases() []*leases.Lease { return nil }

// The gang learns which seats are too far apart, and the trace names the distance.
func TestMeasureFinalists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rtt, n = 80 * time.Millisecond, 3
		hosts := p2ptest.NewNet(t, n+1, rtt).Hosts
		tr := trace.New(nil, "job")
		f := Seating{NewSurvey(hosts[0], p2ptest.Network, cluster.Metro), noMembers{}, tr}
		addrs := map[sign.Key][]string{}
		var seats []gang.Seat
		for i, h := range hosts[1:] {
			service := link.New(h, p2ptest.Network, everywhere{}, p2ptest.Quiet())
			t.Cleanup(service.Close)
			k, err := p2p.KeyFromPeerID(h.ID())
			if err != nil {
				t.Fatal(err)
			}
			for _, addr := range h.Addrs() {
				addrs[sign.Key(k)] = append(addrs[sign.Key(k)], addr.String())
			}
			seats = append(seats, gang.Seat{Rank: uint32(i), Provider: sign.Key(k), Hold: market.HoldID{byte(i + 1)}})
		}
		if unfit := f.MeasureSeats(t.Context(), seats, addrs); len(unfit) != n-1 {
			t.Errorf("unfit: %+v", unfit)
		}
		steps, _, _ := tr.After(0)
		if len(steps) != n || steps[0].Kind != trace.Measured || !strings.Contains(steps[0].Detail, "3 finalists: 3 paths") || steps[1].Kind != trace.Infeasible {
			t.Error(steps)
		}
		if paths := f.Paths(nil, seats, addrs); len(paths) != n {
			t.Errorf("paths between %d seats: %v", n, paths)
		}
	})
}
