package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/access"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/programs"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/settling"
)

// Quote returns the present price of a job: it publishes an order and ranks the quotes as for a job, but reserves
// nothing. If too few providers were drawn, it repeats the order for more. A tag of its image is resolved as for a
// submission, unless its registry needs credentials and the submission has none. It returns ErrRefused.
func (b *Buyer) Quote(ctx context.Context, sub Submission) (Quotation, error) {
	if r := sub.Spec.Registry; r == nil || sub.Values.Password != "" {
		var err error
		if sub.Spec.Image, err = b.rooms.admission.Pin(ctx, sub); err != nil {
			return Quotation{}, unpinned(err)
		}
	}
	spec, _, err := b.rooms.admission.Volumes(sub.Spec, sub.Key, time.Now())
	if sub.Spec = spec; err != nil {
		return Quotation{}, err
	}
	q, err := b.rooms.orders.Quote(ctx, b.own, sub.Spec)
	q.Image = sub.Spec.Image
	return q, err
}

// Extend gives a job more time and, unless budget is zero, another budget. Its leases are extended where their
// providers agree, and no program restarts. It returns ErrNotRunning for an ended job, and ErrRefused, ErrFunds or
// ErrLimit if money or limits do not allow it.
func (b *Buyer) Extend(ctx context.Context, id string, by time.Duration, budget market.Amount) (Extension, error) {
	s, err := b.get(id)
	if err != nil {
		return Extension{}, err
	}
	return s.changes.Extend(ctx, by, budget)
}

// Scale gives a cluster that runs another size. New members are ordered all or none, within the job's money; of a
// smaller one the highest ranks are ended, as gracefully as a stop. It returns when the cluster has that size, or has
// kept its own. It returns ErrRefused for jobs that cannot be scaled, ErrNotRunning for a cluster that does not run,
// and ErrFunds or ErrLimit where money forbids it.
func (b *Buyer) Scale(ctx context.Context, id string, n uint32) (Job, error) {
	return b.ScaleWithin(ctx, id, n, 0)
}

// ScaleWithin is Scale that gives the job another budget for it, not below the one it has; 0 leaves the budget to
// follow the size as it does. With the size that the cluster has, the budget alone is another. A cluster that keeps its
// size keeps its budget.
func (b *Buyer) ScaleWithin(ctx context.Context, id string, n uint32, budget market.Amount) (Job, error) {
	s, err := b.get(id)
	if err != nil {
		return Job{}, err
	}
	done, err := s.changes.Scale(n, budget, b.background)
	if err != nil {
		return Job{}, err
	}
	select {
	case <-ctx.Done():
		return s.shown(), ctx.Err()
	case err := <-done:
		return s.shown(), err
	}
}

// background runs work that outlives its request, unless the peer is starting or stopping.
func (b *Buyer) background(work func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil || b.closing {
		return fmt.Errorf("%w: the peer is starting or stopping; try again", ErrRefused)
	}
	b.wg.Go(work)
	return nil
}

// ClusterToken returns the secret that a cluster's engine shares, see secrets.Keeper. It returns ErrNoJob, and
// ErrRefused for a plain job.
func (b *Buyer) ClusterToken(id string) (string, error) {
	j, err := b.Job(id)
	if err != nil {
		return "", err
	}
	if j.Spec.Cluster == nil {
		return "", fmt.Errorf("%w: job %s is no cluster", ErrRefused, j.ID)
	}
	return b.secrets.Token(j.ID), nil
}

// Find returns a job of this process or of the archive.
func (b *Buyer) Find(id string) (*run.Job, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	return s.Job, nil
}

// doors is the buyer as users enter the programs of its jobs.
type doors struct{ *Buyer }

// Access implements access.Jobs.
func (b doors) Access(id string) (*access.Programs, error) {
	s, err := b.get(id)
	if err != nil {
		return nil, err
	}
	return s.access, nil
}

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

// Remove removes a job with its receipts and logs, when it ended RemoveAfter ago or earlier. It returns ErrNoJob,
// ErrNeeded while money of the job can move or this peer works on it, and the journal's errors. It needs Run.
func (b *Buyer) Remove(ctx context.Context, id string) (Removed, error) {
	r := &removal{b: retiring{b}, id: id, done: make(chan error, 1)}
	select {
	case b.removals <- r:
	case <-ctx.Done():
		return Removed{}, ctx.Err()
	}
	err := <-r.done // it ends with Run
	return r.Removed, err
}
