package jobs_test

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"pgregory.net/rapid"
)

// TestBurst loses many ranks in random order, with some orders answered in between, as on a busy machine. Few orders are
// under way at any time, every rank is ordered, and there are fewer orders than ranks.
func TestBurst(t *testing.T) {
	t.Parallel()
	whole := running(t, plain(20))
	rapid.Check(t, func(rt *rapid.T) {
		s, open, orders, seated := whole, []jobs.OrderGang{}, 0, map[uint32]bool{}
		step := func(ev jobs.Event) {
			var fx []jobs.Effect
			s, fx = take(t, s, ev)
			for _, f := range fx {
				if o, ok := f.(jobs.OrderGang); ok {
					open, orders = append(open, o), orders+1
				}
			}
			if len(open) > 4 {
				rt.Fatalf("%d orders are under way", len(open))
			}
		}
		answer := func() {
			o := open[0]
			open = open[1:]
			step(jobs.OrderPlaced{Gang: o.Gang, Order: market.OrderID{2, byte(o.Gang)}})
			formed := jobs.GangFormed{Gang: o.Gang}
			for _, seat := range o.Seats {
				id, most := market.LeaseID{byte(seat.Rank), 0, 2}, o.Cap/market.Amount(len(o.Seats))
				formed.Leases = append(formed.Leases, jobs.Lease{ID: id, Chain: id, Rank: seat.Rank, Epoch: seat.Epoch,
					Most: most, Open: true, Usable: true})
				seated[seat.Rank] = true
			}
			step(formed)
		}
		for _, i := range rapid.Permutation(ranksTo(20)).Draw(rt, "ranks") {
			chain := s.Ranks[i].Lease
			step(jobs.LeaseLost{Chain: chain, Cause: jobs.CauseDefaulted})
			step(jobs.LeaseCost{Lease: chain, Settled: true})
			if len(open) > 0 && rapid.IntRange(0, 9).Draw(rt, "answered") == 0 {
				answer()
			}
		}
		for len(open) > 0 {
			answer()
		}
		if len(seated) != 20 || orders > 15 {
			rt.Errorf("%d of 20 ranks have a lease again, after %d orders", len(seated), orders)
		}
	})
}

func ranksTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}
