package drand

import (
	"github.com/starling-network/starling/market"
)

// Schedule says which rounds windows are drawn by.
//
// A window begins in a slot, a round at a time, and peers do not know to the second when a slot began. So only every step-th round
// is one that windows are drawn by, a sixteenth of a window apart: a window's is the first at or after its beginning. Peers whose
// clocks differ by seconds differ only where a window begins within seconds of such a round, and there a reader takes either, for a
// provider gains one more draw by it and no more.
type Schedule struct {
	genesis, period uint64 // seconds
	window          uint64 // rounds in a window, at least 1
	step            uint64
}

// stepsInWindow is how many of a window's rounds are ones that windows are drawn by.
const stepsInWindow = 16

// NewSchedule is the schedule of a network; its genesis must be valid, with audits drawn by drand.
func NewSchedule(g market.Genesis) Schedule {
	s := Schedule{genesis: g.Drand.GenesisTime, period: uint64(max(g.Drand.Period, 1))}
	s.window = max(g.AuditSlots*g.SlotMillis/(1000*s.period), 1)
	s.step = max(s.window/stepsInWindow, 1)
	return s
}

// Time is when a round begins, seconds since 1970.
func (s Schedule) Time(round uint64) uint64 {
	return s.genesis + (max(round, 1)-1)*s.period
}

// After is the round of a window that began at a time, in seconds since 1970.
func (s Schedule) After(begin uint64) uint64 {
	rounds := uint64(1) // the first round at or after begin
	if begin > s.genesis {
		rounds = 1 + (begin-s.genesis+s.period-1)/s.period
	}
	return (rounds + s.step - 1) / s.step * s.step
}

// Fits reports whether a round may be that of a window which began at a time, known to within so many seconds.
func (s Schedule) Fits(round, begin, within uint64) bool {
	if round < 1 || round%s.step != 0 {
		return false
	}
	return round >= s.After(begin-min(begin, within)) && round <= s.After(begin+within)
}

// Drawn reports whether windows are ever drawn by a round.
func (s Schedule) Drawn(round uint64) bool { return round >= 1 && round%s.step == 0 }

// Era is the round that the datasets of a window's units are made of: the same for so many windows, and at least one window before
// the window's own round.
func (s Schedule) Era(round uint64, windows uint64) uint64 {
	era := s.window * windows
	return max((round-min(round, s.window))/era*era, 1)
}
