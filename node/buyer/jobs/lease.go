package jobs

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
)

// leases is the part of a step that ends and renews leases.
type leases struct{ *step }

// learn adds a lease to the known ones, once.
func (t leases) learn(l Lease) {
	if !slices.ContainsFunc(t.s.Leases, func(o Lease) bool { return o.ID == l.ID }) {
		l.Ending, l.asked = false, false
		t.s.Leases = append(t.s.Leases, l)
	}
}

// holder returns the rank that holds a chain, or -1.
func (t leases) holder(chain market.LeaseID) int {
	if chain.IsZero() {
		return -1
	}
	return slices.IndexFunc(t.s.Ranks, func(r Rank) bool { return r.Lease == chain })
}

// end ends the open leases of a chain, unless that was requested.
func (t leases) end(chain market.LeaseID, reason string) {
	request := false
	for i := range t.s.Leases {
		if l := &t.s.Leases[i]; l.Chain == chain && l.Open && !l.asked {
			l.Ending, l.asked, l.Usable, request = true, true, false, true
		}
	}
	if request {
		t.emit(EndLease{chain, reason})
	}
}

// endAll ends all leases of an ended job.
func (t leases) endAll() {
	for i := range t.s.Leases {
		t.end(t.s.Leases[i].Chain, "the job has ended")
	}
}

func (ev LeaseLost) apply(t *step) error {
	s := &t.s
	var end market.Slot
	for i := range s.Leases {
		if l := &s.Leases[i]; l.Chain == ev.Chain {
			l.Usable = false
			end = max(end, l.End)
		}
	}
	i := t.leases().holder(ev.Chain)
	if i < 0 || s.Phase >= Settling {
		return nil
	}
	switch r := t.rank(i); {
	case r.Doing == Reclaiming || r.LostBy != 0:
	case r.State == RankRunning && r.Doing == Gathering: // providers keep the program's outputs for a time
		r.LostBy, r.lostWhy = ev.Cause, ev.Reason
	case s.Phase == Stopping && r.State == RankRunning:
		r.stopped()
	case s.Phase == Stopping || r.State == RankDone && s.lastRound():
	case r.active() && (r.Adopted || t.now.Slot >= end): // it may have exited before
		r.reclaim(ev.Cause, ev.Reason)
	default:
		r.lose(ev.Cause, ev.Reason)
	}
	return nil
}

func (ev LeaseCost) apply(t *step) error {
	i := slices.IndexFunc(t.s.Leases, func(l Lease) bool { return l.ID == ev.Lease })
	if i < 0 {
		return nil
	}
	l := &t.s.Leases[i]
	l.Most, l.Ending = min(l.Most, ev.Most), false
	if ev.Settled {
		l.Open, l.Usable = false, false
	}
	return nil
}

// renewals returns the successors that make the leases of all ranks last as long as the job, and their cost together.
func (t leases) renewals() (out []Renewal, cost market.Amount) {
	s := &t.s
	target := t.now.Slot + market.Slot(s.span(t.now.Time))
	for i := range s.Ranks {
		r := &s.Ranks[i]
		last := t.newest(r.Lease)
		if last == nil || last.End >= target || r.LostBy != 0 || r.State == RankDone && s.lastRound() {
			continue
		}
		if t.renewing(r.Lease) {
			continue
		}
		// Whole intervals, so that the last one is not too short to be paid before its end.
		n := s.Params.Interval
		more := (uint64(target-last.End) + n - 1) / n * n
		most, err := last.Rate.Owed(more)
		if err != nil {
			continue
		}
		out = append(out, Renewal{uint32(i), last.ID, r.Lease, last.End + market.Slot(more), most})
		cost = cost.Plus(most)
	}
	return out, cost
}

// renewing reports whether a renewal of a chain is not answered yet.
func (t leases) renewing(chain market.LeaseID) bool {
	return slices.ContainsFunc(t.s.Renewals, func(n Renewal) bool { return n.Chain == chain })
}

// newest returns the usable lease of a chain that ends last, or nil.
func (t leases) newest(chain market.LeaseID) (last *Lease) {
	if chain.IsZero() {
		return nil
	}
	for i := range t.s.Leases {
		if l := &t.s.Leases[i]; l.Chain == chain && l.Open && l.Usable && (last == nil || l.End > last.End) {
			last = l
		}
	}
	return last
}

// continues reports whether a renewal, as a record has it, extends a usable lease and names its cost. If its successor
// is known, it was answered, and its money counts as that lease (R3).
func (t leases) continues(n Renewal) bool {
	last := t.newest(n.Chain)
	if last == nil || last.ID != n.Of || n.Until <= last.End {
		return false
	}
	most, err := last.Rate.Owed(uint64(n.Until - last.End))
	return err == nil && most == n.Cap
}

// renew requests successors of all leases that are too short, if the budget pays for them.
func (t leases) renew() {
	all, cost := t.renewals()
	if cost > t.s.left() {
		for _, n := range all {
			t.s.Ranks[n.Rank].Whole = false
		}
		return
	}
	for _, n := range all {
		t.s.Ranks[n.Rank].Unextended = ""
		t.s.Renewals = append(t.s.Renewals, n)
		t.emit(RenewLease{n.Of, n.Chain, n.Until, n.Cap})
	}
}

// renewed removes a renewal that was answered, and reports whether there was one.
func (t leases) renewed(of market.LeaseID) (n Renewal, ok bool) {
	i := slices.IndexFunc(t.s.Renewals, func(n Renewal) bool { return n.Of == of })
	if i < 0 {
		return Renewal{}, false
	}
	n = t.s.Renewals[i]
	t.s.Renewals = slices.Delete(t.s.Renewals, i, i+1)
	return n, true
}

func (ev LeaseRenewed) apply(t *step) error {
	t.leases().renewed(ev.Of)
	t.leases().learn(ev.Next)
	// A chain in use is never ended here: this event is repeated after a restart (R4).
	if i := t.leases().holder(ev.Next.Chain); i < 0 || t.s.Phase >= Settling {
		t.leases().end(ev.Next.Chain, "the rank no longer uses it")
	} else {
		t.s.Ranks[i].Whole = true
		t.note(NoteExtended, i, "until slot %d", ev.Next.End)
	}
	return nil
}

func (ev RenewalRefused) apply(t *step) error {
	n, ok := t.leases().renewed(ev.Of)
	if !ok {
		return nil
	}
	if i := t.leases().holder(n.Chain); i >= 0 {
		r := t.rank(i)
		if r.Unextended = ev.Reason; ev.Reason == "" {
			r.Unextended = "refused"
		}
		t.note(NoteUnextended, i, "%s", r.Unextended)
	}
	return nil
}

func (ev ExtendRequested) apply(t *step) error {
	s := &t.s
	run := s.Params.Run + ev.By
	switch {
	case ev.By <= 0 || run > maxTime || run < 0:
		return fmt.Errorf("%w: extend by %v", ErrEvent, ev.By)
	case s.Phase >= Stopping:
		t.answer(ev.Req, ErrNotRunning)
		return nil
	case len(s.Renewals) > 0 || s.Scale != nil:
		t.answer(ev.Req, ErrBusy)
		return nil
	case ev.Budget != 0 && ev.Budget < s.Params.Budget:
		t.answer(ev.Req, fmt.Errorf("%w: %d, have %d", ErrBudget, ev.Budget, s.Params.Budget))
		return nil
	}
	was := s.Params
	s.Params.Run, s.Params.Budget = run, max(s.Params.Budget, ev.Budget)
	if _, cost := t.leases().renewals(); cost > s.left() {
		t.answer(ev.Req, fmt.Errorf("%w: the leases cost %d more, %d are left", ErrBudget, cost, s.left()))
		s.Params = was
		return nil
	}
	s.Extended++
	for i := range s.Ranks {
		if r := &s.Ranks[i]; r.LostBy == CauseExpired {
			r.Unextended = "the lease had ended"
		}
	}
	t.leases().renew()
	t.answer(ev.Req, nil)
	return nil
}

func (ev ExtendRequested) applyQuiet(t *step) error { return t.refuse(ev.Req) }
