package gang

import (
	"time"

	"github.com/starling-network/starling/market"
)

// A recruiting gang does not fail if a seat has no spare left: the seat stays vacant, the others keep their holds, and
// the shell collects further quotes until the deadline.
//
//	        refused, lost               Recruited
//	Asked ───────────────▶ vacant ─────────────────────▶ Asked
//	  │                                                    ▲
//	  └── slow: stays, until a recruit takes the seat ─────┤
//	Held ── about to lapse: released, taken anew ──────────┘
//
// Once a lease may have been paid for, a seat that is refused or lost without a spare fails the gang, since the others
// would be paid for waiting. A slow provider keeps its seat for the same time as before, since a failed gang loses the
// first payments.

const (
	// patience is the number of step timeouts for which a slow provider keeps its seat if no other provider is
	// available.
	patience = 4
	// mostPauses bounds how much longer the pause between two Recruits gets.
	mostPauses = 8
	// remembered bounds the failures and the holds given up that a gang keeps, for each seat.
	remembered = 16
)

// recruiter is the part of a step that finds providers for seats without a spare.
type recruiter struct{ *step }

// recruits reports whether a seat without a spare waits for a recruit.
func (s *step) recruits() bool { return s.gang.recruits() }

func (g *Gang) recruits() bool {
	if g.params.Recruit <= 0 {
		return false
	}
	for _, seat := range g.seats {
		if seat.Phase >= PhaseActivating {
			return false
		}
	}
	return true
}

// overdue handles a seat after its provider missed the deadline.
func (s recruiter) overdue(i int) {
	g := &s.gang
	seat := &g.seats[i]
	switch {
	case !seat.after.IsZero(): // the provider's own deadline ended the hold before
		s.request(i)
	case !seat.slow && len(g.spares) == 0 && g.params.Recruit > 0:
		seat.slow, seat.deadline = true, s.now.Time.Add(patience*g.params.StepTimeout) // slow by load is not lost
	default:
		s.late(i)
	}
}

func (s recruiter) late(i int) {
	seat, p := s.gang.seats[i], s.gang.params
	took := p.StepTimeout
	if seat.Phase == PhaseActivating {
		took = p.activation()
	}
	if seat.slow {
		took += patience * p.StepTimeout
	}
	s.drop(i, market.Refuse(market.ReasonTimeout, "no answer within %s while %s", took, seat.Phase), true)
}

// recruited takes further providers in.
func (s recruiter) recruited(ev Recruited) {
	g := &s.gang
	if !s.forming() || ev.Round != g.recruit || !g.recruiting {
		return
	}
	g.recruiting = false
	g.recruitAt = s.now.Time.Add(g.params.Recruit * time.Duration(min(g.recruit, mostPauses)))
	g.spares = append(g.spares[:len(g.spares):len(g.spares)], ev.Providers...)
	g.fresh = len(g.failures) // they answered since
	for i := range g.seats {
		seat := g.seats[i]
		if seat.slow && seat.Phase < PhaseActivating && len(g.spares) > 0 && s.forming() {
			s.drop(i, market.Refuse(market.ReasonTimeout, "slow while %s; replaced by another provider",
				seat.Phase), true)
		}
	}
}

// gather fills vacant seats, renews expiring holds, and recruits if that is not enough. At least one seat is not held.
func (s recruiter) gather() {
	g := &s.gang
	var missing []uint32
	for i := range g.seats {
		seat := &g.seats[i]
		switch {
		case seat.Phase == PhaseHeld && s.lapses(seat):
			s.renew(i)
		case seat.Phase == 0 && !s.fill(i), seat.slow:
			missing = append(missing, seat.Rank)
		}
	}
	if len(missing) == 0 || g.recruitAt.After(s.now.Time) {
		return
	}
	g.recruit++
	g.recruiting, g.recruitAt = true, s.now.Time.Add(g.params.RecruitTimeout)
	s.emit(Recruit{g.recruit, missing})
}

// lapsing returns the time to renew a hold, so that its release is confirmed before it expires.
func (p *Params) lapsing(seat *Seat) time.Time {
	if seat.Phase != PhaseHeld || seat.until.IsZero() {
		return time.Time{}
	}
	return seat.until.Add(-p.ReleaseTimeout)
}

func (s recruiter) lapses(seat *Seat) bool {
	at := s.gang.params.lapsing(seat)
	return !at.IsZero() && !at.After(s.now.Time)
}

// renew releases the hold of a seat, and then requests another one from its provider.
func (s recruiter) renew(i int) {
	g := &s.gang
	old := g.seats[i]
	s.giveUp(i, true, "hold: expires before every rank is held")
	g.seats[i] = Seat{Rank: old.Rank, Provider: old.Provider, Hold: s.nextHold(i), Phase: PhaseAsked, after: old.Hold,
		deadline: s.now.Time.Add(g.params.ReleaseTimeout)}
}

// nextHold numbers the hold of the next request for a seat.
func (s *step) nextHold(i int) market.HoldID {
	g := &s.gang
	hold := market.NewHoldID(g.params.Secret, g.order.ID, g.seats[i].Rank, g.attempts[i])
	g.attempts[i]++
	return hold
}

// request sends the request of a seat.
func (s *step) request(i int) {
	seat := &s.gang.seats[i]
	seat.after, seat.deadline = market.HoldID{}, s.now.Time.Add(s.gang.params.StepTimeout)
	s.emit(Reserve{seat.Rank, seat.Provider, seat.Hold})
}

// forget bounds the memory of a gang that recruits for a long time. It drops the oldest failures, and the oldest holds
// that are released or past their deadline.
func (s recruiter) forget() {
	g := &s.gang
	most := remembered * (len(g.seats) + 4)
	if over := len(g.failures) - most; over > 0 {
		g.failures, g.fresh = g.failures[over:], max(0, g.fresh-over)
	}
	for i := 0; i < len(g.past) && len(g.past) > most; {
		if !g.past[i].releasing.IsZero() {
			i++
			continue
		}
		g.past = append(g.past[:i], g.past[i+1:]...)
	}
}
