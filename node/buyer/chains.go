package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
)

// chains are the leases of a job, each with the successors that make it longer.
type chains struct{ *driver }

// factOf is the lease as the job's machine knows it.
func factOf(l *leases.Lease) jobs.Lease {
	core := l.Core
	return jobs.Lease{
		ID: l.ID, Chain: l.First, Rank: core.Rank, Epoch: core.RankEpoch, Provider: core.Provider,
		End: core.End, Rate: core.Rate,
		Most: l.Most(), Open: !l.Done(), Usable: l.Usable(),
	}
}

// watch reports to the job's machine when the line of a lease can be used no longer, unless another peer commands it.
func (c chains) watch(l *leases.Lease) {
	context.AfterFunc(l.Context(), func() {
		select {
		case <-l.Left:
			return
		default:
		}
		cause, why := causeOf(l)
		c.post(jobs.LeaseLost{Chain: l.First, Cause: cause, Reason: why})
	})
}

// causeOf is why the lease's line is over.
func causeOf(l *leases.Lease) (jobs.Cause, string) {
	why := l.LostReason()
	away, ahead, unpaid := l.Outage()
	switch {
	case unpaid:
		why = fmt.Sprintf("this peer was away for %v, longer than the %v that it had paid ahead: %s", away, ahead, why)
		return jobs.CauseAbsent, why
	case l.Condemned():
		return jobs.CauseCondemned, why
	case l.Absent():
		return jobs.CauseAbsent, why
	case l.Record().Void:
		return jobs.CauseVoid, why
	case l.Spent():
		return jobs.CauseExpired, why
	}
	return jobs.CauseDefaulted, why
}

// end ends the open leases of a line. Each lease's cost is reported, as soon as it can grow no more and once it is
// settled.
func (c chains) end(fx jobs.EndLease) {
	c.s.mu.Lock()
	orderly := c.phase >= jobs.Stopping
	c.s.mu.Unlock()
	run := c.commanded()
	c.b.wg.Go(func() {
		l := c.chain(fx.Chain)
		if l == nil {
			return
		}
		for _, o := range l.Open() {
			if orderly { // its provider sends the last receipt
				o.Release(run, fx.Reason)
			} else {
				c.b.wg.Go(func() { o.Release(run, fx.Reason) })
			}
			for o.Stop(run, fx.Reason) != nil {
				if pause(run, journalRetry) != nil {
					return
				}
			}
		}
		for _, o := range l.Chain() {
			c.costs(o)
		}
	})
}

// costs reports the cost of a lease, so far or at most.
func (c chains) costs(l *leases.Lease) {
	c.post(jobs.LeaseCost{Lease: l.ID, Most: l.Most(), Settled: l.Done()})
}

// fault reports a provider's fault to its reputation.
func (c chains) fault(fx jobs.ReportFault) {
	l := c.chain(fx.Chain)
	if l == nil {
		return
	}
	var begun time.Time
	c.s.mu.Lock()
	if i := int(l.Core.Rank); i < len(c.s.job.Ranks) {
		begun = c.s.job.Ranks[i].Begun
	}
	c.s.mu.Unlock()
	c.b.wg.Go(func() { c.b.cfg.Reputation.Failed(l.Core, l.Loss(begun)) })
}

// renew asks the provider of a lease for a successor until it has answered.
func (c chains) renew(fx jobs.RenewLease) {
	run := c.commanded()
	c.b.wg.Go(func() {
		l := c.chain(fx.Chain)
		var before *leases.Lease
		if l != nil {
			before = l.Find(fx.Of)
		}
		if before == nil {
			c.post(jobs.RenewalRefused{Of: fx.Of, Reason: "the lease was lost meanwhile"})
			return
		}
		core, err := before.Core.Follow(fx.Until)
		if err == nil {
			err = c.succeed(run, before, core)
		}
		if run.Err() != nil && err != nil {
			return // the journal has it
		}
		if err != nil {
			c.post(jobs.RenewalRefused{Of: fx.Of, Reason: record.Clean(err.Error())})
			return
		}
		c.post(jobs.LeaseRenewed{Of: fx.Of, Next: factOf(before.Find(core.ID()))})
	})
}

// succeed gets a successor signed and pays for it. If the provider refuses, a signed successor ends.
func (c chains) succeed(ctx context.Context, before *leases.Lease, core market.LeaseCore) error {
	back := buying{c.b}.Using(c.s.trace.Job, core.Order)
	defer back()
	err := c.s.follow(ctx, before, core)
	if err != nil && ctx.Err() == nil {
		c.s.refused(ctx, core, err)
		if n := before.Find(core.ID()); n != nil { // it may cost its first interval
			f := factOf(n)
			f.Usable = false
			c.post(jobs.GangFormed{Leases: []jobs.Lease{f}})
			c.costs(n)
		}
	}
	return err
}

// chain returns the lease of the job that begins a line, or nil if the job has no such lease.
func (c chains) chain(id market.LeaseID) *leases.Lease {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.chainLocked(id)
}

// chainLocked is chain for a caller that holds the supervisor's mu.
func (c chains) chainLocked(id market.LeaseID) *leases.Lease {
	for _, l := range c.s.paid {
		if l.ID == id {
			return l
		}
	}
	return nil
}
