package audit

import "github.com/starling-network/starling/market"

// Work is a stretch of slots in which a unit worked under a lease of the reader's own, signed while the unit's record
// was fresh. Leases between others prove nothing: keys are free, and a provider may lease its units to itself.
type Work struct {
	From market.Slot `json:"from"`
	To   market.Slot `json:"to"` // the first slot that is not meant
}

// Recent is a reader's knowledge of the last windows that have an audit.
type Recent struct {
	Known  Window `json:"known"`  // the newest window of which it knows whether it has one
	Last   Window `json:"last"`   // the newest that has one
	Before Window `json:"before"` // the one before that
}

// Horizon is how many audits back, on average, a reader looks for the last two; none of an older window counts. A
// network misses both in one of 10⁴ windows.
const Horizon = 12

// Every is Recent where each window has an audit.
func Every(now Window) Recent { return Recent{Known: now, Last: now, Before: max(now, 1) - 1} }

// Fresh says why a unit is not sold as proven in slot now by a record that passed: RuleFresh when it is of neither of
// the last two windows with an audit, RuleTime when its window has not begun. A unit that works is not audited, so that
// a record stays fresh for the lease under which its unit was sold, and until the second audit after it. The zero Work
// is none.
//
// The record is verified elsewhere: Record.Check, CheckMembers, CheckDataset and CheckClass.
func Fresh(r Record, slots uint64, recent Recent, now market.Slot, work Work) error {
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
	if last < recent.Before {
		return broken(RuleFresh, "the unit last passed in window %d, the last audits were in %d and %d",
			r.Answer.Window, recent.Before, recent.Last)
	}
	return nil
}
