package audit

import (
	"slices"

	"github.com/starling-network/starling/market"
)

// Timing is what a committee says of an audit's times, microseconds.
type Timing struct {
	Product uint64 `json:"product_us"`
	Walk    uint64 `json:"walk_us"`
}

// never is the time of what a member did not see.
const never = 1<<64 - 1

// Timing is the least times that more than two thirds of the whole committee saw kept: a third of it may lie either way without
// moving a figure past an honest member's, and a member that gave no verdict saw nothing. A median of those who gave one would be
// the word of three friends where a provider asks five of seven.
func (r Record) Timing() Timing { return r.timing(Certify(int(r.Committee)) - 1) }

// timing takes the times at a place in ascending order.
func (r Record) timing(at int) Timing {
	return Timing{
		Product: r.kept(at, func(v Verdict) uint64 { return v.Product }),
		Walk:    r.kept(at, func(v Verdict) uint64 { return v.Walk }),
	}
}

// kept is one figure at a place in ascending order of the committee: never where there are fewer who saw it.
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

// MaxTrip is what every audit is given for the network in each of its two times, microseconds: the way to the farthest member and
// back. It is the same for all and nobody measures it, so nothing is gained by answering pings late. A provider leaves out members
// that are farther, as long as enough are left. A provider that is near its members has the time for itself: on a large card it hides
// a twentieth to a seventh of its memory.
const MaxTrip = 200_000

// CheckClass verifies that a record shows what a unit of the class with these resources must show: it was asked what Plan says and
// answered at the class's floor. RuleShape or RuleFloor. Nobody is punished for a record that fails: it sells nothing.
func (r Record) CheckClass(class market.Class, res market.Resources) error {
	shape, walk, err := Plan(class, res)
	if err != nil {
		return because(RuleShape, err)
	}
	if r.Answer.Shape != shape || r.Answer.Walk != walk {
		return broken(RuleShape, "asked %s and %s, a unit of %s is asked %s and %s", r.Answer.Shape, r.Answer.Walk, class, shape, walk)
	}
	floor, _ := FloorOf(class, res)
	return floor.check(r, r.Timing())
}

// FailsClass reports that more than two thirds of the committee saw the unit fail its class: what counts as a failed audit. Between passing and failing lies what liars in the committee can bring about.
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
		return broken(RuleFloor, "products took %d µs; at the floor of the class they may take %d and %d", t.Product, product, spare)
	case t.Walk > walk+spare:
		return broken(RuleFloor, "the walk took %d µs; at the floor of the class it may take %d and %d", t.Walk, walk, spare)
	}
	return nil
}

// Judge is what a member says of an answer whose computed parts are right or wrong: Late only after Patience, for what
// is late is decided by all members' times together, in CheckClass.
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

// Patience is how many microseconds a member waits for what takes so many at the class's floor.
func Patience(deadline uint64) uint64 { return 4*deadline + 2_000_000 }

// MaxRates is how many of a unit's last records say what it may sell.
const MaxRates = 24

// Capacity is what a unit may sell by its last records, at most MaxRates of them, in any order: the tenth percentile of each rate
// and the least memory. So a card that is slow now and then sells what it is when slow, and one lucky
// audit is worth nothing. Zero without records.
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
