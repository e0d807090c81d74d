package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/verify"
)

// paying is the buyer as its payments see it.
type paying struct{ *Buyer }

var (
	_ pay.Jobs   = paying{}
	_ pay.Leases = paying{}
)

// payable is a lease as its payment needs it.
func payable(l *leases.Lease) pay.Lease {
	rec := l.Record()
	return pay.Lease{
		ID: l.ID, Job: l.Job, Core: l.Core, Keys: l.Keys, Escrow: rec.Escrow, Hired: rec.Hired,
		Settled: l.Done(), Retired: l.Retired(),
	}
}

// payables are leases as their payment needs them.
func payables(of []*leases.Lease) []pay.Lease {
	out := make([]pay.Lease, len(of))
	for i, l := range of {
		out[i] = payable(l)
	}
	return out
}

// Guard implements pay.Jobs.
func (b paying) Guard(job string) (*pay.Guard, error) {
	s, err := b.get(job)
	if err != nil || s.guard == nil {
		return nil, err
	}
	j := s.snapshot()
	d := j.Detached
	if d == nil {
		return nil, nil
	}
	out := &pay.Guard{
		Mine: s.mine, Running: j.State == Running, Owner: d.Owner, Key: d.Key, Keys: s.as.keys(), Place: d.Escrow,
	}
	for _, sb := range d.Standbys {
		out.Standbys = append(out.Standbys, pay.Standby{
			Provider: sb.Quote.Provider, Payout: sb.Quote.Payout, Price: sb.Quote.Price, Units: j.Spec.Resources.Units,
			Budget: sb.Budget,
		})
	}
	for _, m := range d.Guardians {
		if m.Wage != nil {
			out.Wages = append(out.Wages, *m.Wage)
		}
	}
	return out, nil
}

// Placed implements pay.Jobs.
func (b paying) Placed(ctx context.Context, job string, at pay.Placement) error {
	s, err := b.get(job)
	if err != nil {
		return err
	}
	return s.placedAt(ctx, at)
}

// Witnesses implements pay.Jobs.
func (b paying) Witnesses(job string) []sign.Signer {
	s, err := b.get(job)
	if err != nil || s.guard == nil {
		return nil
	}
	return s.guard.witnesses()
}

// Waiting implements pay.Jobs.
func (b paying) Waiting() (out []pay.Waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, s := range b.jobs {
		if st := s.peek().State; st != Queued && st != Matching {
			continue
		}
		j := s.snapshot()
		out = append(out, pay.Waiting{Job: id, Ranks: j.Spec.Count, Most: b.counts(j)})
	}
	return out
}

// Note implements pay.Jobs.
func (b paying) Note(job string, step trace.Step) {
	if s, err := b.get(job); err == nil {
		s.trace.Add(step)
	}
}

// Of implements pay.Leases.
func (b paying) Of(job string) (out []pay.Lease) {
	for _, l := range b.leases.All() {
		if l.Job == job {
			out = append(out, payable(l))
		}
	}
	return out
}

// Together implements pay.Leases.
func (b paying) Together(job string, o market.OrderID) []market.LeaseCore {
	s, err := b.get(job)
	if err != nil {
		return nil
	}
	return s.together(o)
}

// Final implements pay.Leases.
func (b paying) Final(l market.LeaseID) (*verify.Receipt, error) {
	return b.leases.Final(context.Background(), l)
}

// Void implements pay.Leases.
func (b paying) Void(ids []market.LeaseID, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if l, run := b.leases.Get(id), b.ctx; l != nil && run != nil {
			b.wg.Go(func() { _ = l.Void(run, reason) })
		}
	}
}

// Retired implements pay.Leases.
func (b paying) Retired(id market.LeaseID) {
	if l := b.leases.Get(id); l != nil {
		l.Retire()
	}
}

// errNoLease is returned for a lease that a bill does not have.
var errNoLease = errors.New("no such lease in the bill")

// bill is the bill of a job that is being settled. It implements pay.Bill.
type bill struct {
	s      *supervisor
	leases []*leases.Lease

	mu       sync.Mutex
	total    market.Amount
	receipts uint64
}

// Owed implements pay.Bill. The job shows the result.
func (x *bill) Owed(ctx context.Context) (pay.Anchoring, error) {
	of, total, err := x.s.owed(ctx, x.leases)
	if err != nil {
		return of, err
	}
	x.mu.Lock()
	x.total, x.receipts = total, of.Receipts
	x.mu.Unlock()
	x.s.mu.Lock()
	x.s.job.Owed, x.s.job.Receipts = total, int(of.Receipts)
	x.s.mu.Unlock()
	x.s.trace.Poke()
	return of, nil
}

// Void implements pay.Bill.
func (x *bill) Void(ctx context.Context, id market.LeaseID, reason string) error {
	i := slices.IndexFunc(x.leases, func(l *leases.Lease) bool { return l.ID == id })
	if i < 0 {
		return fmt.Errorf("lease %s: %w", id.Short(), errNoLease)
	}
	return x.leases[i].Void(ctx, reason)
}

// counted returns the last result: the amount owed, and the number of receipts.
func (x *bill) counted() (market.Amount, uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.total, x.receipts
}

// took returns the SOL that a job has taken so far.
func took(j Job) Lamports { return pay.Took(j.Escrows, len(j.Transactions), j.Spec.Count) }
