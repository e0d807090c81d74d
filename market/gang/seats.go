package gang

import (
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// drop takes the seat from its provider and gives it to the next spare, or fails the gang.
func (s *step) drop(i int, why *market.Refusal, release bool) {
	g := &s.gang
	seat := g.seats[i]
	g.failures = append(g.failures, Failure{seat.Rank, seat.Provider, why})
	g.until, g.measured = time.Time{}, false // the seat's next provider must be measured, too
	s.giveUp(i, release, why.Error())
	if s.fill(i) || s.recruits() {
		return
	}
	s.fail(market.Refuse(market.ReasonUnanswered, "rank %d: no provider, %d tried; last, %s: %s",
		seat.Rank, g.attempts[i], seat.Provider.Short(), why))
}

// fill gives a seat to the next spare. It returns false if none is left.
func (s *step) fill(i int) bool {
	g := &s.gang
	for len(g.spares) > 0 {
		next := g.spares[0]
		g.spares = g.spares[1:]
		if next == g.order.Buyer || next == g.order.Agent || s.silent(next) {
			continue
		}
		s.ask(i, next)
		return true
	}
	return false
}

// silent reports whether a request to the provider already timed out.
func (s *step) silent(p sign.Key) bool {
	return slices.ContainsFunc(s.gang.failures[s.gang.fresh:], func(f Failure) bool {
		return f.Provider == p && (f.Refusal.Reason == market.ReasonTimeout || f.Refusal.Reason == market.ReasonLost)
	})
}

// giveUp empties the seat and remembers its hold.
func (s *step) giveUp(i int, release bool, why string) {
	seat := s.gang.seats[i]
	s.gang.seats[i] = Seat{Rank: seat.Rank}
	if !seat.after.IsZero() {
		return // no request under this hold
	}
	s.gang.past = append(s.gang.past, attempt{rank: seat.Rank, provider: seat.Provider, hold: seat.Hold})
	if release {
		s.release(&s.gang.past[len(s.gang.past)-1], seat.Lease, why)
	}
}

func (s *step) release(a *attempt, id market.LeaseID, why string) {
	a.releasing = s.now.Time.Add(s.gang.params.ReleaseTimeout)
	s.emit(Release{a.rank, a.provider, a.hold, id, why})
}

func (s *step) ask(i int, provider sign.Key) {
	s.gang.seats[i] = Seat{Rank: s.gang.seats[i].Rank, Provider: provider, Hold: s.nextHold(i), Phase: PhaseAsked}
	s.request(i)
}
