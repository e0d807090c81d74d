package mesh

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/cluster"
)

// Members are the members that a cluster has.
type Members interface {
	// Leases returns the leases of the ranks that have one.
	Leases() []*leases.Lease
}

// Trace receives the results of measurements.
type Trace interface {
	Add(steps ...trace.Step)
}

// Seating is a survey of the seats of a gang whose ranks join a cluster.
type Seating struct {
	*Survey
	Members Members
	Trace   Trace
}

// MeasureSeats measures the paths between seats, and to the members that the cluster has. addrs has the addresses of
// the seats' providers. It returns the seats that are too far away, and adds the result to the trace.
func (s Seating) MeasureSeats(
	ctx context.Context, seats []gang.Seat, addrs map[sign.Key][]string,
) []gang.Unfit {
	began := time.Now()
	all := s.finalists(seats, addrs)
	unfit := s.Measure(ctx, all)
	sum := record.SpanOf(s.Between(all))
	s.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Measured, Took: time.Since(began),
		Detail: fmt.Sprintf("%d finalists: %v", len(seats), sum)})
	for _, u := range unfit {
		r := int(u.Rank)
		i := slices.IndexFunc(all, func(m Finalist) bool { return m.Rank == u.Rank })
		s.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Infeasible, Rank: &r, Provider: all[i].Provider.String(),
			Detail: u.Reason.Detail})
	}
	return unfit
}

// finalists are the seats, and the ranks that have a lease, by rank.
func (s Seating) finalists(seats []gang.Seat, addrs map[sign.Key][]string) []Finalist {
	var out []Finalist
	taken := map[uint32]bool{}
	add := func(rank uint32, p sign.Key, hold market.HoldID, addrs []string) {
		taken[rank] = true
		addrs = addrs[:min(len(addrs), market.MaxAddrs)]
		out = append(out, Finalist{Rank: rank, Provider: p, Hold: hold, Addrs: addrs})
	}
	for _, seat := range seats {
		add(seat.Rank, seat.Provider, seat.Hold, addrs[seat.Provider])
	}
	for _, l := range s.Members.Leases() {
		if !taken[l.Core.Rank] {
			add(l.Core.Rank, l.Core.Provider, market.HoldID{}, slices.Clone(l.Record().Addrs))
		}
	}
	slices.SortFunc(out, func(a, b Finalist) int { return cmp.Compare(a.Rank, b.Rank) })
	return out
}

// Paths returns the paths between the seats and the other members. old are those from before the seats had leases.
func (s Seating) Paths(old []cluster.Path, seats []gang.Seat, addrs map[sign.Key][]string) []cluster.Path {
	all := s.finalists(seats, addrs)
	return Renew(old, s.Between(all), all, seats)
}
