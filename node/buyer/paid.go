package buyer

import (
	"context"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
)

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
