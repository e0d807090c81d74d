package buyer

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/link"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// everywhere is a provider that holds units for every buyer.
type everywhere struct{}

func (everywhere) Measures(market.HoldID, sign.Key) error { return nil }
func (everywhere) Serves(sign.Key) bool                   { return true }

// The gang learns which seats are too far apart, and the trace and the job's end name the distance.
func TestMeasureFinalists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rtt, n = 80 * time.Millisecond, 3
		hosts := p2ptest.NewNet(t, n+1, rtt).Hosts
		b := &Buyer{cfg: Config{Host: hosts[0]}, tag: p2ptest.Network}
		spec := job.Job{Cluster: &job.Cluster{Engine: "mpi", Network: cluster.Metro}}
		s := &supervisor{b: b, trace: trace.New(nil, "job"), job: Job{ID: "job", Spec: spec}}
		f := &forming{s: s, near: cluster.Metro, paths: mesh.NewSurvey(hosts[0], b.tag, cluster.Metro), quotes: map[sign.Key]exchange.Quoted{}}
		var seats []gang.Seat
		for i, h := range hosts[1:] {
			service := link.New(h, p2ptest.Network, everywhere{}, p2ptest.Quiet())
			t.Cleanup(service.Close)
			k, err := p2p.KeyFromPeerID(h.ID())
			if err != nil {
				t.Fatal(err)
			}
			q := exchange.Quoted{Quote: market.Quote{Provider: sign.Key(k)}}
			for _, addr := range h.Addrs() {
				q.Quote.Addrs = append(q.Quote.Addrs, addr.String())
			}
			f.quotes[sign.Key(k)] = q
			seats = append(seats, gang.Seat{Rank: uint32(i), Provider: sign.Key(k), Hold: market.HoldID{byte(i + 1)}})
		}
		ev, ok := f.measure(context.Background(), gang.Measure{Round: 3, Seats: seats}).(gang.Measured)
		if !ok || ev.Round != 3 || len(ev.Unfit) != n-1 {
			t.Errorf("unfit: %+v", ev)
		}
		steps, _, _ := s.trace.After(0)
		if len(steps) != n || steps[0].Kind != StepMeasured || !strings.Contains(steps[0].Detail, "3 finalists: 3 paths") || steps[1].Kind != StepInfeasible {
			t.Error(steps)
		}
		if text := s.unlivable(f.paths.Longest()); !strings.HasPrefix(text, "engine mpi cannot live on a wan network") {
			t.Error(text)
		}
	})
}
