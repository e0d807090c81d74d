package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/checks"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

// checking is the buyer as the checks of results see it.
type checking struct{ *Buyer }

func newChecks(ctx context.Context, b *Buyer) (*checks.Checker, error) {
	cfg := checks.Config{
		Genesis: b.cfg.Genesis, Store: b.cfg.Store, Clock: b.cfg.Slots, Blocks: b.cfg.Blocks, Jobs: checking{b},
		Stakes: b.cfg.Stakes, Disputes: b.cfg.Disputes, Log: b.cfg.Log,
	}
	cfg.Buyer.Provider, cfg.Buyer.Owner = b.self, b.cfg.Owner
	return checks.New(ctx, cfg)
}

// Get implements checks.Jobs.
func (b checking) Get(id string) (checks.Job, error) {
	s, err := b.get(id)
	return checked{s}, err
}

// Replicate implements checks.Jobs.
func (b checking) Replicate(ctx context.Context, spec job.Job, of record.Replica, key, once string) (string, error) {
	j, err := b.Submit(ctx, Submission{Spec: spec, Key: key, Once: once, Replica: &of})
	return j.ID, err
}

// Stop implements checks.Jobs.
func (b checking) Stop(ctx context.Context, id string) error { return b.Buyer.Stop(ctx, id) }

// checked is a job as the checks of its results see it.
type checked struct{ *supervisor }

var _ checks.Job = checked{}

// Snapshot implements checks.Job.
func (c checked) Snapshot() Job { return c.supervisor.Snapshot() }

// Save implements checks.Job.
func (c checked) Save(ctx context.Context, change func(*Job), steps ...trace.Step) error {
	c.Trace.Add(steps...)
	return c.supervisor.Save(ctx, change)
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
func (c checked) Settled(ctx context.Context, id market.LeaseID) (last leases.Receipt, err error) {
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

// Grant implements checks.Job. It asks the job's machine for the money of a replica, once the costs of those that have
// ended are known to it.
func (c checked) Grant(ctx context.Context, i int, attempt uint32, most market.Amount) (market.Amount, error) {
	for _, v := range c.Snapshot().Verified {
		for _, id := range v.Replicas {
			of, err := c.b.Job(id)
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
			return 0, fmt.Errorf("%w: %s", ErrRefused, f.Reason)
		}
	}
	return 0, fmt.Errorf("%w: no result is to be checked", ErrRefused)
}

// Judged implements checks.Job.
func (c checked) Judged(ctx context.Context, v checks.Judgement, changes []store.Put) error {
	c.Trace.Add(v.Step)
	note := func(j *Job) {
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
		if l := c.b.leases.Get(v.Verified.Verdict.Results[w].Lease); l != nil {
			c.b.cfg.Reputation.Failed(l.Core, l.Loss(time.Time{}))
		}
	}
	return nil
}

// files are outputs as the job's machine knows them.
func files(outputs []Output) (out []jobs.File) {
	for _, o := range outputs {
		out = append(out, jobs.File{Path: o.Path, CID: o.CID, Bytes: o.Size, Tree: o.Tree})
	}
	return out
}
