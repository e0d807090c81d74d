package jobs

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs/file"
)

// rankStep is one rank within a step.
type rankStep struct {
	*step
	*Rank
	i int
}

func (r rankStep) exec() Exec { return Exec{uint32(r.i), r.Lease, r.Seq} }

// active reports whether a program of the rank is expected to run.
func (r *Rank) active() bool { return r.State == RankRunning && (r.Doing == Starting || r.Doing == Up) }

// work starts, resumes or halts the rank's execution.
func (r rankStep) work() {
	s := &r.s
	switch {
	case r.State == RankLeased && r.LostBy != 0: // while its outputs were gathered
		r.lose(r.LostBy, r.lostWhy)
	case r.State == RankLeased && !s.leaving(r.i) && r.NotBefore.IsZero():
		r.start()
	case r.State == RankRunning && r.Doing == Idle:
		r.resume()
	}
	outdated := s.Params.Cluster != nil && r.Generation < s.Plan.Generation
	if r.active() && (outdated || s.leaving(r.i)) {
		r.halt()
	}
}

// start begins the rank's next execution.
func (r rankStep) start() {
	r.State, r.Doing, r.Seq, r.Begun = RankRunning, Starting, r.Seq+1, r.now.Time
	r.Generation, r.Exit = r.s.Plan.Generation, Exit{}
	r.Pulled, r.Adopted, r.Unhealthy = false, false, ""
	r.Silent, r.HaltBy = time.Time{}, time.Time{}
	if r.i == 0 {
		r.s.Plan.Ready = time.Time{}
	}
	r.emit(StartExecution{r.exec(), r.s.Round, r.Generation, r.Checkpoints})
}

// resume continues an execution that an earlier process or supervisor started.
func (r rankStep) resume() {
	if _, ok := r.s.usable(r.Lease); !ok {
		r.reclaim(0, "")
		return
	}
	r.Doing = Starting
	r.emit(StartExecution{r.exec(), r.s.Round, r.Generation, r.Checkpoints})
}

// reclaim requests the result of an execution after the end of its lease. Without a result the lease is lost for cause.
func (r rankStep) reclaim(cause Cause, reason string) {
	r.Doing, r.LostBy, r.lostWhy = Reclaiming, cause, reason
	r.emit(ReclaimExecution{r.exec()})
}

// halt requests that the program exits.
func (r rankStep) halt() {
	grace := r.s.Params.Grace
	r.Doing, r.HaltBy = Halting, r.now.Time.Add(grace+haltSlack)
	r.emit(StopExecution{r.exec(), grace})
}

// stopped is the end of an execution that was stopped with the job.
func (r rankStep) stopped() {
	r.State, r.Doing = RankStopped, Idle
	if r.s.serves(r.i) && r.s.Outcome.Result == ResultSucceeded {
		r.State = RankDone
	}
}

func (ev ExecutionSeen) apply(t *step) error {
	r, ok := t.current(ev.Exec)
	if !ok {
		return nil
	}
	r.Silent, r.heard = time.Time{}, true
	if ev.Rank == 0 {
		t.releaseMembers()
	}
	if !r.Pulled && (ev.Stage == StagePulled || ev.Stage == StageHealthy || ev.Stage == StageUnhealthy) {
		r.Pulled = true
		t.note(NoteStarted, r.i, "execution %d", r.Seq)
	}
	switch {
	case ev.Stage == StageHealthy && r.Doing == Starting:
		r.Doing = Up
		if ev.Rank == 0 && t.s.Params.Cluster != nil && t.s.Plan.Ready.IsZero() {
			t.s.Plan.Ready = t.now.Time
			t.note(NoteReady, -1, "the head of the cluster is healthy")
		}
	case ev.Stage == StageUnhealthy && r.active() && t.s.Phase == Working && t.s.Params.Restart.cures():
		r.Unhealthy = ev.Detail
		if r.Unhealthy == "" {
			r.Unhealthy = "its check failed"
		}
		r.halt()
	}
	return nil
}

func (ev ExecutionExited) apply(t *step) error {
	r, ok := t.current(ev.Exec)
	if !ok || r.Doing == Gathering || r.Doing == Judging {
		return nil
	}
	if ev.Exit.Broken && r.HaltBy.IsZero() {
		r.lose(CauseBroken, "the provider ended the program: "+ev.Exit.text(0))
		return nil
	}
	r.Exit, r.Silent, r.heard, r.Doing = ev.Exit, time.Time{}, true, Gathering
	r.Exit.Broken = false
	if r.Unhealthy != "" {
		r.Exit.Reason, r.Exit.Detail = ReasonUnhealthy, r.Unhealthy
	}
	t.emit(GatherOutputs{ev.Exec})
	return nil
}

func (ev OutputsGathered) apply(t *step) error {
	r, ok := t.current(ev.Exec)
	if !ok || r.Doing != Gathering {
		return nil
	}
	if !validOutputs(ev.Outputs) {
		return fmt.Errorf("%w: outputs of rank %d", ErrEvent, r.i)
	}
	r.Outputs, r.Doing = slices.Clone(ev.Outputs), Idle
	r.decide()
	return nil
}

func (ev ExecutionLost) apply(t *step) error {
	if r, ok := t.current(ev.Exec); ok {
		r.lose(ev.Cause, ev.Reason)
	}
	return nil
}

func (ev ProviderSilent) apply(t *step) error {
	if r, ok := t.current(ev.Exec); ok && r.active() && r.Silent.IsZero() {
		r.Silent = t.now.Time
	}
	return nil
}

func (ev ProviderHeard) apply(t *step) error {
	if r, ok := t.current(ev.Exec); ok {
		r.Silent, r.heard = time.Time{}, true
	}
	return nil
}

func (ev PeerFailed) apply(t *step) error {
	t.end(ResultFailed, ev.Code, ev.Reason)
	for i := range t.s.Ranks {
		if r := t.rank(i); r.State == RankRunning && r.Doing == Gathering { // its outputs are no longer fetched
			r.stopped()
		}
	}
	return nil
}

func (ev CheckpointKept) apply(t *step) error {
	r, ok := t.current(ev.Exec)
	if !ok {
		return nil
	}
	r.Checkpoints = file.Keep(r.Checkpoints, Checkpoint{File: ev.File, Number: ev.Number, At: t.now.Time})
	if !file.ValidCheckpoints(r.Checkpoints) {
		return fmt.Errorf("%w: checkpoint of rank %d", ErrEvent, r.i)
	}
	return nil
}

// distrust counts an execution that was to continue from the rank's newest checkpoint and never began. That may be the
// reason: only a provider finds out that it does not fit, or cannot be unpacked.
func (r rankStep) distrust(cause Cause) {
	blamed := cause == CauseRefused || cause == CauseBroken || cause == CauseLate
	if r.Pulled || r.Adopted || r.State != RankRunning || len(r.Checkpoints) == 0 || !blamed {
		return
	}
	newest, n := r.Checkpoints[0].Number, len(r.Checkpoints)
	if r.Checkpoints = file.Refuse(r.Checkpoints); len(r.Checkpoints) < n {
		r.note(NoteRestored, r.i, "no execution began from checkpoint %d, which is forgotten", newest)
	}
}

// decide determines the next step after an execution with gathered outputs.
func (r rankStep) decide() {
	s, c, re := &r.s, r.s.Params.Cluster, r.s.Params.Restart
	r.note(NoteExited, r.i, "%s", r.Exit.text(0))
	switch ok := r.Exit.ok(); {
	case s.Phase >= Stopping && (!r.HaltBy.IsZero() || s.serves(r.i)):
		r.stopped()
	case s.Phase >= Stopping:
		r.finish()
	case s.leaving(r.i) || c != nil && r.Generation < s.Plan.Generation:
		r.State = RankLeased
	case r.Exit.Hopeless:
		r.State = RankFailed
	case s.serves(r.i) && r.Restarts < re.Max:
		r.again(max(re.wait(r.Restarts+1), serveWait))
	case s.serves(r.i):
		if ok { // it must not exit while the cluster runs
			r.Exit.Reason = reasonEnded
		}
		r.State = RankFailed
	case re.again(ok, r.Restarts):
		r.again(re.wait(r.Restarts + 1))
		if c != nil && c.Binds && r.i == 0 {
			r.regenerate("the head is started again")
		}
	case !ok && c != nil && c.Binds && r.i != 0:
		r.pollMembers()
	default:
		r.finish()
	}
	if r.State == RankDone { // nothing continues from it
		r.Checkpoints = nil
	}
}

// finish is the end of an execution that is not started again.
func (r rankStep) finish() {
	if r.State = RankFailed; r.Exit.ok() {
		r.State = RankDone
	}
}

// again starts the program once more on the same lease.
func (r rankStep) again(wait time.Duration) {
	r.State, r.Restarts, r.NotBefore = RankLeased, r.Restarts+1, time.Time{}
	if wait > 0 {
		r.NotBefore = r.now.Time.Add(wait)
	}
	r.note(NoteRestarted, r.i, "%d of at most %d times, in %v", r.Restarts, r.s.Params.Restart.Max, wait)
}

// lose ends the rank's lease. Unless this ends the job, the rank is ordered again; a Done rank, in the next round.
func (r rankStep) lose(cause Cause, reason string) {
	if r.s.Phase >= Stopping {
		r.stopped()
		return
	}
	if r.LostBy != 0 { // its lease ended before (R8)
		cause, reason = r.LostBy, r.lostWhy
	}
	r.distrust(cause)
	chain := r.Lease
	used := cause == CauseExpired && r.Unextended == "" && !r.leases().renewing(chain) // and nothing more was asked for
	whole := used && r.Whole
	if cause.fault() {
		r.emit(ReportFault{chain, reason})
	}
	if cause != CauseAbsent {
		r.avoid(r.Provider)
	}
	r.note(NoteLost, r.i, "%s", reason)
	r.leases().end(chain, reason)
	r.unlease()
	r.Losses++
	if c := r.s.Params.Cluster; c != nil && r.i == 0 {
		r.s.Plan.Ready = time.Time{}
		if c.Binds {
			r.regenerate("the head was lost: " + reason)
		}
	}
	switch {
	case r.s.leaving(r.i):
	case r.s.remaining(r.now.Time) <= 0:
		r.end(ResultFailed, CodeTimeout, fmt.Sprintf("%s; rank %d: %s", r.s.runText(), r.i, reason))
	case whole: // it begins before Started
		text := "the lease of rank %d for the run time limit ended (timeouts.run: %v): %s"
		r.end(ResultFailed, CodeTimeout, fmt.Sprintf(text, r.i, r.s.Params.Run, reason))
	case used:
		r.end(ResultFailed, CodePayment, fmt.Sprintf("rank %d used up its lease, and payment.budget pays no more", r.i))
	case r.Losses > r.s.Params.Restart.Max:
		code := CodeLost
		if cause == CauseLate {
			code = CodeTimeout
		}
		text := "rank %d: losses: got %d, want at most %d (restart.max); the last: %s"
		r.end(ResultFailed, code, fmt.Sprintf(text, r.i, r.Losses, r.s.Params.Restart.Max, reason))
	}
}

// avoid has later orders prefer other providers. The oldest of many is forgotten.
func (t *step) avoid(provider sign.Key) {
	if !slices.Contains(t.s.Avoid, provider) {
		t.s.Avoid = append(t.s.Avoid, provider)
	}
	if n := len(t.s.Avoid); n > maxAvoid {
		t.s.Avoid = t.s.Avoid[n-maxAvoid:]
	}
}

// unlease clears the rank's lease and all that belongs to it. A rank that is not done waits for another one.
func (r rankStep) unlease() {
	r.idle()
	r.Lease, r.Seq, r.Unextended, r.NotBefore = market.LeaseID{}, 0, "", time.Time{}
	r.Whole = false
	if r.State != RankDone {
		r.State = RankWaiting
	}
}

// idle clears the rank's activity.
func (r rankStep) idle() {
	r.Doing, r.Gang, r.Since = Idle, 0, r.now.Time
	r.Pulled, r.Silent, r.HaltBy, r.Unhealthy = false, time.Time{}, time.Time{}, ""
	r.LostBy, r.lostWhy, r.unplaced, r.tries, r.heard = 0, "", "", 0, false
}
