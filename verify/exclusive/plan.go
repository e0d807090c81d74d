package exclusive

import (
	"math"
	"time"

	"github.com/starling-network/starling/verify/challenge"
)

// Kind is the kind of hardware that computes a probe.
type Kind uint8

// The kinds.
const (
	CPU Kind = iota
	GPU
)

// One product of each kind. A verifier pays for the depth, a prover hashes the sides: a GPU gets long lines.
var unit = [...]challenge.Shape{
	CPU: {Rows: 256, Columns: 256, Depth: 512, Products: 1},
	GPU: {Rows: 2048, Columns: 2048, Depth: 32_768, Products: 1},
}

// MaxProducts is the maximum number of products of a probe: 17·10⁹ operations of a CPU, 70·10¹² of a GPU.
const MaxProducts = 256

// Target is how long a probe should take.
const Target = 20 * time.Millisecond

// Fit returns a shape that hardware of the given rate, in operations a second, computes in about the Target. If the
// rate is 0, it is one product.
func Fit(k Kind, rate uint64) challenge.Shape {
	s := unit[k]
	want := float64(rate) * Target.Seconds() / float64(s.Operations())
	s.Products = uint32(min(max(math.Round(want), 1), MaxProducts))
	return s
}

// kindOf returns the kind of a shape; false for a shape that Fit does not return.
func kindOf(s challenge.Shape) (Kind, bool) {
	for k, u := range unit {
		if u.Products = s.Products; u == s && s.Products >= 1 && s.Products <= MaxProducts {
			return Kind(k), true
		}
	}
	return 0, false
}

// Kind is the kind of hardware that the question is for.
func (q Question) Kind() Kind {
	k, _ := kindOf(q.Shape)
	return k
}

// Share is the divisor of a lease's time that gives the maximum time of its probes.
const Share = 1000

// soonFactor is how much sooner the next probe comes after a slow one, and in the beginning.
const soonFactor = 8

// Budget is the time that the probes of a lease take. The buyer measures their cost, from the provider's preparation
// until the answer, so that it exceeds the program's pause.
type Budget struct {
	Lease time.Duration `json:"lease"` // the whole lease, as it was bought
	Spent time.Duration `json:"spent"`
}

// Allows reports whether there is room for a probe of such a cost: all probes together take at most 1/Share of the
// lease.
func (b Budget) Allows(cost time.Duration) bool {
	return cost >= 0 && b.Spent >= 0 && b.Spent <= b.Lease/Share && cost <= b.Lease/Share-b.Spent
}

// Gap draws the time until the next probe of a cost, from 64 random bits. Gaps are exponential, so that earlier
// instants give no information about the next. Their mean spends half of the budget. Soon shortens the gap after a slow
// probe, and while the units' speed is unknown.
func (b Budget) Gap(cost time.Duration, soon bool, random uint64) time.Duration {
	mean := 2 * Share * float64(max(cost, time.Millisecond))
	if soon {
		mean /= soonFactor
	}
	u := (float64(random>>11) + 0.5) / (1 << 53) // in (0, 1)
	return time.Duration(min(-math.Log(u)*mean, math.MaxInt64/4))
}
