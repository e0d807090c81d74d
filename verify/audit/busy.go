package audit

import (
	"cmp"
	"slices"

	"github.com/starling-network/starling/market"
)

// Busy is a stretch in which a unit was leased, by a lease and its newest receipt that both sides signed. The caller has verified lease,
// receipt and what was paid.
type Busy struct {
	From, To market.Slot   // To is the first slot that is not meant
	Burned   market.Amount // the unit's share of the fee that was burned for it
}

// Excuses says why a unit need have answered in a window: RuleExcuse when no stretch covers its first slot, or nothing burned. busy is
// of the unit's leases since it last passed.
//
// To be excused earns nothing: an excused window is none that the unit passed, and rewards count those. So this asks for no more than that
// a lease was paid for; what it may be sold for after is for Keeps to say.
func Excuses(w Window, slots uint64, busy []Busy) error {
	first := w.First(slots)
	covered := false
	for _, b := range busy {
		if b.From >= b.To {
			return broken(RuleExcuse, "a stretch from slot %d to %d", b.From, b.To)
		}
		covered = covered || b.From <= first && first < b.To
	}
	burned, err := burned(busy)
	switch {
	case err != nil:
		return err
	case !covered:
		return broken(RuleExcuse, "no receipt covers slot %d, in which window %d began", first, w)
	case burned == 0:
		return broken(RuleExcuse, "nothing burned")
	}
	return nil
}

// Keeps says why a unit may not be sold as proven in slot now for what it burned, since the slot from in which it should have
// answered first: RuleFresh when its price for the slots in which it was not leased is more than that.
//
// One card behind m identities hides m − 1 of them behind leases to itself, which burn φ of their price. In those leases it sells
// nothing: who receipts a slot twice is slashed for it. What it gains is what it sells between them unproven, at most its price P for
// each slot. So that is what must burn: burned ≥ P · idle. After a lease of T slots at φ = 1 % a unit stays proven for T/100 more.
func Keeps(busy []Busy, price market.Rate, from, now market.Slot) error {
	burned, err := burned(busy)
	if err != nil {
		return err
	}
	idle := Idle(busy, from, now)
	sold, err := price.Owed(idle)
	if err != nil || burned <= sold {
		return broken(RuleFresh, "%d burned since the unit passed, and in the %d slots in which it was not leased it could be sold for %d", burned, idle, sold)
	}
	return nil
}

// Idle is how many of the slots from from to now − 1 no stretch covers.
func Idle(busy []Busy, from, now market.Slot) uint64 {
	busy = slices.SortedFunc(slices.Values(busy), func(a, b Busy) int { return cmp.Compare(a.From, b.From) })
	var idle uint64
	for _, b := range busy {
		if b.From > from {
			idle += uint64(min(b.From, max(now, from)) - from)
		}
		from = max(from, b.To)
	}
	return idle + uint64(max(now, from)-from)
}

func burned(busy []Busy) (sum market.Amount, err error) {
	for _, b := range busy {
		if sum, err = sum.Add(b.Burned); err != nil {
			return 0, because(RuleExcuse, err)
		}
	}
	return sum, nil
}
