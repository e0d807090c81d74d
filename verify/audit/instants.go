package audit

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Instants determines the windows of a network that have an audit, and its beginning: one instant for every unit of the
// network. Signatures cannot reveal one card behind several identities. Simultaneous answers can: if identities could
// answer one after the other, one card could be sold as many.
//
//	first slot                 instant: half a minute later                        next window
//	    │                  early ◀┼▶ late: the first attempt                            │
//	    ├─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─ ─┼──▶ + 1/8 for each later attempt, of units that ─ ─ ─ ┤
//	  block of the beacon, which  │    worked in the one before
//	  draws whether there is an audit
//
// A window's own beacon draws whether it has an audit, independently of all other windows. So an audit is unpredictable
// before the block of its beacon, half a minute before the instant. It is equally likely at all times, also right after
// an audit. A peer that is to be present for all audits must be present always.
//
// An attempt that loses a member continues to its end with the others. Only members that saw the unit work in it give a
// nonce for the next (node/audit). So a later attempt needs no common instant: units that share a card did not work in
// the first.
type Instants struct {
	Slots  uint64 // of a window
	Millis uint64 // of a slot
	OneIn  uint64 // windows for each that has an audit, on average; 0 and 1: each has
}

// NewInstants is the instants of a network.
func NewInstants(g market.Genesis) Instants {
	return Instants{Slots: g.AuditSlots, Millis: g.SlotMillis, OneIn: g.AuditOneIn}
}

// Fires reports whether the window of a beacon has an audit.
func (i Instants) Fires(b Beacon) bool {
	if i.OneIn <= 1 {
		return true
	}
	h := sign.Sum([]byte("starling/audit/fires/v1"), b.bytes())
	return binary.LittleEndian.Uint64(h[:]) < math.MaxUint64/i.OneIn
}

// Audits is the number of windows that have n audits, on average. Memory of audits is counted in these.
func (i Instants) Audits(n uint64) Window { return Window(n * max(i.OneIn, 1)) }

// Ago returns the window that is, on average, the given number of audits before w, or the first window.
func (i Instants) Ago(w Window, audits uint64) Window { return w - min(w, i.Audits(audits)) }

// lead is the time from a window's first slot to its audit, milliseconds. The block is final after a third to a half of
// it; the rest is for filling datasets.
const lead = 30_000

// Of is the slot in which a window's first attempts begin: half a minute after its first, or in the middle of a shorter
// window.
func (i Instants) Of(w Window) market.Slot {
	return w.First(i.Slots) + market.Slot(min(i.slots(lead), i.Slots/2))
}

// slots is how many slots cover a time.
func (i Instants) slots(millis uint64) uint64 { return (millis + i.Millis - 1) / max(i.Millis, 1) }

// Width is how far from its instant an attempt may begin, by the slot that a member sees.
type Width struct{ Early, Late uint64 } // slots before, and slots from the instant on

// The maximum distance of an attempt's begin from the instant, in milliseconds. On a GPU a second identity must compute
// its products and fill its dataset again before it walks, since two datasets do not fit. So the sum of this and Within
// must be short. A processor's datasets are small, and its machine may be busy: there the time allows for wrong clocks
// and slow hosts.
const (
	gpuEarly, gpuLate = 800, 1_200
	anyEarly, anyLate = 5_000, 10_000
)

// Width returns the width of a class, in the network's slots: at most a sixteenth of the window early and an eighth
// late. Without a class, it returns the greatest width.
func (i Instants) Width(class market.Class) Width {
	early, late := uint64(anyEarly), uint64(anyLate)
	if class.Family() == "gpu" {
		early, late = gpuEarly, gpuLate
	}
	return Width{Early: min(i.slots(early), i.Slots/16), Late: max(min(i.slots(late), i.Slots/8), 1)}
}

// Span is the slots in which an attempt of a class may begin, from and to, without to.
func (i Instants) Span(w Window, attempt uint8, class market.Class) (from, to market.Slot) {
	at, width := i.Of(w), i.Width(class)
	return at - market.Slot(width.Early), at + market.Slot(width.Late+uint64(max(attempt, 1)-1)*(i.Slots/8))
}

// Check reports whether an attempt of a window, of which this is the beacon, may begin in a slot. RuleInstant.
func (i Instants) Check(w Window, b Beacon, attempt uint8, class market.Class, slot market.Slot) error {
	if i.Slots == 0 || i.Millis == 0 {
		return broken(RuleInstant, "a network without windows")
	}
	if !i.Fires(b) {
		return broken(RuleInstant, "window %d has no audit", w)
	}
	if from, to := i.Span(w, attempt, class); slot < from || slot >= to {
		return broken(RuleInstant, "attempt %d of window %d begins in slots %d to %d, not in %d",
			attempt, w, from, to-1, slot)
	}
	return nil
}

// Within is the time limit from the first nonce to the request for a unit's second, microseconds, for products that
// take this long at the class's floor. After it a member answers that the unit is late. It bounds the card's other work
// before it walks.
func Within(class market.Class, product uint64) uint64 {
	if class.Family() == "gpu" {
		return product + Allowance + MaxTrip + lostPacket
	}
	return Patience(product) + 5_000_000
}

// Whole is the maximum time in microseconds between the first nonce and the answer, for a unit to be judged in another
// attempt. Product and walk are the times at the class's floor. It allows for one lost packet, but not for the creation
// of a dataset.
func Whole(class market.Class, product, walk uint64) uint64 {
	if class.Family() == "gpu" {
		return product + walk + 2*(Allowance+MaxTrip) + lostPacket
	}
	return Within(class, product) + Patience(walk)
}

// lostPacket is the delay of a lost packet between a root and the request for the next nonce, microseconds.
const lostPacket = 700_000

// CheckInstant verifies that more than two thirds of the committee saw the attempt begin at the window's instant,
// within the width of the class. If class is empty, it uses the greatest width. RuleInstant.
func (r Record) CheckInstant(i Instants, class market.Class) error {
	if r.WindowSlots != i.Slots {
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, i.Slots)
	}
	need, saw := Certify(int(r.Committee)), 0
	if r.Committee < 1 || r.Committee > Appeal || len(r.Verdicts) < need {
		return broken(RuleMajority, "%d verdicts of a committee of %d", len(r.Verdicts), r.Committee)
	}
	var why error
	for _, v := range r.Verdicts {
		if err := i.Check(r.Answer.Window, r.Beacon, r.Answer.Attempt, class, v.Slot); err != nil {
			why = err
			continue
		}
		saw++
	}
	if saw < need {
		return because(RuleInstant, fmt.Errorf("%d of a committee of %d saw the audit begin in time, want %d: %w",
			saw, r.Committee, need, why))
	}
	return nil
}
