package audit

import (
	"cmp"
	"slices"

	"github.com/starling-network/starling/market"
)

// Terms are what a reader knows of its network when it judges whether a unit is proven.
type Terms struct {
	WindowSlots uint64
	Fee         Fee
	Price       market.Rate // for what the unit is sold
	// Paid is what the chain has paid so far for a lease of an excuse, fee included. nil where there is no program: nothing burns
	// there, and nobody is excused.
	Paid func(Worked) (market.Amount, error)
}

// Fresh says whether a unit may be sold as proven in slot now by a record that passed: it is of this window or the one before, or
// the unit was excused in every window since, and burned more by the newest of its excuses than it could be sold for meanwhile (Keeps).
// RuleFresh says what is missing, RuleTime that the record is of a window that has not begun; else why an excuse is none.
//
// Excuses may come in any order; those that are not needed are not looked at. Record and excuses are verified elsewhere, but for
// what ties them together: Record.Check, CheckMembers, CheckDataset and CheckClass, Excuse.Check.
func Fresh(r Record, excuses []Excuse, now market.Slot, t Terms) error {
	a, current := r.Answer, WindowOf(now, t.WindowSlots)
	switch {
	case r.WindowSlots != t.WindowSlots || t.WindowSlots == 0:
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, t.WindowSlots)
	case a.Window > current:
		return broken(RuleTime, "the record is of window %d, it is %d now", a.Window, current)
	case current-a.Window <= 1:
		return nil
	case current-a.Window-1 > MaxExcused:
		return broken(RuleFresh, "the unit last passed in window %d, it is %d now", a.Window, current)
	}
	passed := (a.Window + 1).First(t.WindowSlots) // where the record is without its verdicts
	if len(r.Verdicts) > 0 {
		passed = slices.MaxFunc(r.Verdicts, func(a, b Signed) int { return cmp.Compare(a.Slot, b.Slot) }).Slot
	}
	var newest []Busy
	for w := a.Window + 1; w <= current; w++ {
		i := slices.IndexFunc(excuses, func(e Excuse) bool { return e.Window == w })
		switch {
		case i < 0 && w == current: // it may answer yet
			continue
		case i < 0:
			return broken(RuleFresh, "the unit last passed in window %d, and nothing excuses it in window %d", a.Window, w)
		}
		var err error
		if newest, err = t.excuses(r, excuses[i], passed); err != nil {
			return err
		}
	}
	return Keeps(newest, t.Price, (a.Window + 1).First(t.WindowSlots), now)
}

// excuses verifies that an excuse is one of a unit that passed last in a slot, and says what it shows.
func (t Terms) excuses(r Record, e Excuse, passed market.Slot) ([]Busy, error) {
	switch {
	case e.Provider != r.Answer.Provider || e.Unit != r.Answer.Unit || e.WindowSlots != t.WindowSlots:
		return nil, broken(RuleUnit, "the excuse for window %d is another unit's, or of other windows", e.Window)
	case e.Since < passed:
		return nil, broken(RuleExcuse, "the excuse for window %d counts from slot %d, the unit passed in slot %d", e.Window, e.Since, passed)
	}
	return t.Busy(e)
}

// Busy are the stretches that an excuse shows: RuleExcuse when it excuses nothing.
func (t Terms) Busy(e Excuse) ([]Busy, error) {
	if t.Paid == nil {
		return nil, broken(RuleExcuse, "this network burns no fees, so that nobody is excused")
	}
	busy, err := e.Busy(t.Fee, t.Paid)
	if err != nil {
		return nil, because(RuleExcuse, err)
	}
	return busy, Excuses(e.Window, t.WindowSlots, busy)
}
