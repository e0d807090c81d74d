package jobs

import (
	"fmt"
	"time"
)

const restarted = "the buyer was restarted before it could use the lease"

func (ev StopRequested) apply(t *step) error {
	t.end(ResultStopped, 0, "stopped by its user")
	t.answer(ev.Req, nil)
	return nil
}

func (ev StopRequested) applyQuiet(t *step) error {
	t.s.WantStop = true
	t.answer(ev.Req, nil)
	return nil
}

func (ev PauseRequested) apply(t *step) error {
	s := &t.s
	if s.Phase != Working && s.Phase != Reducing {
		t.answer(ev.Req, ErrNotRunning)
		return nil
	}
	if s.Paused && !ev.Pause && !s.Plan.Idle.IsZero() {
		s.Plan.Idle = t.now.Time // a paused cluster was not idle
	}
	t.freeze(ev.Pause)
	t.answer(ev.Req, nil)
	return nil
}

func (ev PauseRequested) applyQuiet(t *step) error { return t.refuse(ev.Req) }

func (ev FreezeRefused) apply(t *step) error {
	if _, ok := t.current(ev.Exec); ok && t.s.Paused {
		t.freeze(false)
	}
	return nil
}

// freeze freezes or resumes all programs.
func (t *step) freeze(frozen bool) {
	t.s.Paused = frozen
	for i := range t.s.Ranks {
		if r := t.rank(i); r.active() {
			t.emit(SetFrozen{r.exec(), frozen})
		}
	}
}

// refuse answers a request while another peer supervises.
func (t *step) refuse(req Req) error {
	t.answer(req, fmt.Errorf("%w: another peer supervises it", ErrNotRunning))
	return nil
}

func (ev GuardiansEngaged) apply(t *step) error {
	if t.s.Phase != Engaging {
		return nil
	}
	t.s.Phase, t.s.Command.Epoch = Placing, ev.Epoch
	for i := range t.s.Ranks {
		t.s.Ranks[i].Since = t.now.Time
	}
	return nil
}

func (ev EngagementFailed) apply(t *step) error {
	if t.s.Phase == Engaging {
		t.end(ResultFailed, CodeNoMatch, ev.Reason)
	}
	return nil
}

func (ev CommandLost) apply(t *step) error {
	s := &t.s
	if !s.Params.Guarded || ev.Epoch <= s.Command.Epoch || s.Phase == Engaging || s.Phase == Ended {
		return nil
	}
	s.Command.Lost, s.Command.Other = true, max(s.Command.Other, ev.Epoch)
	for i := range s.Gangs {
		t.gangs().cancel(&s.Gangs[i], "another peer supervises the job")
	}
	for i := range s.Ranks {
		t.rank(i).idle()
	}
	t.note(NoteSupervised, -1, "by another peer, under epoch %d", ev.Epoch)
	t.emit(LeaveLeases{})
	t.acquire()
	return nil
}

func (ev CommandLost) applyQuiet(t *step) error {
	t.s.Command.Other = max(t.s.Command.Other, ev.Epoch)
	return nil
}

// acquire requests command on behalf of the owner; a guardian waits to be appointed.
func (t *step) acquire() {
	if t.s.Command.Owner {
		t.emit(AcquireCommand{})
	}
}

func (ev CommandGranted) apply(t *step) error {
	if t.s.Params.Guarded && t.s.Phase > Engaging && ev.Epoch > t.s.Command.Epoch {
		return ev.applyQuiet(t)
	}
	return nil
}

func (ev CommandGranted) applyQuiet(t *step) error {
	s := &t.s
	if ev.Epoch < s.Command.Epoch || ev.Epoch <= s.Command.Other {
		return nil // of an earlier time
	}
	// A merge from before this supervisor resumed is outdated: Merge would now refuse it.
	if ev.Theirs != nil && (ev.Theirs.Phase >= s.Phase || ev.Theirs.Phase == Working && s.Phase == Reducing) {
		own := t.s
		*s = ev.Theirs.clone()
		s.Command, s.Gangs, s.Gang, s.Placed = own.Command, own.Gangs, own.Gang, own.Placed
		s.WantStop = s.WantStop || own.WantStop // which may be newer than the merge
		for i := range min(len(s.Ranks), len(own.Ranks)) {
			s.Ranks[i].Epoch = max(s.Ranks[i].Epoch, own.Ranks[i].Epoch)
		}
	}
	s.Command.Epoch, s.Command.Lost = ev.Epoch, false
	for i := range s.Gangs { // each is still to be answered (R2)
		t.gangs().cancel(&s.Gangs[i], "another peer supervised the job")
	}
	t.adopt(ev.Leases)
	t.note(NoteSupervised, -1, "by this peer, under epoch %d", ev.Epoch)
	t.recover(ev.Leases)
	return nil
}

// adopt seats leases that the last supervisor took after it reported the job's state for the last time.
func (t *step) adopt(leases []Lease) {
	for _, l := range leases {
		if int64(l.Rank) >= int64(len(t.s.Ranks)) || l.ID != l.Chain {
			continue
		}
		r := t.rank(int(l.Rank))
		if l.Epoch <= r.Epoch {
			continue
		}
		r.Epoch = l.Epoch
		if l.Open && l.Usable && t.s.Phase < Stopping {
			done := r.State == RankDone
			if r.seated(l, false); done {
				r.State = RankDone
			}
		}
	}
}

func (ev Recovered) apply(t *step) error {
	t.s.Gangs = nil // the process that would answer is gone (R2)
	if t.s.Params.Guarded && t.s.Phase > Engaging && (t.s.Phase < Settling || !t.s.Command.Owner) {
		t.s.Command.Lost = true
		return ev.applyQuiet(t)
	}
	t.recover(ev.Leases)
	return nil
}

func (ev Recovered) applyQuiet(t *step) error {
	t.s.Gangs = nil
	t.know(ev.Leases)
	t.acquire()
	return nil
}

// know replaces the known leases by reported ones.
func (t *step) know(leases []Lease) {
	t.s.Leases = nil
	for _, l := range leases {
		t.leases().learn(l)
	}
}

// recover clears all activities and continues from the durable state and the leases.
func (t *step) recover(leases []Lease) {
	s := &t.s
	t.know(leases)
	t.resumed = true
	s.ResumedUntil = t.now.Time.Add(resumeTime * s.Params.LostAfter)
	s.closing, s.anchoring, s.reducing = false, false, false
	s.Plan.Idle = time.Time{}
	if s.Scale != nil {
		s.Scale.Req = 0 // its caller is gone
	}
	for i := range s.Ranks {
		t.rank(i).recover()
	}
	switch {
	case s.Phase == Engaging:
		t.emit(EngageGuardians{})
	case s.WantStop:
		t.end(ResultStopped, 0, "stopped by its user")
	case s.Scale.up():
		t.resize().undo(fmt.Errorf("%w: the buyer was restarted", ErrScale))
	}
	// A renewal without an answer is requested again, while it is of use.
	renewals := s.Renewals
	s.Renewals = nil
	for _, n := range renewals {
		if s.Phase < Stopping && t.leases().continues(n) && n.Cap <= s.left() {
			s.Renewals = append(s.Renewals, n)
			t.emit(RenewLease{n.Of, n.Chain, n.Until, n.Cap})
		}
	}
	for i := range s.Leases {
		if l := &s.Leases[i]; l.Open && t.leases().holder(l.Chain) < 0 {
			t.leases().end(l.Chain, restarted)
		}
	}
	if s.Phase == Settling {
		t.leases().endAll()
		if s.checking() {
			t.emit(CheckResults{})
		}
	}
}

// recover clears the rank's activity, and its lease if that is gone.
func (r rankStep) recover() {
	known, ok := r.s.usable(r.Lease)
	r.idle()
	r.Adopted = true
	switch {
	case r.s.Phase >= Stopping && r.State == RankRunning && !ok:
		r.stopped()
	case r.s.Phase >= Stopping || ok || r.State == RankRunning && known:
	default:
		r.unlease()
	}
}
