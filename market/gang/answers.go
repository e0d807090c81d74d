package gang

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
)

// missing names the ranks that hold the gang up.
func (s *step) missing() string {
	text := ""
	for _, seat := range s.gang.seats {
		if seat.Phase.waiting() {
			text += fmt.Sprintf("; rank %d: %s %s", seat.Rank, seat.Provider.Short(), seat.Phase)
		}
	}
	return text
}

// expect returns the seat that waits in phase for an answer under this hold, or -1. A success for an abandoned hold, or
// after the gang's end, is answered with a release.
func (s *step) expect(rank uint32, hold market.HoldID, phase Phase) int {
	for i := range s.gang.seats {
		if seat := &s.gang.seats[i]; seat.Hold == hold && seat.Rank == rank {
			if s.forming() && seat.Phase == phase && seat.after.IsZero() {
				return i
			}
			seat.odd = seat.odd || seat.Phase < phase
			return -1
		}
	}
	for i := range s.gang.past {
		if a := &s.gang.past[i]; a.hold == hold && a.rank == rank {
			s.release(a, market.LeaseID{}, "late answer")
		}
	}
	return -1
}

func (s *step) held(ev Held) {
	i := s.expect(ev.Rank, ev.Hold, PhaseAsked)
	if i < 0 {
		return
	}
	seat := &s.gang.seats[i]
	units, err := market.SortUnits(ev.Units)
	if err != nil || len(units) != int(s.gang.order.UnitsPer) {
		s.drop(i, market.Refuse(market.ReasonTerms, "hold: got %d units, want %d",
			len(ev.Units), s.gang.order.UnitsPer), true)
		return
	}
	for _, other := range s.gang.seats {
		for _, u := range other.Units {
			if _, twice := slices.BinarySearchFunc(units, u, market.UnitID.Compare); twice {
				s.drop(i, market.Refuse(market.ReasonConflict, "hold: unit %s: already in rank %d",
					u.Short(), other.Rank), true)
				return
			}
		}
	}
	if why := s.badKey(ev.Overlay); why != nil {
		s.drop(i, why, true)
		return
	}
	seat.Phase, seat.Units, seat.Overlay, seat.until, seat.slow = PhaseHeld, units, ev.Overlay, ev.Until, false
}

// badKey returns the refusal of an overlay key that no member of this gang can have, else nil.
func (s *step) badKey(key market.OverlayKey) *market.Refusal {
	if !s.gang.params.Overlay {
		if !key.IsZero() {
			return market.Refuse(market.ReasonTerms, "overlay key: given for a lease without an overlay")
		}
		return nil
	}
	if key.IsZero() {
		return market.Refuse(market.ReasonTerms, "hold: no overlay key")
	}
	if err := key.Check(); err != nil {
		return market.Refuse(market.ReasonTerms, "%v", err)
	}
	for _, other := range s.gang.seats {
		if other.Overlay == key {
			return market.Refuse(market.ReasonConflict, "hold: same overlay key as rank %d", other.Rank)
		}
	}
	return nil
}

// measured frees the seats of providers that are too far from the others.
func (s *step) measured(ev Measured) {
	g := &s.gang
	if !s.forming() || ev.Round != g.round || g.until.IsZero() {
		return
	}
	g.until, g.measured = time.Time{}, true
	for _, u := range ev.Unfit {
		for i := range g.seats {
			if seat := g.seats[i]; s.forming() && seat.Rank == u.Rank && seat.Hold == u.Hold && u.Reason != nil {
				s.drop(i, u.Reason, true)
			}
		}
	}
}

// gone handles a refusal or a loss: of a seat, or of a pending release.
func (s *step) gone(rank uint32, hold market.HoldID, why *market.Refusal, refused bool) {
	if why == nil {
		why = &market.Refusal{Reason: market.ReasonLost, Detail: "no reason given"}
	}
	for i := range s.gang.seats {
		seat := s.gang.seats[i]
		if seat.Hold != hold || seat.Rank != rank || !s.forming() {
			continue
		}
		if refused && !seat.Phase.waiting() || !seat.after.IsZero() {
			return // an answer without a request
		}
		// A provider that refused a hold holds no units, unless it granted the hold before.
		s.drop(i, why, !refused || seat.Phase != PhaseAsked || seat.odd)
		return
	}
	s.confirmed(hold)
}

func (s *step) confirmed(hold market.HoldID) {
	for i := range s.gang.past {
		if s.gang.past[i].hold == hold {
			s.gang.past[i].releasing = time.Time{}
		}
	}
	for i := range s.gang.seats {
		if s.gang.seats[i].after == hold && !hold.IsZero() && s.forming() {
			s.request(i)
		}
	}
}
