package settling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
)

// errNoLease is returned for a lease that a bill does not have.
var errNoLease = errors.New("no such lease in the bill")

// bill is the bill of a job that is being settled. It implements pay.Bill.
type bill struct {
	job    *run.Job
	leases []*leases.Lease

	mu       sync.Mutex
	total    market.Amount
	receipts uint64
}

// Owed implements pay.Bill. The job shows the result.
func (x *bill) Owed(ctx context.Context) (pay.Anchoring, error) {
	of, total, err := owed(ctx, x.job, x.leases)
	if err != nil {
		return of, err
	}
	x.mu.Lock()
	x.total, x.receipts = total, of.Receipts
	x.mu.Unlock()
	x.job.Show(func(j *record.Job) bool {
		j.Owed, j.Receipts = total, int(of.Receipts)
		return true
	})
	x.job.Trace.Poke()
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

// owed returns the sum of the costs of leases, and the root over all receipts of their job: by lease in the order of
// Bought, then by number.
func owed(ctx context.Context, j *run.Job, of []*leases.Lease) (out pay.Anchoring, total market.Amount, err error) {
	accounts, err := Receipts(ctx, j)
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

// Receipts returns the leases of a job with their receipts and vouchers.
func Receipts(ctx context.Context, j *run.Job) ([]record.LeaseAccount, error) {
	out := []record.LeaseAccount{}
	for _, l := range j.Bought() {
		a, err := l.Account(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}
