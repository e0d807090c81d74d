package audit

import "github.com/starling-network/starling/market"

// Work is a stretch of slots in which a unit worked under a lease of the reader's own, signed while the unit's record was fresh. Leases
// between others prove nothing: keys are free, and a provider may lease its units to itself.
type Work struct {
	From market.Slot `json:"from"`
	To   market.Slot `json:"to"` // the first slot that is not meant
}

// Fresh says why a unit is not sold as proven in slot now by a record that passed: RuleFresh when it is of neither this window nor the one
// before, RuleTime when its window has not begun. A unit that works is not audited, so that a record stays fresh for the lease under which
// its unit was sold, and one window after it. The zero Work is none.
//
// The record is verified elsewhere: Record.Check, CheckMembers, CheckDataset and CheckClass.
func Fresh(r Record, slots uint64, now market.Slot, work Work) error {
	last, current := r.Answer.Window, WindowOf(now, slots)
	switch {
	case r.WindowSlots != slots || slots == 0:
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, slots)
	case last > current:
		return broken(RuleTime, "the record is of window %d, it is %d now", last, current)
	}
	if work.From >= last.First(slots) && work.From < work.To {
		last = max(last, WindowOf(work.To-1, slots))
	}
	if current > last && current-last > 1 {
		return broken(RuleFresh, "the unit last passed in window %d, it is %d now", r.Answer.Window, current)
	}
	return nil
}
