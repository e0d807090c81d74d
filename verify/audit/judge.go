package audit

import (
	"slices"

	"github.com/starling-network/starling/market"
)

// Timing is a committee's measure of an audit's times, microseconds.
type Timing struct {
	Product uint64 `json:"product_us"`
	Walk    uint64 `json:"walk_us"`
}

// never is the time of an event that a member did not see.
const never = 1<<64 - 1

// Timing returns the least times that more than two thirds of the whole committee confirm. Lies of up to a third of it
// cannot move a figure past an honest member's. A member without a verdict confirms nothing. A median of the given
// verdicts could depend on three friends, if a provider invites five of seven.
func (r Record) Timing() Timing { return r.timing(Certify(int(r.Committee)) - 1) }

// timing takes the times at a place in ascending order.
func (r Record) timing(at int) Timing {
	return Timing{
		Product: r.kept(at, func(v Verdict) uint64 { return v.Product }),
		Walk:    r.kept(at, func(v Verdict) uint64 { return v.Walk }),
	}
}

// kept is one figure at a place in ascending order of the committee, or never if fewer saw it.
func (r Record) kept(at int, of func(Verdict) uint64) uint64 {
	xs := make([]uint64, 0, Appeal)
	for _, v := range r.Verdicts {
		if v.Outcome != Wrong {
			xs = append(xs, of(v.Verdict))
		}
	}
	if slices.Sort(xs); at < 0 || at >= len(xs) {
		return never
	}
	return xs[at]
}

// MaxTrip is the network's part in each of an audit's two times, microseconds: a round trip to the farthest member. It
// is a constant, so answering pings late gains nothing. A provider may leave out members that are farther, if enough
// remain. A provider near its members can use the time itself: on a large card it hides a twentieth to a seventh of its
// memory.
const MaxTrip = 200_000

// CheckClass verifies that a record proves a unit of the class with these resources: its challenge is Plan's, and its
// answer keeps the class's floor. It returns RuleShape or RuleFloor. A failure has no penalty: the unit sells nothing.
func (r Record) CheckClass(class market.Class, res market.Resources) error {
	shape, walk, err := Plan(class, res)
	if err != nil {
		return because(RuleShape, err)
	}
	if r.Answer.Shape != shape || r.Answer.Walk != walk {
		return broken(RuleShape, "challenge of %s and %s, class %s has %s and %s",
			r.Answer.Shape, r.Answer.Walk, class, shape, walk)
	}
	floor, _ := FloorOf(class, res)
	return floor.check(r, r.Timing())
}

// FailsClass reports whether more than two thirds of the committee saw the unit fail its class, which counts as a
// failed audit. Results between passing and failing can be caused by liars in the committee.
func (r Record) FailsClass(class market.Class, res market.Resources) bool {
	floor, ok := FloorOf(class, res)
	n := int(r.Committee)
	if n < 1 {
		return false
	}
	t := r.timing(n - Certify(n))
	return ok && t.Product != never && floor.check(r, t) != nil
}

func (f Floor) check(r Record, t Timing) error {
	product, walk := f.Deadlines(r.Answer.Shape, r.Answer.Walk)
	const spare = MaxTrip + Allowance
	switch {
	case t.Product > product+spare:
		return broken(RuleFloor, "products took %d µs; at the floor of the class they may take %d and %d",
			t.Product, product, spare)
	case t.Walk > walk+spare:
		return broken(RuleFloor, "the walk took %d µs; at the floor of the class it may take %d and %d",
			t.Walk, walk, spare)
	}
	return nil
}

// Judge is a member's outcome for an answer with right or wrong results. It is Late only after Patience: lateness is
// decided by all members' times together, in CheckClass.
func Judge(floor Floor, r Record, v Verdict, right bool) Outcome {
	product, walk := floor.Deadlines(r.Answer.Shape, r.Answer.Walk)
	switch {
	case !right:
		return Wrong
	case v.Product > Patience(product) || v.Walk > Patience(walk):
		return Late
	}
	return Pass
}

// Patience is a member's wait for work with this deadline at the class's floor, microseconds.
func Patience(deadline uint64) uint64 { return 4*deadline + 2_000_000 }

// MaxRates is the number of a unit's last records that determine its capacity.
const MaxRates = 24

// Capacity is the capacity that a unit may sell by its last records, at most MaxRates of them, in any order. It is the
// tenth percentile of each rate and the least memory. So a card that is slow at times sells its slow rate, and one
// lucky audit gains nothing. It is zero without records.
func Capacity(last []Rates) Rates {
	if len(last) == 0 {
		return Rates{}
	}
	pick := func(of func(Rates) uint64, at int) uint64 {
		xs := make([]uint64, len(last))
		for i, r := range last {
			xs[i] = of(r)
		}
		slices.Sort(xs)
		return xs[at]
	}
	low := len(last) / 10
	return Rates{
		Operations: pick(func(r Rates) uint64 { return r.Operations }, low),
		Reads:      pick(func(r Rates) uint64 { return r.Reads }, low),
		Memory:     pick(func(r Rates) uint64 { return r.Memory }, 0),
	}
}

// Work is a stretch of slots in which a unit worked under a lease of the reader's own, signed while the unit's record
// was fresh. Leases between others prove nothing: keys are free, and a provider may lease its units to itself.
type Work struct {
	From market.Slot `json:"from"`
	To   market.Slot `json:"to"` // the first slot that is not meant
}

// Recent is a reader's knowledge of the last windows that have an audit.
type Recent struct {
	Known  Window `json:"known"`  // the newest window with a known draw
	Last   Window `json:"last"`   // the newest that has one
	Before Window `json:"before"` // the one before that
}

// Horizon is the number of audits, on average, within which a reader searches the last two; older windows do not count.
// A network misses both in one of 10⁴ windows.
const Horizon = 12

// Every is Recent where each window has an audit.
func Every(now Window) Recent { return Recent{Known: now, Last: now, Before: max(now, 1) - 1} }

// Fresh returns an error if a passed record does not prove its unit in slot now. It is RuleFresh if the record is of
// neither of the last two windows with an audit, and RuleTime if its window has not begun. A unit that works is not
// audited, so that a record stays fresh for the lease under which its unit was sold, and until the second audit after
// it. The zero Work is none.
//
// The record is verified elsewhere: Record.Check, CheckMembers, CheckDataset and CheckClass.
func Fresh(r Record, slots uint64, recent Recent, now market.Slot, work Work) error {
	last, current := r.Answer.Window, WindowOf(now, slots)
	switch {
	case r.WindowSlots != slots || slots == 0:
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, slots)
	case last > current:
		return broken(RuleTime, "record: of window %d, now %d", last, current)
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
