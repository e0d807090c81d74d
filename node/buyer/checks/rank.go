package checks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/replica"
)

// rank is one rank of a job whose result is checked.
type rank struct {
	*Checker
	job Job
	i   int
}

// verified is how far the check is, as the journal has it.
func (r *rank) verified() record.Verified { return r.job.Snapshot().Verified[r.i] }

// check takes the check from where the journal has it to its end.
func (r *rank) check(ctx context.Context) error {
	v := r.verified()
	if v.Ended() {
		return nil
	}
	c, todo, err := r.begin(ctx, v)
	if err != nil {
		return err
	}
	for {
		var ev replica.Event
		state := []byte(v.Machine)
		for _, e := range todo {
			switch e := e.(type) {
			case replica.Persist:
				state = e.State
			case replica.Ended:
				return r.judge(ctx, state, e.Verdict)
			case replica.AskBeacon:
				if err = r.note(ctx, state, c); err == nil {
					ev, err = r.awaitBlock(ctx, e.From, c)
				}
			case replica.Replicate:
				if err = r.note(ctx, state, c); err == nil {
					ev, err = r.replicate(ctx, e, c)
				}
			}
			if err != nil {
				return err
			}
		}
		now, err := r.now()
		if err != nil {
			return err
		}
		if c, todo, err = c.Step(now, ev); err != nil {
			return err
		}
		if len(todo) == 0 {
			todo = c.Resume()
		}
		v = r.verified()
	}
}

// begin restores the check, or begins it with the result that the provider signed.
func (r *rank) begin(ctx context.Context, v record.Verified) (replica.Check, []replica.Effect, error) {
	if v.Machine != nil {
		c, err := replica.Restore(v.Machine)
		return c, c.Resume(), err
	}
	first, err := r.result(ctx, r.job, r.i)
	if err != nil {
		return replica.Check{}, nil, err
	}
	j := r.job.Snapshot()
	now, err := r.now()
	if err != nil {
		return replica.Check{}, nil, err
	}
	patience := r.cfg.Genesis.SlotsIn(j.Spec.Timeouts.Queue + j.Spec.Timeouts.Run + slack)
	c, todo, err := replica.New(replica.Terms{
		Params: replica.DefaultParams(patience), Trust: r.trust.Of(first.Provider),
		Buyer: r.cfg.Buyer, Nonce: replica.Nonce(j.Nonce),
	}, first.Committed, now)
	if errors.Is(err, replica.ErrTerms) { // the buyer is the provider: it cannot deceive itself
		own := replica.Verdict{
			State: replica.Unverified, Results: []replica.Committed{first.Committed}, Right: -1,
			Reason: "the provider belongs to the buyer",
		}
		return c, []replica.Effect{replica.Ended{Verdict: own}}, nil
	}
	return c, todo, err
}

// step is a line of the trace about the check.
func (r *rank) step(v record.Verified) trace.Step {
	by := v.Verdict.Results[0].Provider.String()
	return trace.Step{At: time.Now(), Kind: trace.Verified, Rank: &r.i, Provider: by, Detail: v.Text()}
}

// note journals where the check stands.
func (r *rank) note(ctx context.Context, state []byte, c replica.Check) error {
	if string(r.verified().Machine) == string(state) {
		return nil
	}
	verdict := c.Verdict()
	return r.job.Save(ctx, func(j *record.Job) {
		x := &j.Verified[r.i]
		x.State, x.Verdict, x.Machine = verdict.State, &verdict, state
	}, r.step(record.Verified{State: verdict.State, Verdict: &verdict}))
}

// late reports whether a check has waited long enough.
func (r *rank) late(c replica.Check) bool {
	now, err := r.now()
	return err == nil && now >= c.Wake()
}

// awaitBlock waits for the block that decides.
func (r *rank) awaitBlock(ctx context.Context, from market.Slot, c replica.Check) (replica.Event, error) {
	for {
		b, err := r.cfg.Blocks.Block(ctx, from)
		if err == nil {
			return replica.BeaconSeen{Beacon: replica.Beacon{Slot: b.Slot, Hash: b.Hash}}, nil
		}
		if !errors.Is(err, chain.ErrNotFound) {
			r.cfg.Log.Debug("the block that draws is not known", "slot", from, "err", err)
		}
		if r.late(c) {
			return replica.Ticked{}, nil
		}
		if err := wait(ctx, max(poll, time.Duration(r.cfg.Genesis.SlotMillis)*time.Millisecond)); err != nil {
			return nil, err
		}
	}
}

// replicate has the rank's work done once more, by a separate job, and returns the result. The job is found by the
// attempt, so that after a crash it is not bought again.
func (r *rank) replicate(ctx context.Context, e replica.Replicate, c replica.Check) (replica.Event, error) {
	if err := wait(ctx, poll*time.Duration(min(mostPolls, e.Attempt*e.Attempt))); err != nil {
		return nil, err
	}
	id, err := r.buy(ctx, e, c)
	if errors.Is(err, record.ErrRefused) {
		return replica.ReplicaFailed{Attempt: e.Attempt, Reason: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	of, err := r.cfg.Jobs.Get(id)
	if err != nil {
		return nil, err
	}
	for {
		j := of.Snapshot()
		if outcome := j.Outcome; j.State == record.Settling || j.State.Ended() {
			if j.State.Ended() {
				outcome = j.State
			}
			return r.ended(ctx, of, e.Attempt, outcome)
		}
		if r.late(c) {
			return replica.Ticked{}, r.cfg.Jobs.Stop(ctx, id)
		}
		if err := wait(ctx, poll); err != nil {
			return nil, err
		}
	}
}

// buy returns the id of the job that does the rank's work for an attempt, submitted once. It waits while there is no
// room for one more.
func (r *rank) buy(ctx context.Context, e replica.Replicate, c replica.Check) (string, error) {
	j := r.job.Snapshot()
	spec, err := record.ReplicaSpec(j, r.i)
	if err != nil {
		return "", fmt.Errorf("%w: %w", record.ErrRefused, err)
	}
	of := record.Replica{Job: j.ID, Rank: r.i, Count: len(j.Ranks), Attempt: e.Attempt, Seed: e.Seed, Not: e.Not}
	for {
		if spec.Payment.Budget, err = r.job.Grant(ctx, r.i, e.Attempt, spec.Payment.Budget); err != nil {
			return "", err
		}
		id, err := r.cfg.Jobs.Replicate(ctx, spec, of, j.Key, fmt.Sprintf("replica/%s/%d/%d", j.ID, r.i, e.Attempt))
		if err == nil {
			return id, r.job.Save(ctx, func(j *record.Job) {
				if x := &j.Verified[r.i]; !slices.Contains(x.Replicas, id) {
					x.Replicas = append(slices.Clone(x.Replicas), id)
				}
			})
		}
		if !errors.Is(err, ErrRoom) || r.late(c) {
			return "", err
		}
		if err := wait(ctx, poll*mostPolls); err != nil {
			return "", err
		}
	}
}

// ended returns the event that the end of a replica makes.
func (r *rank) ended(ctx context.Context, of Job, attempt uint32, outcome record.State) (replica.Event, error) {
	if outcome == record.Succeeded {
		got, err := r.result(ctx, of, 0)
		return replica.ReplicaCommitted{Attempt: attempt, Result: got.Committed}, err
	}
	j := of.Snapshot()
	e := replica.ReplicaFailed{Attempt: attempt, Reason: fmt.Sprintf("replica %s %s: %s", j.ID, outcome, j.Reason)}
	for _, l := range of.Leases() {
		owner, _ := r.owner(ctx, l.Provider, l.Payout)
		e.By = replica.Party{Provider: l.Provider, Owner: owner}
	}
	return e, nil
}

// judge applies a verdict, in one write: the result that is right, the records of the providers, and the outcome if no
// result is right.
func (r *rank) judge(ctx context.Context, state []byte, v replica.Verdict) error {
	gave := r.given(ctx, v)
	evidence, err := r.dissent(ctx, gave)
	if err != nil {
		return err
	}
	out := Judgement{
		Rank: r.i, Verified: record.Verified{State: v.State, Verdict: &v, Evidence: evidence, Machine: state},
	}
	out.Step = r.step(out.Verified)
	if v.Right > 0 && slices.Contains(v.Wrong, 0) && gave[v.Right] != nil {
		out.Outputs = gave[v.Right].outputs
	}
	if v.Right < 0 && differ(v.Results) {
		out.Disputed = fmt.Sprintf("rank %d: %d providers gave different results and no majority agrees",
			r.i, len(v.Results))
	}
	if err := r.trust.Judge(ctx, v, func(changes []store.Put) error {
		return r.job.Judged(ctx, out, changes)
	}); err != nil {
		return err
	}
	for _, w := range v.Wrong {
		r.cfg.Log.Warn("a provider gave a result that a majority of others differs from", "job", r.job.Snapshot().ID,
			"rank", r.i, "provider", v.Results[w].Provider, "evidence", evidence)
	}
	return nil
}

// differ reports whether two results are not the same.
func differ(all []replica.Committed) bool {
	return slices.ContainsFunc(all, func(r replica.Committed) bool { return r.Output != all[0].Output })
}
