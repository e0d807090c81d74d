package jobs

import (
	"fmt"
	"slices"
	"time"
)

const (
	// haltSlack is how much longer than its grace the exit of a stopped program is awaited.
	haltSlack = 2 * time.Second
	// headStart is how long the other members of a cluster wait for the head's program.
	headStart = time.Second
	// serveWait is the shortest pause before a member of a cluster is started again.
	serveWait = time.Second
	// resumeTime is how many times LostAfter a limit waits that expired while this peer was away.
	resumeTime = 2
)

// deadline is a time at which the job changes without an event. Rank is -1 for the job's own.
type deadline struct {
	at   time.Time
	due  func(t *step, rank int)
	rank int
}

// sooner returns the earlier of two deadlines; a zero time means none.
func (d deadline) sooner(at time.Time, due func(*step, int)) deadline {
	if !at.IsZero() && (d.at.IsZero() || at.Before(d.at)) {
		d.at, d.due = at, due
	}
	return d
}

// deadlines yields the deadlines of the job and the earliest of each rank. The state may change between two of them.
// Next and expire both read this one list, so no deadline is awaited that does nothing.
func (s *State) deadlines(yield func(deadline) bool) {
	if s.Command.Lost || s.Phase == Engaging || s.Phase >= Settling {
		return
	}
	job := deadline{rank: -1}.sooner(s.runUntil(), runOut).sooner(s.idleUntil(), idleOut)
	if !job.at.IsZero() && !yield(job) {
		return
	}
	for i := 0; i < len(s.Ranks); i++ {
		d := s.rankDeadline(i)
		if !d.at.IsZero() && !yield(d) {
			return
		}
	}
}

// runUntil is when timeouts.run ends the job; zero if it does not count.
func (s *State) runUntil() time.Time {
	if s.Started.IsZero() || s.Phase >= Stopping {
		return time.Time{}
	}
	return later(s.Started.Add(s.Params.Run), s.ResumedUntil)
}

// idleUntil is when an unused job is stopped. A job that is not ready, or paused, counts as used.
func (s *State) idleUntil() time.Time {
	limit := s.Params.IdleLimit()
	if limit == 0 || s.Phase != Working || s.Paused || s.Plan.Idle.IsZero() {
		return time.Time{}
	}
	if s.Params.Cluster != nil && s.Plan.Ready.IsZero() {
		return time.Time{}
	}
	starts := func(r Rank) bool { return r.State != RankRunning || r.Doing != Up }
	if s.Params.Cluster == nil && slices.ContainsFunc(s.Ranks, starts) {
		return time.Time{}
	}
	return later(s.Plan.Idle, s.Plan.Ready).Add(limit)
}

// rankDeadline is the earliest deadline of a rank.
func (s *State) rankDeadline(i int) deadline {
	r, p := &s.Ranks[i], &s.Params
	d := deadline{rank: i}
	switch {
	case r.State == RankWaiting && r.Doing == Idle && s.Phase < Stopping && !s.leaving(i):
		d = d.sooner(r.NotBefore, wake).sooner(r.Since.Add(p.Queue), queueOut)
	case r.State == RankLeased && s.Phase == Working:
		d = d.sooner(r.NotBefore, wake)
	case r.State == RankRunning && r.Doing == Halting:
		d = d.sooner(r.HaltBy, haltOut)
	case s.Phase != Working || r.State != RankRunning || r.Doing != Starting && r.Doing != Up:
	default:
		if r.Doing == Starting && p.Pull > 0 && !r.Pulled {
			d = d.sooner(s.limit(r, p.Pull), pullOut)
		}
		if r.Doing == Starting && p.Start > 0 {
			d = d.sooner(s.limit(r, p.Start), startOut)
		}
		if !r.Silent.IsZero() {
			d = d.sooner(r.Silent.Add(p.LostAfter), silentOut)
		}
	}
	return d
}

// limit returns the time by which an execution must have made progress. An execution of an earlier process has until
// ResumedUntil.
func (s *State) limit(r *Rank, most time.Duration) time.Time {
	if r.Adopted {
		return later(r.Begun.Add(most), s.ResumedUntil)
	}
	return r.Begun.Add(most)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Next returns when Ticked is due; zero if only another event continues the job. It is after the time of the last Step.
func (s State) Next() (next time.Time) {
	for d := range s.deadlines {
		if next.IsZero() || d.at.Before(next) {
			next = d.at
		}
	}
	return next
}

// expire applies all deadlines that are due.
func (t *step) expire() {
	for d := range t.s.deadlines {
		if !d.at.After(t.now.Time) {
			d.due(t, d.rank)
		}
	}
}

func runOut(t *step, _ int) {
	t.end(ResultFailed, CodeTimeout, t.s.runText())
}

func idleOut(t *step, _ int) {
	setting := "idle"
	if t.s.Params.Cluster != nil {
		setting = "autostop"
	}
	t.end(ResultStopped, 0, fmt.Sprintf("idle for %v (%s)", t.s.Params.IdleLimit(), setting))
}

// runText returns the reason for an end by timeouts.run.
func (s *State) runText() string {
	return fmt.Sprintf("the run time limit was reached (timeouts.run: %v)", s.Params.Run)
}

// wake ends a rank's pause before its next order or start.
func wake(t *step, i int) { t.s.Ranks[i].NotBefore = time.Time{} }

// queueOut gives up placing a rank.
func queueOut(t *step, i int) {
	r := &t.s.Ranks[i]
	reason := r.unplaced
	if reason == "" {
		reason = "no order could be sent"
	}
	if r.Joining {
		t.resize().undo(fmt.Errorf("%w: %s", ErrScale, reason))
		return
	}
	text := fmt.Sprintf("not placed within timeouts.queue of %v: %s", t.s.Params.Queue, reason)
	t.end(ResultFailed, CodeTimeout, text)
}

// haltOut handles a program that did not exit in time. Its lease ends, so that no second program ever meets it.
func haltOut(t *step, i int) {
	switch r := t.rank(i); {
	case t.s.Phase >= Stopping:
		r.stopped()
	case t.s.leaving(i):
		r.State, r.Doing = RankLeased, Idle
	default:
		r.lose(CauseBroken, fmt.Sprintf("the program did not exit within %v of a stop", t.s.Params.Grace+haltSlack))
	}
}

func pullOut(t *step, i int) {
	most := t.s.Params.Pull
	t.rank(i).lose(CauseLate,
		fmt.Sprintf("the provider did not fetch program and inputs within timeouts.pull of %v", most))
}

func startOut(t *step, i int) {
	t.rank(i).lose(CauseLate,
		fmt.Sprintf("the program did not run, healthy, within timeouts.start of %v", t.s.Params.Start))
}

func silentOut(t *step, i int) {
	t.rank(i).lose(CauseSilent, fmt.Sprintf("the provider did not answer for %v", t.s.Params.LostAfter))
}
