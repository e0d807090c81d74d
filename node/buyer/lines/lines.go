// Package lines extends the leases of a job, and ends them.
//
// A line is a lease with the successors that extend it. Its provider signs each successor, and the buyer pays its first
// interval, before its predecessor ends.
package lines

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/gangs"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/p2p"
)

// Config is the surroundings of the lines of all jobs. All of it is required.
type Config struct {
	Host       *p2p.Host
	Genesis    market.Genesis
	Clock      run.Clock
	Leases     *leases.Book
	Money      gangs.Money
	Deposits   Deposits
	Reputation Reputation
	Tasks      leases.Tasks
}

// Deposits has the money that is set aside for leases.
type Deposits interface {
	// Retire takes back the money of a lease that costs nothing more.
	Retire(l pay.Lease)
}

// Reputation has the reputation of other peers.
type Reputation interface {
	// Failed reports that the provider of a lease broke it, and the loss. The report may repeat.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Lines are the lines of one job's leases.
type Lines struct {
	job *run.Job
	cfg *Config
}

// New returns the lines of a job.
func New(cfg *Config, j *run.Job) Lines { return Lines{j, cfg} }

// End ends the open leases of a line. Each lease's cost is reported, as soon as it can grow no more and once it is
// settled.
func (c Lines) End(fx jobs.EndLease) {
	orderly := c.job.Phase() >= jobs.Stopping
	work := c.job.Commanded()
	c.cfg.Tasks.Go(func() {
		l := c.job.Chain(fx.Chain)
		if l == nil {
			return
		}
		for _, o := range l.Open() {
			if orderly { // its provider sends the last receipt
				o.Release(work, fx.Reason)
			} else {
				c.cfg.Tasks.Go(func() { o.Release(work, fx.Reason) })
			}
			for o.Stop(work, fx.Reason) != nil {
				if run.Pause(work, run.Retry) != nil {
					return
				}
			}
		}
		for _, o := range l.Chain() {
			c.Cost(o)
		}
	})
}

// Cost reports the cost of a lease, so far or at most.
func (c Lines) Cost(l *leases.Lease) {
	c.job.Post(jobs.LeaseCost{Lease: l.ID, Most: l.Most(), Settled: l.Done()})
}

// Fault reports a provider's fault to its reputation.
func (c Lines) Fault(fx jobs.ReportFault) {
	l := c.job.Chain(fx.Chain)
	if l == nil {
		return
	}
	var begun time.Time
	if ranks := c.job.Peek().Ranks; int(l.Core.Rank) < len(ranks) {
		begun = ranks[l.Core.Rank].Begun
	}
	c.cfg.Tasks.Go(func() { c.cfg.Reputation.Failed(l.Core, l.Loss(begun)) })
}

// Renew requests a successor from the provider of a lease until it has answered.
func (c Lines) Renew(fx jobs.RenewLease) {
	work := c.job.Commanded()
	c.cfg.Tasks.Go(func() {
		l := c.job.Chain(fx.Chain)
		var before *leases.Lease
		if l != nil {
			before = l.Find(fx.Of)
		}
		if before == nil {
			c.job.Post(jobs.RenewalRefused{Of: fx.Of, Reason: "the lease was lost meanwhile"})
			return
		}
		core, err := before.Core.Follow(fx.Until)
		if err == nil {
			err = c.succeed(work, before, core)
		}
		if work.Err() != nil && err != nil {
			return // the journal has it
		}
		if err != nil {
			c.job.Post(jobs.RenewalRefused{Of: fx.Of, Reason: record.Clean(err.Error())})
			return
		}
		c.job.Post(jobs.LeaseRenewed{Of: fx.Of, Next: run.FactOf(before.Find(core.ID()))})
	})
}
