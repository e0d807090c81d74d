package buyer

import (
	"context"

	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/programs"
	"github.com/starling-network/starling/node/buyer/settling"
)

// Receipts returns the job's leases with their receipts and vouchers.
func (b *Buyer) Receipts(ctx context.Context, id string) ([]LeaseAccount, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	return settling.Receipts(ctx, s.Job)
}

// Probes lists the records of a job's probes, by lease and number.
func (b *Buyer) Probes(ctx context.Context, id string) ([]programs.Probe, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	return programs.Probes(ctx, b.cfg.Store, s.Job)
}

// Totals sums up all jobs, archived and removed ones too.
func (b *Buyer) Totals() (t Totals) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.jobs {
		if !b.owned(s.Peek()) {
			continue
		}
		j := s.Snapshot()
		j.Escrows = b.pay.Escrows(j.ID)
		paid, held := pay.Claimed(j.Escrows)
		t.Paid, t.Held, t.Fees = t.Paid+paid, t.Held+held, t.Fees+took(j).Fees
	}
	archived := b.archive.Sums()
	t.Paid, t.Fees = t.Paid+archived.Paid, t.Fees+archived.Fees
	return t
}
