package changes

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// Scale gives a cluster that runs another size. New members are ordered all or none, within the job's money; of a
// smaller one the highest ranks are ended, as gracefully as a stop. It gives the job another budget for it, not below
// the one it has; 0 leaves the budget to follow the size as it does. With the size that the cluster has, the budget
// alone is another.
//
// Scale returns a channel with the result: when the cluster has that size, or has kept its own and its budget. It
// returns ErrRefused for jobs that cannot be scaled. The result is ErrNotRunning for a cluster that does not run, and
// ErrFunds or ErrLimit where money forbids it.
func (c *Changes) Scale(n uint32, budget market.Amount, start func(func()) error) (<-chan error, error) {
	if j := c.Peek(); j.Cluster == nil {
		return nil, fmt.Errorf("%w: job %s is no cluster", record.ErrRefused, j.ID)
	}
	if n < 1 || n > cluster.MaxMembers {
		return nil, fmt.Errorf("%w: a cluster has 1 to %d members, not %d", record.ErrRefused, cluster.MaxMembers, n)
	}
	if !c.turn.TryAcquire(1) {
		return nil, fmt.Errorf("%w: the cluster is being scaled, or its job made longer; try again when that is done",
			record.ErrRefused)
	}
	done := make(chan error, 1)
	err := start(func() { // the caller may go away meanwhile
		defer c.turn.Release(1)
		done <- c.scale(int(n), budget)
	})
	if err != nil {
		c.turn.Release(1)
	}
	return done, err
}

// scale brings the cluster to n members. It returns when it has them, or has kept its own.
func (c *Changes) scale(n int, budget market.Amount) error {
	j := c.Snapshot()
	format, from := c.cfg.Genesis.FormatAmount, len(j.Ranks)
	switch has := j.Spec.Payment.Budget; {
	case j.State != record.Running || j.Stopping:
		return fmt.Errorf("%w: the cluster is %s", record.ErrNotRunning, j.State)
	case n == from && budget == 0:
		return nil
	case n < from && budget > 0:
		return fmt.Errorf("%w: a smaller cluster needs no more money; leave the budget out", record.ErrRefused)
	case budget > 0 && budget < has:
		return fmt.Errorf("%w: a budget of %s is less than the cluster has, %s", record.ErrRefused, format(budget),
			format(has))
	}
	if err := j.Engine().CheckScale(j.Spec.Cluster.Options, j.Cluster.Begun, uint32(n)); err != nil && n != from {
		return fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	spec, err := j.Resized(n)
	if err == nil && budget > 0 {
		spec, err = spec.With(job.Changes{Budget: &budget})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	if n >= from {
		if err := c.affordScale(spec, n); err != nil {
			return err
		}
	}
	err = c.scaleTo(spec, n >= from)
	switch {
	case errors.Is(err, jobs.ErrBusy):
		return fmt.Errorf("%w: the cluster is being scaled, or its job made longer; try again when that is done",
			record.ErrRefused)
	case errors.Is(err, jobs.ErrNotRunning):
		return fmt.Errorf("%w: the cluster is %s", record.ErrNotRunning, c.Snapshot().State)
	case errors.Is(err, jobs.ErrBudget):
		err = fmt.Errorf("%w: more members cost more; scale it with a higher budget (--budget)", err)
		return fmt.Errorf("%w: the cluster keeps its %d members: %w", record.ErrRefused, from, err)
	case errors.Is(err, jobs.ErrScale):
		return fmt.Errorf("%w: the cluster keeps its %d members: %w", record.ErrRefused, from, err)
	}
	return err
}

// affordScale refuses a size that the wallet cannot pay, and makes room for the new members.
func (c *Changes) affordScale(spec job.Job, n int) error {
	need, err := record.MostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	// The peer stops no sooner than its chain has answered.
	if err := c.cfg.Wallet.Afford(c.Context(), c.ID, need, spec.Count); err != nil {
		return err
	}
	return c.MakeRoom(n)
}

// scaleTo requests another size from the machine, and waits until it is reached.
func (c *Changes) scaleTo(spec job.Job, more bool) error {
	return c.Request(c.Context(), func(req jobs.Req) error {
		ask := func() error {
			ev := jobs.ScaleRequested{Req: req, Count: spec.Count, Budget: spec.Payment.Budget}
			_, err := c.Ask(c.Context(), run.Event{Ev: ev})
			return err
		}
		if more {
			return c.cfg.Limits.Within(c.Job, spec, ask)
		}
		return ask()
	})
}
