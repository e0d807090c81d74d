package exclusive

import (
	"math"
	"math/bits"
)

func mul(a, b uint64) (hi, lo uint64) { return bits.Mul64(a, b) }

// div is hi·2⁶⁴ + lo by d, rounded down, at most MaxUint64.
func div(hi, lo, d uint64) uint64 {
	if d == 0 || hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, d)
	return q
}
