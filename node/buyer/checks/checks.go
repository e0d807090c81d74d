// Package checks has the results of a job computed again, and judges them.
//
// The check of each rank is a state machine, verify/replica. A block of the chain draws whether the result is computed
// again. A replica is a normal job, bought from the provider that the draw names. The results of a majority are right.
// This package carries out the effects of these machines, and journals their states before anything that depends on
// them leaves the peer.
//
//	            ┌──────────────── event: block seen, replica committed or failed, time over ◀──┐
//	            ▼                                                                              │
//	replica.Check.Step ──▶ state into the job's record ──▶ effect: await the block, buy a replica
//	                   └─▶ verdict, trust in the providers and the job's outcome, in one write
//
// The state has no journal of its own: it is a part of the job's record, which the job's machine writes
// (node/buyer/run). So the verdict counts for the providers exactly once, and a job and its checks never differ after a
// crash. A check has one goroutine and holds no lock. An effect is repeated after a crash: a replica is found by its
// attempt.
package checks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/buyer/trust"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/replica"
)

const (
	// atOnce is how many ranks of a job are checked at a time, so that the replicas of one job leave room for others.
	atOnce = 4
	// slack is how much longer than a job's own times a replica is waited for: its last receipt, and the chain.
	slack = 5 * time.Minute
	// poll is the interval of polls of the chain for a block, and of a replica's state.
	poll = 250 * time.Millisecond
	// mostPolls is the maximum number of polls between two attempts, as the interval grows.
	mostPolls = 32
	// retry is the delay after which a check continues after a failure of the journal.
	retry = time.Second
)

// ErrRoom is returned for a replica that cannot be taken now, and may be when another job has ended.
var ErrRoom = errors.New("no room")

// Job is a job with results.
type Job interface {
	Snapshot() record.Job
	// Save changes the record of the job and journals it. The trace has the steps first.
	Save(ctx context.Context, change func(*record.Job), steps ...trace.Step) error
	// Leases returns the cores of the job's leases, by rank, by epoch and by id.
	Leases() []market.LeaseCore
	// Settled waits until a lease and its successors are settled, and returns the last final receipt with an output, or
	// else the first final receipt. It returns zero if there is none.
	Settled(ctx context.Context, lease market.LeaseID) (verify.Receipt, error)
	// Grant sets aside an amount up to most for a replica of a rank's result, and returns the amount. An error that
	// wraps record.ErrRefused is a refusal.
	Grant(ctx context.Context, rank int, attempt uint32, most market.Amount) (market.Amount, error)
	// Judged journals a verdict, in one write with the changes, and reports the providers that gave wrong results.
	Judged(ctx context.Context, v Judgement, changes []store.Put) error
}

// Judgement is the verdict on the result of a rank.
type Judgement struct {
	Rank     int
	Verified record.Verified // without the ids of the replicas, which the record has
	Outputs  []record.Output // the right ones, where they are others than the rank's own
	Disputed string          // why the job fails: no majority of the results agrees; "" if it does not fail
	Step     trace.Step
}

// Jobs has the jobs of the peer. Replicas are among them.
type Jobs interface {
	Get(id string) (Job, error)
	// Replicate submits a replica, once, and returns its id. once names the attempt, key is the API key of the checked
	// job. It returns an error that wraps record.ErrRefused, and ErrRoom, for a job that is not taken.
	Replicate(ctx context.Context, spec job.Job, of record.Replica, key, once string) (id string, err error)
	Stop(ctx context.Context, id string) error
}

// Stakes has the stakes of providers.
type Stakes interface {
	// Bond returns the wallet of a provider and its stake there; zero: none.
	Bond(ctx context.Context, provider sign.Key) (owner sign.Key, stake market.Amount, err error)
}

// Disputes keeps proofs that providers signed different results.
type Disputes interface {
	// KeepDispute journals a proof, once, and returns its id.
	KeepDispute(ctx context.Context, d replica.Dissent) (string, error)
}

// Blocks has the blocks of the chain.
type Blocks interface{ chain.Blocks }

// Clock has the chain's slot at a time.
type Clock interface {
	Now(t time.Time) (market.Slot, error)
}

// Config has the services of a Checker. All are required, except Stakes.
type Config struct {
	Genesis  market.Genesis
	Buyer    replica.Party // this peer, and its owner
	Store    journal.Store // has the trust in providers
	Clock    Clock
	Blocks   Blocks // whose hashes draw the results to check; optional: if nil, none is checked
	Jobs     Jobs
	Stakes   Stakes // optional; if nil, no provider counts as staked
	Disputes Disputes
	Log      *slog.Logger
}

// Checker checks the results of jobs.
type Checker struct {
	cfg   Config
	trust *trust.Book
}

// New returns a checker with the trust in providers that an earlier process left.
func New(ctx context.Context, cfg Config) (*Checker, error) {
	book, err := trust.Load(ctx, cfg.Store)
	return &Checker{cfg, book}, err
}

// Check checks the results of all ranks of a job that are not checked yet. It returns when all are checked, or ctx has
// ended.
func (c *Checker) Check(ctx context.Context, j Job) {
	var g errgroup.Group
	g.SetLimit(atOnce)
	id := j.Snapshot().ID
	for i := range j.Snapshot().Ranks {
		r := &rank{c, j, i}
		g.Go(func() error {
			for {
				err := r.check(ctx)
				if err == nil || ctx.Err() != nil {
					return nil
				}
				c.cfg.Log.Error("checking a result failed; trying again", "job", id, "rank", i, "err", err)
				if wait(ctx, retry) != nil {
					return nil
				}
			}
		})
	}
	_ = g.Wait() // never fails
}

// now is the chain's slot.
func (c *Checker) now() (market.Slot, error) { return c.cfg.Clock.Now(time.Now()) }

// wait returns after d, or with the error of a context that ends before.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
