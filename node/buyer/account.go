package buyer

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/probe"
)

// bought lists the leases of the job in the order in which its receipts are
// anchored: by rank, by epoch, by id, the same in every process.
func (s *supervisor) bought() []*leases.Lease {
	s.mu.Lock()
	all := slices.Clone(s.paid)
	s.mu.Unlock()
	slices.SortFunc(all, func(x, y *leases.Lease) int {
		return cmp.Or(cmp.Compare(x.Core.Rank, y.Core.Rank), cmp.Compare(x.Core.RankEpoch, y.Core.RankEpoch),
			bytes.Compare(x.ID[:], y.ID[:]))
	})
	return all
}

// Receipts returns the job's leases with their receipts and vouchers.
func (b *Buyer) Receipts(ctx context.Context, id string) ([]LeaseAccount, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	out := []LeaseAccount{}
	for _, l := range s.bought() {
		a, err := l.Account(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// Probes lists the records of a job's probes, by lease and number.
func (b *Buyer) Probes(ctx context.Context, id string) ([]probe.Record, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	var leases []market.LeaseID
	for _, l := range s.bought() {
		if !slices.Contains(leases, l.First) {
			leases = append(leases, l.First)
		}
	}
	return probe.List(ctx, b.cfg.Store, leases...)
}

// owed sums up what the leases cost, and the root over all their receipts: by
// lease in the order of bought, then by number.
func (s *supervisor) owed(ctx context.Context, of []*leases.Lease) (out pay.Anchoring, total market.Amount, err error) {
	accounts, err := s.b.Receipts(ctx, s.snapshot().ID)
	if err != nil {
		return out, 0, err
	}
	out = pay.AnchoringOf(leases.Hashes(accounts))
	for _, l := range of {
		if total, err = total.Add(l.Owed()); err != nil {
			return out, 0, err
		}
	}
	return out, total, nil
}

// Totals sums up all jobs, archived and removed ones too.
func (b *Buyer) Totals() (t Totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if !b.owned(s.peek()) {
			continue
		}
		j := s.snapshot()
		j.Escrows = b.pay.Escrows(j.ID)
		paid, held := pay.Claimed(j.Escrows)
		t.Paid, t.Held, t.Fees = t.Paid+paid, t.Held+held, t.Fees+took(j).Fees
	}
	archived := b.archive.Sums()
	t.Paid, t.Fees = t.Paid+archived.Paid, t.Fees+archived.Fees
	return t
}
