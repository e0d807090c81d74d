package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/meter"
)

// settle waits until no lease of the job can come to cost more, and pays what
// their vouchers say.
func (s *supervisor) settle(ctx context.Context) error {
	leases := s.bought()
	for _, l := range leases {
		if l.state() != meter.PayerSettled {
			l.over(ctx, "the job is over")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.settled:
		}
	}
	owed, total, err := s.owed(ctx, leases)
	if err != nil {
		return err
	}
	if err := s.save(ctx, func(j *Job) { j.Owed, j.Receipts = total, int(owed.Receipts) }); err != nil {
		return err
	}
	if total == 0 {
		return nil
	}
	id := s.snapshot().ID
	m, err := s.b.settle.Load(ctx, id)
	if err != nil {
		return err
	}
	m, err = s.b.settle.Pay(ctx, id, m, owed)
	if err != nil {
		return err
	}
	var txs []string
	for _, batch := range m.History() {
		txs = append(txs, string(batch.Tx.ID))
	}
	_, paid, _ := m.Totals()
	s.trace.add(Step{At: time.Now(), Kind: StepPaid, Detail: fmt.Sprintf("%s in %d transactions", s.b.cfg.Genesis.FormatAmount(paid), len(txs))})
	return s.save(ctx, func(j *Job) { j.Paid, j.Transactions = paid, txs })
}

func (l *bought) state() meter.PayerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.payer.State()
}

// owed sums up what the leases cost, and the root over all their receipts: by
// lease in the order of bought, then by number.
func (s *supervisor) owed(ctx context.Context, leases []*bought) (chain.AmountsOwed, market.Amount, error) {
	var out chain.AmountsOwed
	var total market.Amount
	accounts, err := s.b.Receipts(ctx, s.snapshot().ID)
	if err != nil {
		return out, 0, err
	}
	hashes := Hashes(accounts)
	out.Root, out.Receipts = chain.RootOf(hashes), uint64(len(hashes))
	for _, l := range leases {
		amount := l.owed()
		if amount == 0 {
			continue
		}
		if total, err = total.Add(amount); err != nil {
			return out, 0, err
		}
		out.Owed = append(out.Owed, chain.Owed{Lease: l.id, To: l.core.Payout, Cumulative: amount})
	}
	return out, total, nil
}

// Hashes names the receipts of a job in the order in which its anchor commits to
// them: by rank, epoch and id of their lease, then by number.
func Hashes(accounts []LeaseAccount) []sign.Hash {
	var out []sign.Hash
	for _, a := range accounts {
		for _, r := range a.Receipts {
			out = append(out, r.SignedHash())
		}
	}
	return out
}

// settled notes a payment that is final.
func (b *Buyer) settled(id string, batch chain.Batch) {
	s, err := b.get(id)
	if err != nil {
		return
	}
	for _, p := range batch.Payouts {
		s.trace.add(Step{At: time.Now(), Kind: StepPaid, Provider: p.To.String(), Price: b.cfg.Genesis.FormatAmount(p.Amount),
			Detail: fmt.Sprintf("lease %s in transaction %s", p.Lease.Short(), batch.Tx.ID)})
	}
}

// waiting notes why a payment does not go on.
func (b *Buyer) waiting(id, reason string, until time.Time) {
	if s, err := b.get(id); err == nil {
		s.trace.add(Step{At: time.Now(), Kind: StepPaid, Detail: "waiting until " + until.Format(time.TimeOnly) + ": " + reason})
	}
}
