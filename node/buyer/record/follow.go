package record

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
)

// Follow brings the job up to a state of its machine. The values that the machine does not have stay. lost has, by
// rank, why the last lease was lost, or "".
func (j *Job) Follow(g market.Genesis, st jobs.State, lost []string) {
	j.State, j.Started, j.Finished, j.Ended = StateOf(st), st.Started, st.Finished, st.Ended
	j.Round = int(st.Round)
	j.Spec.Timeouts.Run, j.Spec.Payment.Budget = st.Params.Run, st.Params.Budget
	j.Extended, j.Paused, j.Lost = int(st.Extended), st.Paused, st.Avoid
	j.Stopping = st.WantStop || st.Outcome.Result == jobs.ResultStopped
	if st.Carry.CID != "" {
		j.Carry = &Blob{CID: st.Carry.CID, Size: st.Carry.Bytes, Tree: st.Carry.Tree}
	}
	if st.Phase >= jobs.Settling {
		j.Outcome, j.Reason = outcomeOf(st.Outcome.Result), reasonOf(g, j.Spec.Payment, st)
		if j.Code = ""; st.Outcome.Code != 0 {
			j.Code = Code(st.Outcome.Code.String())
		}
	}
	if st.Account.Counted {
		j.Owed, j.Receipts = st.Account.Owed, int(st.Account.Receipts)
	}
	if st.Account.Released {
		j.Paid = st.Account.Paid
	}
	for len(j.Ranks) < len(st.Ranks) {
		j.Ranks = append(j.Ranks, Rank{})
	}
	j.Ranks = slices.Clip(j.Ranks[:len(st.Ranks)])
	if j.Cluster != nil {
		j.followCluster(st)
	}
	for i := range j.Ranks {
		j.Ranks[i].follow(&st.Ranks[i], lost[i])
	}
}

// follow brings the rank up to the state of its machine.
func (k *Rank) follow(r *jobs.Rank, lost string) {
	if !r.Lease.IsZero() {
		k.Lease = r.Lease
	}
	if k.State = RankState(r.State.String()); r.Joining {
		k.State = RankJoining
	}
	k.Epoch, k.Provider, k.Seq, k.Generation = r.Epoch, r.Provider, r.Seq, int(r.Generation)
	k.Restarts, k.Retries, k.Begun, k.Unextended = int(r.Losses), int(r.Restarts), r.Begun, r.Unextended
	k.Exit, k.Detail = r.Exit.Code, r.Exit.Detail
	k.After = time.Time{}
	if r.State == jobs.RankLeased {
		k.After = r.NotBefore
	}
	if fresh := r.State == jobs.RankWaiting || r.State == jobs.RankLeased && r.Seq == 0; !fresh {
		k.Reason = r.Exit.Reason
	} else if lost != "" {
		k.Reason = lost
	}
	k.Checkpoints = nil
	for _, c := range r.Checkpoints {
		k.Checkpoints = append(k.Checkpoints,
			Checkpoint{Number: c.Number, At: c.At, Blob: Blob{CID: c.File.CID, Size: c.File.Bytes, Tree: c.File.Tree}})
	}
	k.Outputs = nil
	for _, f := range r.Outputs {
		k.Outputs = append(k.Outputs, Output{f.Path, Blob{CID: f.CID, Size: f.Bytes, Tree: f.Tree}})
	}
}

// StateOf returns the state of a job as its user sees it, by that of its machine.
func StateOf(st jobs.State) State {
	switch st.Phase {
	case jobs.Engaging:
		return Queued
	case jobs.Placing:
		if st.Gang > 0 {
			return Matching
		}
		return Queued
	case jobs.Working, jobs.Reducing, jobs.Stopping: // a program that is stopped still runs
		return Running
	case jobs.Settling:
		return Settling
	case jobs.Ended:
		return outcomeOf(st.Outcome.Result)
	}
	return ""
}

func outcomeOf(r jobs.Result) State {
	return map[jobs.Result]State{
		jobs.ResultSucceeded: Succeeded, jobs.ResultFailed: Failed, jobs.ResultStopped: Stopped,
	}[r]
}

// reasonOf returns why a job ended, with advice where money was short.
func reasonOf(g market.Genesis, p job.Payment, st jobs.State) string {
	o := st.Outcome
	if o.Code != jobs.CodePayment {
		return o.Reason
	}
	return o.Reason + "; raise payment.budget, which is " + g.FormatAmount(st.Params.Budget) +
		", or lower payment.maxPrice, which is " + g.FormatAmount(market.Amount(p.MaxPrice)) + " per unit-hour"
}

// followCluster brings the record of a cluster up to a state of its machine.
func (j *Job) followCluster(st jobs.State) {
	c, plan := j.Cluster, st.Plan
	j.Spec.Count = st.Params.Count
	size := uint32(0)
	c.Members = nil
	for i := range st.Ranks {
		r := &st.Ranks[i]
		if r.Joining {
			continue
		}
		size++
		if !r.Lease.IsZero() {
			c.Members = append(c.Members, Seat{Rank: uint32(i), Epoch: r.Epoch, Lease: r.Lease})
		}
	}
	c.Size, c.Version, c.Ready, c.Idle, c.Epochs = size, plan.Version, plan.Ready, plan.Idle, plan.Epochs
	if c.Generation != int(plan.Generation) {
		c.Generation, c.Begun = int(plan.Generation), size
	}
	c.Target, c.Before = 0, 0
	if s := st.Scale; s != nil && s.Target < s.From {
		c.Target = s.Target
	} else if s != nil {
		c.Before = s.Budget
	}
}

// Params returns the values of the job that its state machine decides by. It returns an error for values that no
// machine takes.
func (j Job) Params(g market.Genesis, lostAfter time.Duration) (jobs.Params, error) {
	spec := j.Spec
	rate, err := market.RateOf(spec.Payment.MaxPrice, int(spec.Resources.Units), g.SlotMillis)
	if err != nil {
		return jobs.Params{}, fmt.Errorf("payment.maxPrice: %w", err)
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(j.ID)) // never fails
	re := spec.Restart
	p := jobs.Params{
		Count: spec.Count, Rounds: uint32(spec.RoundCount()), Reduce: spec.Rounds != nil && spec.Rounds.Reduce != nil,
		Restart: jobs.Restart{
			Max: uint32(re.Max), OnFailure: re.Policy == job.RestartOnFailure, Always: re.Policy == job.RestartAlways,
			Backoff: time.Duration(re.Backoff), MostBackoff: job.MaxBackoff,
		},
		Queue: spec.Timeouts.Queue, Pull: spec.Timeouts.Pull, Start: spec.Timeouts.Start, Run: spec.Timeouts.Run,
		Idle:  time.Duration(spec.Idle),
		Grace: spec.Timeouts.Grace(), LostAfter: lostAfter, Rate: rate, Budget: spec.Payment.Budget,
		SlotMillis: g.SlotMillis, Interval: g.IntervalSlots, Seed: seed.Sum64(),
	}
	if p.Guarded = j.Detached != nil; p.Guarded {
		p.Standbys = spec.Standbys
	}
	p.Checked = spec.Verify == job.VerifyReplicate && j.Replica == nil
	if spec.Cluster != nil {
		e := j.Engine()
		p.Cluster = &jobs.Engine{
			HeadEnds: e.Ends == cluster.EndsHead, Binds: e.Binds, HeadFirst: e.HeadFirst,
			Autostop: time.Duration(spec.Cluster.Autostop),
		}
	}
	return p, p.Validate()
}
