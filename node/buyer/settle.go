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
			_ = l.over(ctx, "the job is over")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.settled:
		}
	}
	if s.guard != nil {
		if err := s.signLast(ctx, leases); err != nil {
			return err
		}
	}
	if _, err := s.noteOwed(ctx, leases); err != nil {
		return err
	}
	owed := func(ctx context.Context) (anchoring, error) { return s.noteOwed(ctx, leases) }
	paid, anchored, err := s.b.pay.settle(ctx, s.snapshot().ID, leases, owed)
	if err != nil {
		return err
	}
	if s.snapshot().Owed > 0 {
		s.trace.Add(Step{At: time.Now(), Kind: StepPaid, Detail: fmt.Sprintf("%s are the providers', claimed or to be claimed", s.b.cfg.Genesis.FormatAmount(paid))})
	}
	return s.save(ctx, func(j *Job) { j.Paid, j.Transactions = paid, anchored })
}

// noteOwed is owed, journalled with the job.
func (s *supervisor) noteOwed(ctx context.Context, leases []*bought) (anchoring, error) {
	of, total, err := s.owed(ctx, leases)
	if err == nil {
		err = s.save(ctx, func(j *Job) { j.Owed, j.Receipts = total, int(of.Receipts) })
	}
	return of, err
}

func (l *bought) state() meter.PayerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.payer.State()
}

// anchoring is what a job's anchor commits to.
type anchoring struct {
	Root     sign.Hash // over all its receipts, in the order of Hashes
	Receipts uint64    // how many those are
}

// owed sums up what the leases cost, and the root over all their receipts: by
// lease in the order of bought, then by number.
func (s *supervisor) owed(ctx context.Context, leases []*bought) (out anchoring, total market.Amount, err error) {
	accounts, err := s.b.Receipts(ctx, s.snapshot().ID)
	if err != nil {
		return out, 0, err
	}
	hashes := Hashes(accounts)
	out.Root, out.Receipts = chain.RootOf(hashes), uint64(len(hashes))
	for _, l := range leases {
		if total, err = total.Add(l.owed()); err != nil {
			return out, 0, err
		}
	}
	return out, total, nil
}

// Hashes names the receipts of a job in the order in which its anchor commits to
// them: by rank, epoch and id of their lease, then by number. Void leases cost nothing and are left out.
func Hashes(accounts []LeaseAccount) []sign.Hash {
	var out []sign.Hash
	for _, a := range accounts {
		if a.Void {
			continue
		}
		for _, r := range a.Receipts {
			out = append(out, r.SignedHash())
		}
	}
	return out
}

// note adds a step to a job's trace.
func (b *Buyer) note(job string, step Step) {
	if s, err := b.get(job); err == nil {
		s.trace.Add(step)
	}
}

// waiting notes why a payment does not go on.
func (b *Buyer) waiting(id, reason string, until time.Time) {
	b.note(id, Step{At: time.Now(), Kind: StepPaid, Detail: "waiting until " + until.Format(time.TimeOnly) + ": " + reason})
}
