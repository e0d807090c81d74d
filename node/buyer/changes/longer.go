package changes

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
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/job"
)

// extend requests more time from the job's machine. longer is the extended job.
func (c *Changes) extend(ctx context.Context, longer record.Job, by time.Duration) (record.Extension, error) {
	if _, err := c.cfg.Clock.Now(time.Now()); err != nil {
		return record.Extension{}, fmt.Errorf("%w: %w; check the chain's RPC endpoint and try again",
			record.ErrRefused, err)
	}
	// A budget that is the most that the job can cost grows with its time.
	ask := jobs.ExtendRequested{By: by, Budget: longer.Spec.Payment.Budget}
	var effects []any
	err := c.Request(ctx, func(req jobs.Req) error {
		return c.cfg.Limits.Within(c.Job, longer.Spec, func() (err error) {
			ask.Req = req
			effects, err = c.Ask(context.WithoutCancel(ctx), run.Event{Ev: ask})
			return err
		})
	})
	if err != nil {
		err = c.unextended(err, ask)
	}
	if err != nil {
		return record.Extension{}, err
	}
	c.cfg.Log.Info("job is made longer", "job", c.ID, "by", by, "run", longer.Spec.Timeouts.Run)
	asked := map[market.LeaseID]jobs.RenewLease{} // by the first lease of the line
	for _, f := range effects {
		if r, ok := f.(jobs.RenewLease); ok {
			asked[r.Chain] = r
		}
	}
	wait, cancel := context.WithTimeout(ctx, extendWait)
	defer cancel()
	st, err := c.Until(wait, func(st jobs.State) bool {
		return !slices.ContainsFunc(st.Renewals, func(n jobs.Renewal) bool { return asked[n.Chain].Of == n.Of })
	})
	if err != nil && wait.Err() == nil {
		return record.Extension{}, err
	}
	return c.extensionOf(st, asked), nil
}

// unextended is the refusal of an extension for its user.
func (c *Changes) unextended(no error, ask jobs.ExtendRequested) error {
	g := c.cfg.Genesis
	switch {
	case errors.Is(no, jobs.ErrNotRunning):
		return fmt.Errorf("%w: the job has ended; `starling job rerun` runs it again", record.ErrNotRunning)
	case errors.Is(no, jobs.ErrBusy):
		return fmt.Errorf("%w: providers are still being asked for the last extension; try again when they have "+
			"answered", record.ErrRefused)
	case errors.Is(no, jobs.ErrBudget):
		st, err := c.State()
		if err != nil {
			return fmt.Errorf("%w: %w", record.ErrRefused, no)
		}
		more, have, total := extra(c.cfg.Runner, st, ask), st.Promised(), max(st.Params.Budget, ask.Budget)
		return fmt.Errorf("%w: the longer leases can cost %s more, and of payment.budget %s are %s left; say "+
			"--budget %s or more", record.ErrRefused,
			g.FormatAmount(more), g.FormatAmount(total), g.FormatAmount(total-min(have, total)),
			g.FormatAmount(have.Plus(more)))
	}
	return no
}

// extra is the cost of an extension that the budget does not pay, with another budget.
func extra(r *run.Runner, st jobs.State, ask jobs.ExtendRequested) (sum market.Amount) {
	now, err := r.Now()
	if err != nil {
		return 0
	}
	ask.Budget = math.MaxUint64
	_, effects, err := st.Step(now, ask)
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

// extensionOf returns the known result of an extension. asked has the leases with requested successors, by the first
// lease of their line.
func (c *Changes) extensionOf(st jobs.State, asked map[market.LeaseID]jobs.RenewLease) record.Extension {
	j := c.Snapshot()
	out := record.Extension{
		Job: j.ID, Run: job.Span(j.Spec.Timeouts.Run), Until: j.Until(), Budget: j.Spec.Payment.Budget,
	}
	now, _ := c.cfg.Runner.Now() // never fails
	for i, r := range st.Ranks {
		k := record.ExtendedRank{Rank: i, Provider: r.Provider, State: record.NoLease}
		var end market.Slot
		for _, l := range st.Leases {
			if l.Chain == r.Lease && l.Open && l.Usable {
				end = max(end, l.End)
			}
		}
		if end > 0 {
			k.Until, k.State = c.timeOf(now.Slot, end), record.LongEnough
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
