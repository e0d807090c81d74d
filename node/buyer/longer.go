package buyer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// extend is Extend for a job on its state machine. longer is the job as it is to be.
func (d *driver) extend(
	ctx context.Context, longer Job, by time.Duration,
) (Extension, error) {
	b := d.b
	if _, err := b.cfg.Slots.Now(time.Now()); err != nil {
		return Extension{}, fmt.Errorf("%w: %w; check the chain's RPC endpoint and try again", ErrRefused, err)
	}
	// A budget that is the most that the job can cost grows with its time.
	ask := jobs.ExtendRequested{By: by, Budget: longer.Spec.Payment.Budget}
	var effects []any
	err := d.request(ctx, func(req jobs.Req) (err error) {
		b.mu.Lock() // no other job is taken in between on the same limits
		defer b.mu.Unlock()
		if err = b.withinMore(d.s, longer.Spec, time.Now()); err == nil {
			ask.Req = req
			effects, err = d.ask(context.WithoutCancel(ctx), event{ev: ask})
		}
		return err
	})
	if err != nil {
		err = d.unextended(err, ask)
	}
	if err != nil {
		return Extension{}, err
	}
	b.cfg.Log.Info("job is made longer", "job", d.s.trace.Job, "by", by, "run", longer.Spec.Timeouts.Run)
	asked := map[market.LeaseID]jobs.RenewLease{} // by the first lease of the line
	for _, f := range effects {
		if r, ok := f.(jobs.RenewLease); ok {
			asked[r.Chain] = r
		}
	}
	wait, cancel := context.WithTimeout(ctx, extendWait)
	defer cancel()
	w, err := b.desk.runner.Until(wait, d.s, func(w task) bool {
		return !slices.ContainsFunc(w.Renewals, func(n jobs.Renewal) bool { return asked[n.Chain].Of == n.Of })
	})
	if err != nil && wait.Err() == nil {
		return Extension{}, err
	}
	return d.extensionOf(w.State, asked), nil
}

// unextended is the refusal of an extension for its user.
func (d *driver) unextended(no error, ask jobs.ExtendRequested) error {
	g := d.b.cfg.Genesis
	switch {
	case errors.Is(no, jobs.ErrNotRunning):
		return fmt.Errorf("%w: the job has ended; `starling job rerun` runs it again", ErrNotRunning)
	case errors.Is(no, jobs.ErrBusy):
		return fmt.Errorf("%w: providers are still being asked for the last extension; try again when they have "+
			"answered", ErrRefused)
	case errors.Is(no, jobs.ErrBudget):
		w, _, err := d.b.desk.runner.Get(d.s)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRefused, no)
		}
		more, have, total := w.extra(d.b.desk, ask), w.Promised(), max(w.Params.Budget, ask.Budget)
		return fmt.Errorf("%w: the longer leases can cost %s more, and of payment.budget %s are %s left; say "+
			"--budget %s or more", ErrRefused,
			g.FormatAmount(more), g.FormatAmount(total), g.FormatAmount(total-min(have, total)),
			g.FormatAmount(have.Plus(more)))
	}
	return no
}

// extra is the cost of an extension that the budget does not pay, with another budget.
func (w task) extra(desk *desk, ask jobs.ExtendRequested) (sum market.Amount) {
	now, err := desk.now()
	if err != nil {
		return 0
	}
	ask.Budget = math.MaxUint64
	_, effects, err := w.State.Step(now, ask)
	if err != nil {
		return 0
	}
	for _, f := range effects {
		if r, ok := f.(jobs.RenewLease); ok {
			sum = sum.Plus(r.Cap)
		}
	}
	return sum
}

// extensionOf returns the result of an extension, as far as it is known. asked are the leases for which successors were
// asked, by the first lease of their line.
func (d *driver) extensionOf(st jobs.State, asked map[market.LeaseID]jobs.RenewLease) Extension {
	j := d.s.snapshot()
	out := Extension{Job: j.ID, Run: job.Span(j.Spec.Timeouts.Run), Until: j.Until(), Budget: j.Spec.Payment.Budget}
	now, _ := d.b.desk.now() // never fails
	for i, r := range st.Ranks {
		k := ExtendedRank{Rank: i, Provider: r.Provider, State: record.NoLease}
		var end market.Slot
		for _, l := range st.Leases {
			if l.Chain == r.Lease && l.Open && l.Usable {
				end = max(end, l.End)
			}
		}
		if end > 0 {
			k.Until, k.State = d.s.timeOf(now.Slot, end), record.LongEnough
		}
		a, ok := asked[r.Lease]
		switch {
		case r.State == jobs.RankDone && st.Round+1 >= st.Params.Rounds:
			k.State = record.LongEnough
		case !ok || r.Lease.IsZero():
		case slices.ContainsFunc(st.Renewals, func(n jobs.Renewal) bool { return n.Of == a.Of }):
			k.State = record.Extending
		case r.Unextended != "":
			k.State, k.Reason = record.NotExtended, r.Unextended
		default:
			k.State, k.Extra = record.Extended, a.Cap
		}
		out.Ranks = append(out.Ranks, k)
	}
	return out
}
