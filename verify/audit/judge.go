package audit

import (
	"slices"

	"github.com/starling-network/starling/market"
)

// MaxDistance is how much longer than a ping the fastest rapid round may take, microseconds: hardware farther away than that is not
// where the provider is.
const MaxDistance = 8_000

// RapidRounds is how many rapid rounds a member asks: walks of one walker, one after the other, each started by the end of the one
// before. The fastest counts, so noise would have to hold 32 times.
const RapidRounds = 32

// Timing is what a committee says of an audit's times, microseconds.
type Timing struct {
	Product  uint64 `json:"product_us"`
	Walk     uint64 `json:"walk_us"`
	Trip     uint64 `json:"trip_us"`
	Distance uint64 `json:"distance_us"`
}

// never is the time of what a member did not see.
const never = 1<<64 - 1

// Timing is the least times that more than two thirds of the whole committee saw kept: a third of it may lie either way without
// moving a figure past an honest member's, and a member that gave no verdict saw nothing. (A median of those who gave one would be
// the word of three friends where a provider asks five of seven.) Trip is that of the farthest member, at most MaxTrip: the
// provider waits for its nonce, and a near member sees that too.
func (r Record) Timing() Timing { return r.timing(Certify(int(r.Committee)) - 1) }

// timing takes the times at a place in ascending order.
func (r Record) timing(at int) Timing {
	t := Timing{Product: r.kept(at, product), Walk: r.kept(at, walked), Distance: r.kept(at, distance)}
	for _, v := range r.Verdicts { // of those too who found it wrong: their nonces were waited for
		t.Trip = min(max(t.Trip, uint64(v.RoundTrip)), MaxTrip)
	}
	return t
}

func product(v Verdict) uint64  { return v.Product }
func walked(v Verdict) uint64   { return v.Walk }
func distance(v Verdict) uint64 { return uint64(v.Rapid) - uint64(min(v.Rapid, v.RoundTrip)) }

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

// MaxTrip is the longest round trip, microseconds, for which a provider is given time. It does better to leave members out who are
// farther, as long as enough are left. One friend in the committee, or holding every ping, is worth this much time, which on a
// large card hides a twentieth to a seventh of its memory.
const MaxTrip = 200_000

// CheckClass verifies that a record shows what a unit of the class with these resources must show: it was asked what Plan says and
// answered at the class's floor, from where its provider is. RuleShape, RuleFloor or RuleDistance. Nobody is punished for it:
// a record that fails is none to sell by.
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
	spare := t.Trip + Allowance
	switch {
	case t.Product > product+spare:
		return broken(RuleFloor, "products took %d µs; at the floor of the class they take %d, the network %d", t.Product, product, spare)
	case t.Walk > walk+spare:
		return broken(RuleFloor, "the walk took %d µs; at the floor of the class it takes %d, the network %d", t.Walk, walk, spare)
	case t.Distance > MaxDistance:
		return broken(RuleDistance, "answers come from %d µs beyond the provider, at most %d are allowed", t.Distance, MaxDistance)
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

// Capacity is what a unit may sell by its last records, at most MaxRates of them, in any order: the tenth percentile of each rate, the
// ninetieth of distance, and the least memory. So a card that is slow now and then sells what it is when slow, and one lucky
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
	low, high := len(last)/10, len(last)-1-len(last)/10
	return Rates{
		Operations: pick(func(r Rates) uint64 { return r.Operations }, low),
		Reads:      pick(func(r Rates) uint64 { return r.Reads }, low),
		Memory:     pick(func(r Rates) uint64 { return r.Memory }, 0),
		Distance:   pick(func(r Rates) uint64 { return r.Distance }, high),
	}
}
