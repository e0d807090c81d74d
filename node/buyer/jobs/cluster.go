package jobs

import (
	"fmt"
	"slices"
	"time"
)

// afterHead reports whether the rank waits a moment for the program of its cluster's head.
func (r rankStep) afterHead() bool {
	c, head := r.s.Params.Cluster, &r.s.Ranks[0]
	return c != nil && c.HeadFirst && r.i > 0 && r.s.Plan.Ready.IsZero() && head.Doing != Up && !head.Pulled
}

// releaseMembers starts the members that wait for the head: it was seen at work.
func (t *step) releaseMembers() {
	if c := t.s.Params.Cluster; c == nil || !c.HeadFirst {
		return
	}
	for i := 1; i < len(t.s.Ranks); i++ {
		if r := &t.s.Ranks[i]; r.State == RankLeased && r.Seq == 0 {
			r.NotBefore = time.Time{}
		}
	}
}

// regenerate has every member but the head start again where it is.
func (t *step) regenerate(why string) {
	t.s.Plan.Generation++
	t.s.Plan.Ready = time.Time{}
	t.note(NoteRestarted, -1, "all members: %s", why)
}

// pollMembers begins to judge a member that failed: it may have failed because another one was lost first.
func (r rankStep) pollMembers() {
	r.Doing = Judging
	for k := range r.s.Ranks {
		if o := r.rank(k); k != r.i && o.State == RankRunning {
			o.heard = false
			if o.active() {
				r.emit(PollProvider{o.exec()})
			}
		}
	}
}

// judge decides on members that failed. One lost member, or a new generation, acquits; if all others answered, the
// member has failed by itself.
func (t *step) judge() {
	if c := t.s.Params.Cluster; c == nil || !c.Binds {
		return
	}
	for i := range t.s.Ranks {
		r := t.rank(i)
		if r.State != RankRunning || r.Doing != Judging {
			continue
		}
		pending, acquitted := false, r.Generation < t.s.Plan.Generation || t.s.leaving(i)
		for k := range t.s.Ranks {
			o := &t.s.Ranks[k]
			if k == i || o.Joining {
				continue
			}
			acquitted = acquitted || o.State == RankWaiting
			decided := o.Doing == Gathering || o.Doing == Judging || o.heard
			pending = pending || o.State == RankRunning && !decided
		}
		switch {
		case acquitted: // it costs no restart
			r.State, r.Doing, r.NotBefore = RankLeased, Idle, t.now.Time.Add(serveWait)
			t.note(NoteRestarted, i, "another member was lost")
		case !pending:
			r.State, r.Doing = RankFailed, Idle
		}
	}
}

func (ev JobUse) apply(t *step) error {
	switch plan := &t.s.Plan; {
	case t.s.Params.IdleLimit() == 0 && t.s.Params.Cluster == nil:
	case ev.Busy:
		plan.Idle = time.Time{}
	case plan.Idle.IsZero():
		plan.Idle = t.now.Time
	}
	return nil
}

func (ev ScaleRequested) apply(t *step) error {
	s := &t.s
	from := uint32(len(s.Ranks))
	switch {
	case s.Params.Cluster == nil || ev.Count < 1 || ev.Count > MaxRanks:
		return fmt.Errorf("%w: scale to %d", ErrEvent, ev.Count)
	case s.Phase != Working:
		t.answer(ev.Req, ErrNotRunning)
		return nil
	case s.Scale != nil || len(s.Renewals) > 0:
		t.answer(ev.Req, ErrBusy)
		return nil
	case ev.Count >= from && ev.Budget != 0 && ev.Budget < s.Params.Budget:
		t.answer(ev.Req, fmt.Errorf("%w: %d, have %d", ErrBudget, ev.Budget, s.Params.Budget))
		return nil
	case ev.Count == from:
		s.Params.Budget = max(s.Params.Budget, ev.Budget)
		t.answer(ev.Req, nil)
		return nil
	}
	s.Scale = &Scale{Req: ev.Req, From: from, Target: ev.Count, Budget: s.Params.Budget}
	if ev.Count < from {
		if ev.Budget != 0 {
			s.Scale.Budget = ev.Budget
		}
		t.resize().cancelFrom(ev.Count, "the cluster is scaled down")
		return nil
	}
	s.Params.Budget = max(s.Params.Budget, ev.Budget)
	for i := from; i < ev.Count; i++ {
		r := Rank{State: RankWaiting, Joining: true, Since: t.now.Time}
		if int(i) < len(s.Plan.Epochs) {
			r.Epoch = s.Plan.Epochs[i]
		}
		s.Ranks = append(s.Ranks, r)
	}
	return nil
}

func (ev ScaleRequested) applyQuiet(t *step) error { return t.refuse(ev.Req) }

// resize is the part of a step that changes the size of a cluster.
type resize struct{ *step }

// cancelFrom drops the gangs of the ranks from n on.
func (t resize) cancelFrom(n uint32, reason string) {
	for i := int(n); i < len(t.s.Ranks); i++ {
		if r := &t.s.Ranks[i]; r.Doing == Ordering {
			t.gangs().cancel(t.gangs().find(r.Gang), reason)
		}
	}
}

// truncate removes the ranks from n on and ends their leases. Their epochs stay, so that none is used twice.
func (t resize) truncate(n uint32) {
	s := &t.s
	for i := int(n); i < len(s.Ranks); i++ {
		for len(s.Plan.Epochs) <= i {
			s.Plan.Epochs = append(s.Plan.Epochs, 0)
		}
		s.Plan.Epochs[i] = s.Ranks[i].Epoch
		t.leases().end(s.Ranks[i].Lease, "the cluster was scaled down")
	}
	s.Ranks = slices.Delete(s.Ranks, int(n), len(s.Ranks))
}

// complete ends a change of size.
func (t resize) complete(err error) {
	s := &t.s
	s.Params.Count = uint32(len(s.Ranks))
	if err == nil {
		t.note(NoteScaled, -1, "from %d to %d members", s.Scale.From, s.Scale.Target)
	}
	t.answer(s.Scale.Req, err)
	s.Scale = nil
}

// undo undoes a scale-up. The budget is restored for new promises only (R7).
func (t resize) undo(err error) {
	from := t.s.Scale.From
	t.cancelFrom(from, err.Error())
	t.truncate(from)
	t.s.Params.Budget = t.s.Scale.Budget
	t.complete(err)
}

// shrink completes a scale-down once nothing runs on the ranks that leave.
func (t resize) shrink() {
	s := &t.s
	if !s.Scale.down() {
		return
	}
	for i := int(s.Scale.Target); i < len(s.Ranks); i++ {
		if r := &s.Ranks[i]; r.State == RankRunning || r.Doing == Ordering {
			return
		}
	}
	t.truncate(s.Scale.Target)
	s.Params.Budget = s.Scale.Budget
	t.complete(nil)
}
