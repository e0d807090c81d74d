package buyer

import (
	"context"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/store"
)

// payments pays for leases: pay.Payments, or pay.Free on a free network.
type payments interface {
	budget
	deposits
	closing
}

// budget shows the money of jobs.
type budget interface {
	// Afford returns an error that wraps ErrFunds if the wallet cannot pay need, the most that the job can cost, with
	// that many leases at a time. If the chain does not answer, it returns nil. The job is empty for a new job.
	Afford(ctx context.Context, job string, need market.Amount, leases uint32) error
	// Account returns the account that orders name beside the peer's own, or zero if there is no other.
	Account() sign.Key
	// Lamports estimates the SOL for a job of a number of ranks, with stake set aside.
	Lamports(ranks uint32, stake market.Amount) Lamports
	// Escrows returns the escrows of a job, the first one first.
	Escrows(job string) []Escrow
}

// deposits sets money aside.
type deposits interface {
	// Fund sets the money of leases of one order aside, and returns the source of each, in their order. The journal has
	// the sources when it returns, and the money need not be on chain. After an error it may be called again, or else
	// Retire with the leases.
	Fund(ctx context.Context, job string, leases []pay.Lease) ([]pay.Source, error)
	// Retire takes back the money of a lease that costs nothing more. It may be called again.
	Retire(l pay.Lease)
	// Unused winds up an order without billable leases that will get no other lease.
	Unused(job string, o market.OrderID)
	// Forsake is Unused for the orders of an earlier process that crashed. It comes before the job sets aside anything
	// else.
	Forsake(job string)
}

// closing ends the payments of jobs.
type closing interface {
	// Settle takes back the money that was set aside for a job and costs nothing, and has the receipts anchored. It
	// returns the amount that was paid and the transactions of the anchors. All of that is final when it returns.
	// Leases can become void meanwhile, so the bill is counted again.
	Settle(ctx context.Context, job string, leases []pay.Lease, bill pay.Bill) (market.Amount, []string, error)
	// LetGo drops a job's money from memory, and returns the records that the journal need not keep. ok is false if
	// some of the money can still move or a refund is pending. The caller calls end with the journal's answer: unless
	// the records are gone, the money stays in memory.
	LetGo(job string) (gone []store.Put, end func(gone bool), ok bool)
	// GiveUp winds up the hires for a job of another peer, which has wound up the rest.
	GiveUp(job string) error
	// Run carries out payments until ctx ends.
	Run(ctx context.Context)
}

// buying is the buyer as it takes leases. It implements gangs.Money and selection.Limits.
type buying struct{ *Buyer }

// Fund implements gangs.Money.
func (b buying) Fund(ctx context.Context, job string, of ...*leases.Lease) error {
	sources, err := b.pay.Fund(ctx, job, pay.LeasesOf(of))
	if err != nil {
		return err
	}
	for i, l := range of {
		if err := l.Ready(sources[i].Escrow, sources[i].Funding); err != nil {
			return err
		}
	}
	return nil
}

// Using implements gangs.Money.
func (b buying) Using(job string, o market.OrderID) (back func()) {
	done := b.leases.Using(o)
	return func() {
		done()
		b.used(job, o)
	}
}

// Prepay implements gangs.Money.
func (b buying) Prepay(ctx context.Context, l *leases.Lease) (*leases.Activate, error) {
	if b.leases.Add(l) {
		b.mu.Lock()
		s := b.jobs[l.Job]
		b.mu.Unlock()
		s.Hold(l)
		b.leases.Watch(l)
	}
	return l.Prepay(ctx)
}

// Forgo implements gangs.Money.
func (b buying) Forgo(ctx context.Context, l *leases.Lease, reason string) {
	if b.leases.Get(l.ID) != nil {
		_ = l.Stop(ctx, reason)
	} else {
		b.pay.Retire(pay.LeaseOf(l))
	}
	l.Cancel()
}

// Commit implements gangs.Money.
func (b buying) Commit(hold market.HoldID, p sign.Key, most market.Amount) (back func(), over string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if over := (spending(b)).overProvider(p, most, time.Now()); over != "" {
		return func() {}, over
	}
	b.drafted[hold] = promise{p, most}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.drafted, hold)
	}, ""
}

// OverProvider implements selection.Limits.
func (b buying) OverProvider(p sign.Key, most market.Amount) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return spending(b).overProvider(p, most, time.Now())
}

// used winds up an order if no lease of it can cost anything and no more are being taken.
func (b buying) used(job string, o market.OrderID) {
	if !b.leases.InUse(o) {
		b.pay.Unused(job, o)
	}
}

// keeping is the buyer as its leases see it.
type keeping struct{ *Buyer }

// Filed implements leases.Observer.
func (b keeping) Filed(l market.Lease, units []market.UnitID, r leases.Receipt) {
	b.cfg.Filed(l, units, r)
}

// Settled implements leases.Observer.
func (b keeping) Settled(l *leases.Lease) {
	b.pay.Retire(pay.LeaseOf(l))
	buying(b).used(l.Job, l.Core.Order)
	if s, err := b.get(l.Job); err == nil {
		s.lines.Cost(l)
	}
}
