package audit

import (
	"encoding/binary"

	"github.com/starling-network/starling/market"
)

// Result is the outcome of a window for one unit.
type Result uint8

// The results.
const (
	// Passed: a record that keeps every rule, its class's too.
	Passed Result = 1
	// Failed: by more than two thirds of a committee the unit began and did not pass: too slow, or wrong.
	Failed Result = 2
	// Undecided: the committee agrees on neither. Lying members can cause this, so it does not count.
	Undecided Result = 3
	// Absent: the unit did not begin. The only consequence is that it sells nothing until it passes.
	Absent Result = 4
)

// String names the result.
func (r Result) String() string {
	switch r {
	case Passed:
		return "passed"
	case Failed:
		return "failed"
	case Undecided:
		return "undecided"
	case Absent:
		return "absent"
	}
	return "unknown"
}

// Report is a window's result, and the number of attempts that broke off between the products' root and the right
// openings. At that point a provider that omitted work can find out that its answer will fail. An honest provider
// breaks off there only if its hardware or network fails in those seconds.
type Report struct {
	Result Result
	Broken uint8
}

// The rule by which a unit is delisted.
const (
	// Confirmations is how many appeals, in windows of their own and before committees of Appeal, must fail after a
	// failed audit.
	Confirmations = 2
	// MaxBroken of the last MaxRates windows is how many attempts may break off.
	MaxBroken = 2
	// MaxFailed of the last MaxRates windows is how many may fail, with passes between them.
	MaxFailed = 5
)

// State is a unit's state in the market.
type State uint8

// The states.
//
//	            passed                        failed ×(1 + Confirmations) without a pass between,
//	Unproven ──────────▶ Listed ◀──passed── Suspended ──or > MaxBroken, or > MaxFailed──▶ Delisted
//	                       │ failed, absent, undecided  ▲
//	                       └────────────────────────────┘
const (
	Unproven  State = 0 // The unit has no record yet, and is sold only as unproven.
	Listed    State = 1 // It passed in the last window in which it was to answer.
	Suspended State = 2 // It is not sold until it passes.
	Delisted  State = 3 // It failed as the class that it claims. Only new stake and a new unit begin again.
)

// String names the state.
func (s State) String() string {
	return [...]string{"unproven", "listed", "suspended", "delisted"}[min(s, Delisted)]
}

// Standing is the remembered history of a unit. The zero value is that of an unknown unit.
type Standing struct {
	State  State
	Failed uint8            // windows since the last that passed
	last   [MaxRates]Report // the latest at next − 1
	next   uint8
}

// Step applies the report of the next window in which the unit had to answer. A leased unit does not have to.
func (s Standing) Step(r Report) Standing {
	if s.State == Delisted {
		return s
	}
	s.last[s.next] = r
	s.next = (s.next + 1) % MaxRates
	switch r.Result {
	case Passed:
		s.State, s.Failed = Listed, 0
	case Failed:
		s.Failed++
		s.State = Suspended
	default:
		if s.State == Listed {
			s.State = Suspended
		}
	}
	var failed, cut int
	for _, x := range s.last {
		cut += int(x.Broken)
		if x.Result == Failed {
			failed++
		}
	}
	if s.Failed > Confirmations || cut > MaxBroken || failed > MaxFailed {
		s.State = Delisted
	}
	return s
}

// Appealed reports whether the unit's next audit is an appeal: before Appeal members, not Committee.
func (s Standing) Appealed() bool { return s.Failed > 0 }

// CommitteeSize is how many members are drawn for the unit's next audit.
func (s Standing) CommitteeSize() int {
	if s.Appealed() {
		return Appeal
	}
	return Committee
}

// StandingSize is the size of a standing's layout, bytes.
const StandingSize = 16 + 3*MaxRates

// MarshalIn returns the layout of a standing after a window, little-endian:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  state, 0 to 3
//	     2     1  windows failed since the last that passed
//	     3     1  place of the next report, below 24
//	     4     4  reserved: 0
//	     8     8  the window
//	    16  3·24  ( result, 0 for none ‖ broken ‖ 0 ) each
func (s Standing) MarshalIn(w Window) []byte {
	b := make([]byte, 16, StandingSize)
	b[0], b[1], b[2], b[3] = version, byte(s.State), s.Failed, s.next
	binary.LittleEndian.PutUint64(b[8:], uint64(w))
	for _, r := range s.last {
		b = append(b, byte(r.Result), r.Broken, 0)
	}
	return b
}

// UnmarshalStanding decodes the layout without trailing bytes.
func UnmarshalStanding(b []byte) (Standing, Window, error) {
	if len(b) != StandingSize || b[0] != version || b[1] > byte(Delisted) || b[3] >= MaxRates || !zero(b[4:8]) {
		return Standing{}, 0, malformed("standing", "%d bytes, or unknown version, state or reserved bytes", len(b))
	}
	s := Standing{State: State(b[1]), Failed: b[2], next: b[3]}
	for i := range s.last {
		x := b[16+3*i:]
		if x[0] > byte(Absent) || x[2] != 0 {
			return Standing{}, 0, malformed("standing", "report %d", i)
		}
		s.last[i] = Report{Result: Result(x[0]), Broken: x[1]}
	}
	return s, Window(binary.LittleEndian.Uint64(b[8:])), nil
}

// Result is the result of a record's window: it passed, more than two thirds of the committee reported that it failed,
// or neither. The record's computed parts and signatures are checked elsewhere.
func (r Record) Result(class market.Class, res market.Resources) Result {
	not := 0
	for _, v := range r.Verdicts {
		if v.Outcome != Pass {
			not++
		}
	}
	switch {
	case r.checkForm() == nil && r.CheckClass(class, res) == nil:
		return Passed
	case len(r.Verdicts) > 0 && (not >= Certify(int(r.Committee)) || r.FailsClass(class, res)):
		return Failed
	}
	return Undecided
}
