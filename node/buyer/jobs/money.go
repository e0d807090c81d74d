package jobs

import (
	"math"
	"math/bits"
	"time"

	"github.com/starling-network/starling/market"
)

// Promised returns the most that the job can cost by all that it has leased, ordered, renewed and granted.
func (s *State) Promised() (sum market.Amount) {
	for i := range s.Leases {
		sum = sum.Plus(s.Leases[i].Most)
	}
	for i := range s.Gangs {
		sum = sum.Plus(s.Gangs[i].Cap)
	}
	for i := range s.Renewals {
		sum = sum.Plus(s.Renewals[i].Cap)
	}
	for i := range s.Grants {
		sum = sum.Plus(s.Grants[i].Most)
	}
	return sum
}

// left returns the part of the budget that is not promised. It is 0 after a failed scale-up with leases that exceed the
// restored budget (R7).
func (s *State) left() market.Amount { return s.Params.Budget - min(s.Promised(), s.Params.Budget) }

// slotsFor returns the slots that an amount pays at a rate.
func slotsFor(r market.Rate, a market.Amount) uint64 {
	hi, lo := bits.Mul64(uint64(a), market.RateScale)
	if hi >= uint64(r) { // more than fit, or free
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, uint64(r))
	return q
}

// span returns the slots that a lease begun now must last: the job's remaining time, plus two intervals for the last
// receipt and the outputs.
func (s *State) span(now time.Time) uint64 {
	return s.Params.slotsIn(max(s.remaining(now), time.Second)) + 2*s.Params.Interval
}

// whole reports whether a lease of so many slots lasts for the remaining time of a job. An interval may be missing:
// shares of the budget are rounded.
func (p Params) whole(slots uint64, remaining time.Duration) bool {
	return slots+p.Interval >= p.slotsIn(max(remaining, time.Second))
}

// allot returns the length of n more leases and their cost together. The money is shared by all ranks that still need a
// lease. It reports false if it does not pay for one interval each.
func (s *State) allot(now time.Time, n int) (slots uint64, cost market.Amount, ok bool) {
	among := 0
	for i := range s.Ranks {
		r := &s.Ranks[i]
		if r.Lease.IsZero() && r.State != RankDone && r.Doing != Ordering && !s.leaving(i) {
			among++
		}
	}
	among = max(n, among)
	if s.Params.Guarded && s.Started.IsZero() {
		among += int(s.Params.Standbys)
	}
	slots = min(s.span(now), slotsFor(s.Params.Rate, s.left()/market.Amount(among)))
	if slots < s.Params.Interval {
		return 0, 0, false
	}
	one, err := s.Params.Rate.Owed(slots)
	if err == nil {
		cost, err = one.Times(uint64(n))
	}
	return slots, cost, err == nil
}
