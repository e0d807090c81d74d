package buyer

import (
	"context"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
)

// paying is the buyer as its payments see it.
type paying struct{ *Buyer }

var (
	_ pay.Jobs   = paying{}
	_ pay.Leases = paying{}
)

// Guard implements pay.Jobs.
func (b paying) Guard(job string) (*pay.Guard, error) {
	s, err := b.get(job)
	if err != nil || s.command == nil {
		return nil, err
	}
	return pay.GuardOf(s.Snapshot(), s.Mine, s.As().Keys()), nil
}

// Placed implements pay.Jobs.
func (b paying) Placed(ctx context.Context, job string, at pay.Placement) error {
	s, err := b.get(job)
	if err != nil {
		return err
	}
	wages, err := at.WagesOf(s.Snapshot().Detached.Guardians)
	if err != nil {
		return err
	}
	return s.Save(ctx, func(j *Job) { j.Detached = at.In(j.Detached, wages) })
}

// Witnesses implements pay.Jobs.
func (b paying) Witnesses(job string) []sign.Signer {
	s, err := b.get(job)
	if err != nil || s.command == nil {
		return nil
	}
	return s.command.Voice().Witnesses()
}

// Waiting implements pay.Jobs.
func (b paying) Waiting() (out []pay.Waiting) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, s := range b.jobs {
		if st := s.Peek().State; st != Queued && st != Matching {
			continue
		}
		j := s.Snapshot()
		out = append(out, pay.Waiting{Job: id, Ranks: j.Spec.Count, Most: spending(b).counts(j)})
	}
	return out
}

// Note implements pay.Jobs.
func (b paying) Note(job string, step Step) {
	if s, err := b.get(job); err == nil {
		s.Trace.Add(step)
	}
}

// Of implements pay.Leases.
func (b paying) Of(job string) (out []pay.Lease) {
	for _, l := range b.leases.All() {
		if l.Job == job {
			out = append(out, pay.LeaseOf(l))
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
	return s.Together(o)
}

// Final implements pay.Leases.
func (b paying) Final(l market.LeaseID) (*leases.Receipt, error) {
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

// took returns the SOL that a job has taken so far.
func took(j Job) Lamports { return pay.Took(j.Escrows, len(j.Transactions), j.Spec.Count) }
