package buyer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/gang"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/store"
)

// measure measures the paths between the seats, and to the members that the cluster has.
func (f *forming) measure(ctx context.Context, e gang.Measure) gang.Event {
	began := time.Now()
	all := f.finalists(e.Seats)
	unfit := f.paths.Measure(ctx, all)
	sum := record.SpanOf(f.paths.Between(all))
	f.s.trace.Add(Step{At: time.Now(), Kind: StepMeasured, Took: time.Since(began),
		Detail: fmt.Sprintf("%d finalists: %v", len(e.Seats), sum)})
	for _, u := range unfit {
		r := int(u.Rank)
		i := slices.IndexFunc(all, func(m mesh.Finalist) bool { return m.Rank == u.Rank })
		f.s.trace.Add(Step{At: time.Now(), Kind: StepInfeasible, Rank: &r, Provider: all[i].Provider.String(),
			Detail: u.Reason.Detail})
	}
	return gang.Measured{Round: e.Round, Unfit: unfit}
}

// finalists are the seats, and the ranks that have a lease, by rank.
func (f *forming) finalists(seats []gang.Seat) []mesh.Finalist {
	var out []mesh.Finalist
	taken := map[uint32]bool{}
	add := func(rank uint32, p sign.Key, hold market.HoldID, addrs []string) {
		taken[rank] = true
		addrs = addrs[:min(len(addrs), market.MaxAddrs)]
		out = append(out, mesh.Finalist{Rank: rank, Provider: p, Hold: hold, Addrs: addrs})
	}
	for _, s := range seats {
		q := f.quotes[s.Provider]
		add(s.Rank, s.Provider, s.Hold, append(slices.Clone(q.Quote.Addrs), q.Offer.Addrs...))
	}
	for _, l := range f.s.members() {
		if !taken[l.Core.Rank] {
			add(l.Core.Rank, l.Core.Provider, market.HoldID{}, slices.Clone(l.Record().Addrs))
		}
	}
	slices.SortFunc(out, func(a, b mesh.Finalist) int { return cmp.Compare(a.Rank, b.Rank) })
	return out
}

// members are the leases that the job's ranks have, by rank.
func (s *supervisor) members() []*leases.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.leases), func(l *leases.Lease) bool { return l == nil })
}

// putPaths returns the write of the paths between the members, once they have leases.
func (f *forming) putPaths(seats []gang.Seat, old []cluster.Path) ([]cluster.Path, store.Put, error) {
	all := f.finalists(seats)
	fresh := mesh.Renew(old, f.paths.Between(all), all, seats)
	put, err := mesh.Records.Encode(f.s.trace.Job, fresh)
	return fresh, put, err
}

// Paths returns the measured paths between the ranks of a cluster, by rank, and none for another job.
func (b *Buyer) Paths(ctx context.Context, job string) ([]cluster.Path, error) {
	return mesh.Paths(ctx, b.cfg.Store, job)
}

// coordinateSlack is how much farther apart than its class allows finalists may be by their coordinates, which are
// never better than that: the real ones are measured.
const coordinateSlack = 5 * time.Millisecond

// chooseCluster proposes members for ranks of a cluster, near to one another and to the members that it has.
func (s *supervisor) chooseCluster(
	o market.Order, res match.Result, n int, spread bool, wanted cluster.Class,
) ([]match.Assignment, []sign.Key, *match.Unschedulable, error) {
	var near match.Near
	if wanted.RTT() > 0 {
		near.Within = wanted.RTT() + coordinateSlack
	}
	for _, l := range s.members() {
		near.Members = append(near.Members, s.b.exchange.Book.Coordinate(l.Core.Provider))
	}
	got, err := match.SelectCluster(o, res, n, spread, near)
	var none *match.Unschedulable
	var far *match.TooFar
	switch {
	case err == nil:
		if got.Diameter > 0 {
			s.trace.Add(Step{At: time.Now(), Kind: StepChosen,
				Detail: fmt.Sprintf("%d of %d providers for a cluster on a %s, by their coordinates up to %v apart", n,
					len(res.Ranked), wanted, record.RoundTrip(got.Diameter))})
		}
		return got.Chosen, got.Spares, nil, nil
	case errors.As(err, &none):
		return nil, nil, none, nil
	case errors.As(err, &far) && far.Apart > 0:
		return nil, nil, nil, &unplaced{thin: o.Draw != match.DrawAll, reason: s.unlivable(far.Apart) +
			fmt.Sprintf("the best %d of %d providers are %v apart", far.Need, far.Of, record.RoundTrip(far.Apart))}
	case errors.As(err, &far):
		return nil, nil, nil, &unplaced{thin: o.Draw != match.DrawAll,
			reason: fmt.Sprintf("a %s is wanted, under %v: fewer than %d of %d providers are that near to the "+
				"cluster's members", wanted, wanted.RTT(), far.Need, far.Of)}
	}
	return nil, nil, nil, err
}

// unlivable says why a cluster cannot be where its members are so far apart: "" if it can.
func (s *supervisor) unlivable(apart time.Duration) string {
	c := s.snapshot().Spec.Cluster
	is := cluster.ClassByRTT(apart)
	if e, err := cluster.LookUp(c.Engine); err == nil {
		if err := e.With(c.Options).LivesOn(is); err != nil {
			return err.Error() + ": "
		}
	}
	if !c.Network.Admits(is) {
		return fmt.Sprintf("a %s is wanted, under %v: ", c.Network, c.Network.RTT())
	}
	return ""
}
