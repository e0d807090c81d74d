package audit

import (
	"github.com/starling-network/starling/market"
)

// Busy is a stretch in which a unit worked, by one receipt that both sides signed and that was settled. The caller has verified
// receipt and settlement.
type Busy struct {
	From, To market.Slot   // To is the first slot that is not meant
	Burned   market.Amount // the unit's share of the fee that was burned for it
}

// Worth is what hiding a unit for one window could earn.
type Worth struct {
	Reward market.Amount // what the network pays for a window's proven uptime
	Price  market.Rate   // for what the unit could be sold, millionths of a base unit per slot
}

// Suffices says whether a unit was busy when a window began, and so need not have answered: RuleExcuse when no stretch covers the
// window's first slot, or when what was burned does not exceed what hiding would earn.
//
// One card behind m identities hides m − 1 of them in each window. A lease to oneself costs φ of its price, which burns. An
// excused unit earns the window's reward ρ, so the burned sum must exceed ρ; and it stays suspended until it passes, so the
// hidden identity has nothing to sell. A unit may go on being listed (keeps) only where that is worth no more than what was
// burned since it last passed: burned > ρ + P·L, the price P of one window of L slots that it could then sell unproven. At
// φ = 2 % that is so after 50 windows of one lease.
//
// busy is of the leases that cover the window's first slot, since the unit last passed.
func Suffices(w Window, slots uint64, busy []Busy, worth Worth) (keeps bool, err error) {
	first := w.First(slots)
	covered := false
	var burned market.Amount
	for _, b := range busy {
		if b.From >= b.To {
			return false, broken(RuleExcuse, "a stretch from slot %d to %d", b.From, b.To)
		}
		covered = covered || b.From <= first && first < b.To
		if burned, err = burned.Add(b.Burned); err != nil {
			return false, because(RuleExcuse, err)
		}
	}
	if !covered {
		return false, broken(RuleExcuse, "no receipt covers slot %d, in which window %d began", first, w)
	}
	if burned <= worth.Reward {
		return false, broken(RuleExcuse, "%d burned, to be excused earns %d", burned, worth.Reward)
	}
	sold, err := worth.Price.Owed(slots)
	if err != nil {
		return false, because(RuleExcuse, err)
	}
	gain, err := sold.Add(worth.Reward)
	return err == nil && burned > gain, nil
}
