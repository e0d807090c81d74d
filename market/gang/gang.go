package gang

import (
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

// Gang is the machine of one order. It is a value: Step returns a new one and leaves the old one as it was.
type Gang struct {
	order    market.Order
	params   Params
	state    State
	seats    []Seat // by rank as given
	spares   []sign.Key
	attempts []uint32  // by seat: the number of tried providers
	past     []attempt // holds given up
	failures []Failure
	round    uint32          // of the last Measure
	measured bool            // the seats as they are are near enough to one another
	until    time.Time       // deadline of the pending Measure; zero if there is none
	reason   *market.Refusal // why it failed

	recruit    uint32    // of the last Recruit
	recruiting bool      // it is not answered
	recruitAt  time.Time // no Recruit before
	fresh      int       // failures that came before the last recruits
}

// attempt is an abandoned hold: if it is granted later, it is released again.
type attempt struct {
	rank      uint32
	provider  sign.Key
	hold      market.HoldID
	releasing time.Time // deadline of an unconfirmed release; zero if there is none
}

// New requests holds from all chosen members in parallel. Spares are tried in order, each once; a spare listed twice
// may take two ranks. In a recruiting gang, a member without a provider is a vacant seat. Without members, or with a
// duplicate rank, the gang fails immediately.
func New(order market.Order, chosen []Member, spares []sign.Key, p Params) (Gang, []Effect) {
	s := &step{now: lease.Now{Time: p.Started}, gang: Gang{
		order: order, params: p, state: Reserving, spares: slices.Clone(spares),
		seats: make([]Seat, len(chosen)), attempts: make([]uint32, len(chosen)),
	}}
	if len(chosen) == 0 {
		s.fail(market.Refuse(market.ReasonUnanswered, "no provider was chosen"))
		return s.gang, s.effects
	}
	ranks := map[uint32]bool{}
	for _, m := range chosen {
		if ranks[m.Rank] {
			s.gang.seats = nil
			s.fail(market.Refuse(market.ReasonConflict, "rank %d was given to two providers", m.Rank))
			return s.gang, s.effects
		}
		ranks[m.Rank] = true
	}
	for i, m := range chosen {
		s.gang.seats[i].Rank = m.Rank
		if !m.Provider.IsZero() || p.Recruit <= 0 {
			s.ask(i, m.Provider)
		}
	}
	s.advance()
	return s.gang, s.effects
}

// State of the gang.
func (g Gang) State() State { return g.state }

// Order the gang is for.
func (g Gang) Order() market.Order { return g.order }

// Seats lists the current provider of each rank.
func (g Gang) Seats() []Seat { return slices.Clone(g.seats) }

// Spares returns the number of providers that could take a seat that is lost.
func (g Gang) Spares() int { return len(g.spares) }

// Failures lists every provider that did not work out so far, in order.
func (g Gang) Failures() []Failure { return slices.Clone(g.failures) }

// NextDeadline is when DeadlinePassed is due; false when the gang is final.
func (g Gang) NextDeadline() (time.Time, bool) {
	if g.state.Final() {
		return time.Time{}, false
	}
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if g.state == Releasing {
		for _, a := range g.past {
			sooner(a.releasing)
		}
		return next, true
	}
	sooner(g.params.Deadline)
	sooner(g.until)
	missing := false
	for i := range g.seats {
		s := &g.seats[i]
		if s.Phase.waiting() {
			sooner(s.deadline)
		}
		missing = missing || s.Phase == 0 || s.slow
		if g.params.Recruit > 0 {
			sooner(g.params.lapsing(s))
		}
	}
	if missing && g.recruits() {
		sooner(g.recruitAt)
	}
	return next, true
}

type step struct {
	gang    Gang
	now     lease.Now
	effects []Effect
}

// Step takes one event. Answers without a request are ignored; if they report a hold, it is released. The error is
// always nil; all machines have this signature.
func (g Gang) Step(now lease.Now, ev Event) (Gang, []Effect, error) {
	g.seats, g.past = slices.Clone(g.seats), slices.Clone(g.past)
	g.attempts, g.failures = slices.Clone(g.attempts), slices.Clone(g.failures)
	s := &step{gang: g, now: now}
	s.clock()
	switch ev := ev.(type) {
	case Held:
		s.held(ev)
	case Measured:
		s.measured(ev)
	case Signed:
		if i := s.expect(ev.Rank, ev.Hold, PhaseSigning); i >= 0 {
			seat := &s.gang.seats[i]
			seat.Phase, seat.Lease, seat.ActivateBefore, seat.slow = PhaseSigned, ev.Lease, ev.ActivateBefore, false
		}
	case Activated:
		if i := s.expect(ev.Rank, ev.Hold, PhaseActivating); i >= 0 {
			s.gang.seats[i].Phase = PhaseActive
		}
	case Refused:
		s.gone(ev.Rank, ev.Hold, ev.Reason, true)
	case Lost:
		s.gone(ev.Rank, ev.Hold, ev.Reason, false)
	case Released:
		s.confirmed(ev.Hold)
	case Recruited:
		recruiter{s}.recruited(ev)
	case Cancelled:
		if s.forming() {
			s.fail(market.Refuse(market.ReasonReleased, "cancelled: %s", ev.Reason))
		}
	case DeadlinePassed:
	}
	s.advance()
	return s.gang, s.effects, nil
}

func (s *step) emit(e ...Effect) { s.effects = append(s.effects, e...) }

func (s *step) forming() bool { return s.gang.state < Running }

// clock drops providers that missed their deadline.
func (s *step) clock() {
	g := &s.gang
	if s.forming() && !g.params.Deadline.After(s.now.Time) {
		s.fail(market.Refuse(market.ReasonTimeout, "not complete by the deadline%s", s.missing()))
	}
	for i := range g.seats {
		if seat := g.seats[i]; s.forming() && seat.Phase.waiting() && !seat.deadline.After(s.now.Time) {
			recruiter{s}.overdue(i)
		}
	}
	if s.forming() && !g.until.IsZero() && !g.until.After(s.now.Time) {
		s.fail(market.Refuse(market.ReasonTimeout, "the paths between its members were not measured within %s",
			g.params.MeasureTimeout))
	}
	for i := range g.past {
		if t := g.past[i].releasing; !t.IsZero() && !t.After(s.now.Time) {
			g.past[i].releasing = time.Time{}
		}
	}
}

// fail releases everything.
func (s *step) fail(why *market.Refusal) {
	g := &s.gang
	g.state, g.reason, g.until = Releasing, why, time.Time{}
	for i := range g.seats {
		if g.seats[i].Phase != 0 {
			s.giveUp(i, true, "the gang failed: "+why.Error())
		}
	}
	s.settleFailure()
}

func (s *step) settleFailure() {
	for _, a := range s.gang.past {
		if !a.releasing.IsZero() {
			return
		}
	}
	s.gang.state = Failed
	s.emit(FailedWith{s.gang.reason, slices.Clone(s.gang.failures)})
}

// advance moves all seats to the next phase together. Leases are signed once all seats are held and, if the order
// bounds the distance, near enough to each other. They are paid for once all are signed.
func (s *step) advance() {
	g := &s.gang
	if g.state == Releasing {
		s.settleFailure()
	}
	if !s.forming() {
		return
	}
	if s.least() < PhaseHeld && s.recruits() {
		recruiter{s}.gather()
		recruiter{s}.forget()
	}
	if s.least() >= PhaseHeld && s.near() {
		for i := range g.seats {
			if seat := &g.seats[i]; seat.Phase == PhaseHeld {
				seat.Phase, seat.deadline = PhaseSigning, s.now.Time.Add(g.params.StepTimeout)
				s.emit(Sign{seat.Rank, seat.Provider, seat.Hold, seat.Units, seat.Overlay})
			}
		}
	}
	if s.least() >= PhaseSigned {
		s.pay()
	}
	if !s.forming() {
		return
	}
	switch least := s.least(); {
	case least >= PhaseActive:
		g.state = Running
		s.emit(Formed{slices.Clone(g.seats)})
	case least >= PhaseSigned:
		g.state = Activating
	case least == PhaseHeld:
		g.state = Measuring
	case least > PhaseHeld:
		g.state = Signing
	default:
		g.state = Reserving
	}
}

// near reports whether the seats are measured, or need not be; else it has them measured. All are held.
func (s *step) near() bool {
	g := &s.gang
	if g.measured || g.params.MeasureTimeout == 0 || s.least() > PhaseHeld {
		return true
	}
	if g.until.IsZero() {
		g.round++
		g.until = s.now.Time.Add(g.params.MeasureTimeout)
		s.emit(Measure{g.round, slices.Clone(g.seats)})
	}
	return false
}

// pay activates all signed seats, unless one has too little time left to be funded: that one is replaced first.
func (s *step) pay() {
	g := &s.gang
	for i := range g.seats {
		seat := g.seats[i]
		if seat.Phase == PhaseSigned && s.forming() &&
			uint64(s.now.Slot)+g.params.FundingSlots > uint64(seat.ActivateBefore) {
			s.drop(i, market.Refuse(market.ReasonUnfunded, "lease: funding deadline: slot %d, now slot %d",
				seat.ActivateBefore, s.now.Slot), true)
		}
	}
	if !s.forming() || s.least() < PhaseSigned {
		return
	}
	for i := range g.seats {
		if seat := &g.seats[i]; seat.Phase == PhaseSigned {
			seat.Phase, seat.deadline = PhaseActivating, s.now.Time.Add(g.params.activation())
			s.emit(Activate{seat.Rank, seat.Provider, seat.Hold, seat.Lease})
		}
	}
}

func (s *step) least() Phase {
	least := PhaseActive
	for _, seat := range s.gang.seats {
		least = min(least, seat.Phase)
	}
	return least
}
