package buyer

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
