// Package results has the results of a peer's jobs computed again. Package checks selects the results and the
// providers. The job's machine grants the money, and receives the judgement.
package results

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/checks"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
)

// Config is the surroundings of a Checker. All of it is required but Blocks, Stakes and Disputes.
type Config struct {
	Genesis     market.Genesis
	Store       store.Store
	Clock       run.Clock
	Blocks      Blocks // whose hashes draw the results to check; optional: if nil, none is checked
	Stakes      Stakes
	Disputes    Disputes
	Self, Owner sign.Key // the peer, and the wallet that pays
	Leases      *leases.Book
	Jobs        Jobs
	Reputation  Reputation
	Log         *slog.Logger
}

// The needs of package checks.
type (
	Blocks   = checks.Blocks
	Stakes   = checks.Stakes
	Disputes = checks.Disputes
)

// ErrRoom is returned if too many jobs run. The job may be submitted again later.
var ErrRoom = checks.ErrRoom

// Jobs are the jobs of this peer.
type Jobs interface {
	// Find returns a job by its id, from memory or the archive.
	Find(id string) (*run.Job, error)
	// Job returns a job as shown to its user.
	Job(id string) (record.Job, error)
	// Submit journals a job and starts it.
	Submit(ctx context.Context, sub record.Submission) (record.Job, error)
	// Stop ends a job's work.
	Stop(ctx context.Context, id string) error
}

// Reputation has the reputation of other peers.
type Reputation interface {
	// Failed reports that the provider of a lease broke it, and the loss. The report may repeat.
	Failed(c market.LeaseCore, lost market.Amount)
}

// Checker has results checked.
type Checker struct {
	*checks.Checker
	cfg Config
}

// Open reads the checks that are under way. It starts nothing.
func Open(ctx context.Context, cfg Config) (*Checker, error) {
	c := &Checker{cfg: cfg}
	of := checks.Config{
		Genesis: cfg.Genesis, Store: cfg.Store, Clock: cfg.Clock, Blocks: cfg.Blocks, Jobs: checking{c},
		Stakes: cfg.Stakes, Disputes: cfg.Disputes, Log: cfg.Log,
	}
	of.Buyer.Provider, of.Buyer.Owner = cfg.Self, cfg.Owner
	var err error
	c.Checker, err = checks.New(ctx, of)
	return c, err
}

// CheckJob has the results of a job checked.
func (c *Checker) CheckJob(ctx context.Context, j *run.Job) { c.Check(ctx, checked{j, c}) }

// checking is the jobs of this peer as package checks sees them.
type checking struct{ c *Checker }

// Get implements checks.Jobs.
func (b checking) Get(id string) (checks.Job, error) {
	j, err := b.c.cfg.Jobs.Find(id)
	return checked{j, b.c}, err
}

// Replicate implements checks.Jobs.
func (b checking) Replicate(
	ctx context.Context, spec job.Job, of record.Replica, key, once string,
) (string, error) {
	j, err := b.c.cfg.Jobs.Submit(ctx, record.Submission{Spec: spec, Key: key, Once: once, Replica: &of})
	return j.ID, err
}

// Stop implements checks.Jobs.
func (b checking) Stop(ctx context.Context, id string) error { return b.c.cfg.Jobs.Stop(ctx, id) }

// checked is a job as the checks of its results see it.
type checked struct {
	*run.Job
	c *Checker
}

var _ checks.Job = checked{}

// Save implements checks.Job.
func (c checked) Save(ctx context.Context, change func(*record.Job), steps ...trace.Step) error {
	c.Trace.Add(steps...)
	return c.Job.Save(ctx, change)
}

// Leases implements checks.Job.
func (c checked) Leases() (cores []market.LeaseCore) {
	for _, l := range c.Bought() {
		cores = append(cores, l.Core)
	}
	return cores
}

// errUnleased is returned for a lease that a job does not have.
var errUnleased = errors.New("the job has no such lease")

// Settled implements checks.Job.
func (c checked) Settled(ctx context.Context, id market.LeaseID) (last verify.Receipt, err error) {
	all := c.Bought()
	at := slices.IndexFunc(all, func(l *leases.Lease) bool { return l.ID == id })
	if at < 0 {
		return last, fmt.Errorf("lease %s: %w", id.Short(), errUnleased)
	}
	for _, l := range all[at].Chain() {
		select {
		case <-l.Settled:
		case <-ctx.Done():
			return last, ctx.Err()
		}
		a, err := l.Account(ctx)
		if err != nil {
			return last, err
		}
		if n := len(a.Receipts); n > 0 && a.Receipts[n-1].Final() {
			if r := a.Receipts[n-1]; last.Lease.IsZero() || !r.Output.IsZero() {
				last = r
			}
		}
	}
	return last, nil
}

// Grant implements checks.Job. It requests the money of a replica from the job's machine, once the costs of ended
// replicas are posted to it.
func (c checked) Grant(ctx context.Context, i int, attempt uint32, most market.Amount) (market.Amount, error) {
	for _, v := range c.Snapshot().Verified {
		for _, id := range v.Replicas {
			of, err := c.c.cfg.Jobs.Job(id)
			if r := of.Replica; err == nil && of.State.Ended() && r != nil {
				c.Post(jobs.ReplicaEnded{Rank: uint32(r.Rank), Attempt: r.Attempt, Owed: of.Owed})
			}
		}
	}
	effects, err := c.Ask(ctx, run.Event{Ev: jobs.ReplicaWanted{Rank: uint32(i), Attempt: attempt, Most: most}})
	if err != nil {
		return 0, err
	}
	for _, f := range effects {
		switch f := f.(type) {
		case jobs.BuyReplica:
			return f.Budget, nil
		case jobs.RefuseReplica:
			return 0, fmt.Errorf("%w: %s", record.ErrRefused, f.Reason)
		}
	}
	return 0, fmt.Errorf("%w: no result is to be checked", record.ErrRefused)
}

// Judged implements checks.Job.
func (c checked) Judged(ctx context.Context, v checks.Judgement, changes []store.Put) error {
	c.Trace.Add(v.Step)
	note := func(j *record.Job) {
		v.Verified.Replicas = j.Verified[v.Rank].Replicas
		j.Verified[v.Rank] = v.Verified
	}
	ev := jobs.ResultJudged{
		Rank: uint32(v.Rank), Outputs: files(v.Outputs), Disputed: v.Disputed != "", Reason: v.Disputed,
	}
	if _, err := c.Ask(ctx, run.Event{Ev: ev, Puts: changes, Amend: run.Amend(note)}); err != nil {
		return err
	}
	for _, w := range v.Verified.Verdict.Wrong {
		if l := c.c.cfg.Leases.Get(v.Verified.Verdict.Results[w].Lease); l != nil {
			c.c.cfg.Reputation.Failed(l.Core, l.Loss(time.Time{}))
		}
	}
	return nil
}

// files converts outputs to the form of the job's machine.
func files(outputs []record.Output) (out []jobs.File) {
	for _, o := range outputs {
		out = append(out, jobs.File{Path: o.Path, CID: o.CID, Bytes: o.Size, Tree: o.Tree})
	}
	return out
}
