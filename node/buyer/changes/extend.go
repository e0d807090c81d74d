// Package changes changes running jobs: it gives them more time, another budget, or another size.
//
// A change is checked as a new job is, against the wallet and the limits of the day. The job's machine then decides on
// it, so that neither is passed by two changes at once.
package changes

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/job"
)

// Config is the surroundings of the changes of all jobs. All of it is required.
type Config struct {
	Genesis market.Genesis
	Runner  *run.Runner
	Clock   run.Clock
	Wallet  Wallet
	Limits  Limits
	Log     *slog.Logger
}

// Wallet is the money that pays for jobs.
type Wallet interface {
	// Afford returns an error if the wallet cannot pay need, the most that the job can cost, with that many leases at a
	// time.
	Afford(ctx context.Context, job string, need market.Amount, leases uint32) error
}

// Limits are the limits on the spending of a day.
type Limits interface {
	// Within runs change if the limits allow a job to become spec. Meanwhile the job counts against them as spec. It is
	// called for one change of a job at a time. It returns the limit that does not allow it, or the error of change.
	Within(j *run.Job, spec job.Job, change func() error) error
}

// Changes are the changes of one job, one at a time. No lock is held while the chain and providers are asked: readers
// and other jobs wait for no change.
type Changes struct {
	*run.Job
	cfg *Config

	turn *semaphore.Weighted
}

// New returns the changes of a job.
func New(cfg *Config, j *run.Job) *Changes {
	return &Changes{Job: j, cfg: cfg, turn: semaphore.NewWeighted(1)}
}

// extendWait is how long the answer to Extend waits for providers. Requests to slower providers continue after the
// answer.
const extendWait = 8 * time.Second

// Extend gives the job more time and, unless budget is zero, another budget. Its leases are extended where their
// providers agree, and no program restarts. It waits for an earlier change. It returns ErrNotRunning for an ended job,
// and ErrRefused, ErrFunds or ErrLimit if money or limits do not allow it.
func (c *Changes) Extend(ctx context.Context, by time.Duration, budget market.Amount) (record.Extension, error) {
	if err := c.turn.Acquire(ctx, 1); err != nil {
		return record.Extension{}, err
	}
	defer c.turn.Release(1)
	j := c.Snapshot()
	if j.State == record.Settling || j.State.Ended() || j.Stopping {
		return record.Extension{}, fmt.Errorf("%w: the job has %s; `starling job rerun` runs it again",
			record.ErrNotRunning, j.State.Past())
	}
	longer, err := c.longer(ctx, j, by, budget)
	if err != nil {
		return record.Extension{}, err
	}
	return c.extend(ctx, longer, by)
}

// longer is the job with more time, checked as a new one is.
func (c *Changes) longer(
	ctx context.Context, j record.Job, by time.Duration, budget market.Amount,
) (record.Job, error) {
	if by < job.MinTime || by > job.MaxRun {
		return j, fmt.Errorf("%w: %v more is not between %v and %v", record.ErrRefused, by, job.MinTime, job.MaxRun)
	}
	span := job.Span(j.Spec.Timeouts.Run + by)
	to := job.Changes{Run: &span}
	if budget > 0 {
		if budget < j.Spec.Payment.Budget {
			return j, fmt.Errorf("%w: a budget of %s is less than the job has, %s", record.ErrRefused,
				c.cfg.Genesis.FormatAmount(budget), c.cfg.Genesis.FormatAmount(j.Spec.Payment.Budget))
		}
		to.Budget = &budget
	}
	spec, err := j.Spec.With(to)
	if err != nil {
		return j, fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	need, err := record.MostCost(spec)
	if err != nil {
		return j, fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	if err := c.cfg.Wallet.Afford(ctx, j.ID, need, spec.Count); err != nil {
		return j, err
	}
	j.Spec = spec
	return j, nil
}

// timeOf is when a slot begins, by the nominal length of slots.
func (c *Changes) timeOf(now, slot market.Slot) time.Time {
	one := time.Duration(c.cfg.Genesis.SlotMillis) * time.Millisecond
	return time.Now().Add(time.Duration(int64(slot)-int64(now)) * one).Round(time.Second)
}
