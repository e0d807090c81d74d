package buyer

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/verify/meter"
)

// fact is the lease as the job's machine knows it.
func (l *bought) fact() jobs.Lease {
	l.mu.Lock()
	state, held := l.payer.State(), l.rec.Active && l.rec.Reason == ""
	l.mu.Unlock()
	c := l.core
	return jobs.Lease{
		ID: l.id, Chain: l.first, Rank: c.Rank, Epoch: c.RankEpoch, Provider: c.Provider, End: c.End, Rate: c.Rate,
		Most: l.most(), Open: state != meter.PayerSettled, Usable: held && state == meter.PayerPaying && l.alive(),
	}
}

// watchLine reports to the job's machine when the line of a lease can be used no longer.
func (s *supervisor) watchLine(l *bought) {
	context.AfterFunc(l.line.ctx, func() {
		cause, why := l.cause()
		s.post(jobs.LeaseLost{Chain: l.first, Cause: cause, Reason: why})
	})
}

// cause is why the lease's line is over.
func (l *bought) cause() (jobs.Cause, string) {
	why := l.lostReason()
	away, ahead, unpaid := l.end().outage()
	l.mu.Lock()
	void := l.rec.Void
	l.mu.Unlock()
	switch {
	case unpaid:
		why = fmt.Sprintf("this peer was away for %v, longer than the %v that it had paid ahead: %s", away, ahead, why)
		return jobs.CauseAbsent, why
	case l.shared():
		return jobs.CauseCondemned, why
	case l.away():
		return jobs.CauseAbsent, why
	case void:
		return jobs.CauseVoid, why
	case l.spent():
		return jobs.CauseExpired, why
	}
	return jobs.CauseDefaulted, why
}

// endLease ends the open leases of a line. Each lease's cost is reported, as soon as it can grow no more and once it is
// settled.
func (s *supervisor) endLease(fx jobs.EndLease) {
	s.mu.Lock()
	orderly := s.phase >= jobs.Stopping
	s.mu.Unlock()
	s.b.wg.Go(func() {
		l := s.chain(fx.Chain)
		if l == nil {
			return
		}
		run := s.b.desk.ctx
		for _, o := range l.open() {
			if orderly { // its provider sends the last receipt
				s.b.tell(run, o, fx.Reason)
			} else {
				s.b.wg.Go(func() { s.b.tell(run, o, fx.Reason) })
			}
			for o.stopPaying(run, fx.Reason) != nil {
				if pause(run, journalRetry) != nil {
					return
				}
			}
		}
		for _, o := range l.all() {
			s.costs(o)
		}
	})
}

// costs reports what a lease has cost, or can still cost.
func (s *supervisor) costs(l *bought) {
	s.post(jobs.LeaseCost{Lease: l.id, Most: l.most(), Settled: l.state() == meter.PayerSettled})
}

// reportFault reports a provider's fault to its reputation.
func (s *supervisor) reportFault(fx jobs.ReportFault) {
	l := s.chain(fx.Chain)
	if l == nil {
		return
	}
	var begun time.Time
	s.mu.Lock()
	if i := int(l.core.Rank); i < len(s.job.Ranks) {
		begun = s.job.Ranks[i].Begun
	}
	s.mu.Unlock()
	s.b.wg.Go(func() { s.b.cfg.Reputation.Failed(l.core, l.loss(begun)) })
}

// renewLease asks the provider of a lease for a successor until it has answered.
func (s *supervisor) renewLease(fx jobs.RenewLease) {
	s.b.wg.Go(func() {
		run, l := s.b.desk.ctx, s.chain(fx.Chain)
		var before *bought
		if l != nil {
			for _, o := range l.all() {
				if o.id == fx.Of {
					before = o
				}
			}
		}
		if before == nil {
			s.post(jobs.RenewalRefused{Of: fx.Of, Reason: "the lease was lost meanwhile"})
			return
		}
		core, err := before.core.Follow(fx.Until)
		if err == nil {
			err = s.succeed(run, before, core)
		}
		if run.Err() != nil && err != nil {
			return // the journal has it
		}
		if err != nil {
			s.post(jobs.RenewalRefused{Of: fx.Of, Reason: clip(err.Error())})
			return
		}
		s.post(jobs.LeaseRenewed{Of: fx.Of, Next: before.after(core).fact()})
	})
}

// succeed has a successor signed and paid for. One that is refused ends.
func (s *supervisor) succeed(ctx context.Context, before *bought, core market.LeaseCore) error {
	back := s.b.using(s.trace.Job, core.Order)
	defer back()
	err := s.follow(ctx, before, core)
	if err != nil && ctx.Err() == nil {
		s.refused(ctx, core, err)
		if n := before.after(core); n != nil { // it may cost its first interval
			f := n.fact()
			f.Usable = false
			s.post(jobs.GangFormed{Leases: []jobs.Lease{f}})
			s.costs(n)
		}
	}
	return err
}

// closeAccount takes back what the job has set aside and does not owe, and anchors its receipts.
func (s *supervisor) closeAccount() {
	s.b.wg.Go(func() {
		run := s.b.desk.ctx
		for {
			err := s.settleWork(run)
			if err == nil || run.Err() != nil {
				return
			}
			s.b.cfg.Log.Error("settling failed; trying again", "job", s.trace.Job, "err", err)
			if pause(run, journalRetry) != nil {
				return
			}
		}
	})
}

// settleWork settles the job once.
func (s *supervisor) settleWork(ctx context.Context) error {
	leases := s.bought()
	var last anchoring
	var total market.Amount
	owed := func(ctx context.Context) (of anchoring, err error) {
		of, total, err = s.owed(ctx, leases)
		if err != nil {
			return of, err
		}
		last = of
		s.mu.Lock()
		s.job.Owed, s.job.Receipts = total, int(of.Receipts)
		s.mu.Unlock()
		s.trace.Poke()
		return of, nil
	}
	if _, err := owed(ctx); err != nil {
		return err
	}
	paid, anchored, err := s.b.pay.settle(ctx, s.trace.Job, leases, owed)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if total > 0 {
		amount := s.b.cfg.Genesis.FormatAmount(paid)
		s.trace.Add(Step{At: time.Now(), Kind: StepPaid, Detail: amount + " are the providers', claimed or to be claimed"})
	}
	s.mu.Lock()
	s.job.Transactions = anchored
	s.mu.Unlock()
	s.post(
		jobs.AccountCounted{Owed: total, Receipts: last.Receipts},
		jobs.ReceiptsAnchored{Tx: append(anchored, "")[0]},
		jobs.EscrowReleased{Paid: paid},
	)
	return nil
}
