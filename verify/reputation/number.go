package reputation

import (
	"math"
	"math/bits"
)

// All results here are the same on every machine: integers, and floats with only + − × ÷ and √. Each product is
// converted to float64, so that no compiler fuses it with a sum.

// one is 1 in the fixed point of evidence and scores: millionths.
const one = 1_000_000

// maxEvidence is as much evidence as counts, 10 000: more changes no score by a thousandth.
const maxEvidence = 10_000 * one

// ln2 is ln 2 in units of 2^-64.
const ln2 = 0xb17217f7d1cf79ab

// log2 is the binary logarithm of x ≥ 1 in units of 2^-32, rounded down, by squaring (Knuth, TAOCP 1.2.2 exercise 25).
func log2(x uint64) uint64 {
	n := bits.Len64(x) - 1
	m := x << (63 - n) // 1 ≤ m / 2^63 < 2
	out := uint64(n) << 32
	for bit := uint64(1) << 31; bit > 0; bit >>= 1 {
		hi, lo := bits.Mul64(m, m)
		if hi>>63 == 1 { // m² ≥ 2
			out |= bit
			m = hi
		} else {
			m = hi<<1 | lo>>63
		}
	}
	return out
}

// nats is ln(1 + v/unit) in millionths, rounded down; unit must not be 0. It does not fall when v grows.
func nats(v, unit uint64) uint64 {
	sum := addCap(v, unit)
	hi, _ := bits.Mul64((log2(sum)-log2(unit))<<24, ln2) // units of 2^-56, below 64
	whole, part := hi>>56, hi&(1<<56-1)
	up, low := bits.Mul64(part, one)
	return whole*one + (up<<8 | low>>56)
}

// addCap is a sum that stops at the largest number, so that its order does not matter.
func addCap(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// mulCap is a product that stops at the largest number.
func mulCap(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// decayBits is how finely a half-life is divided.
const decayBits = 16

// halves are 2^-(2^-1), 2^-(2^-2), … in units of 2^-62.
var halves = func() (t [decayBits]uint64) {
	f := 0.5
	for i := range t {
		f = math.Sqrt(f)
		t[i] = uint64(f * (1 << 62))
	}
	return t
}()

// decay is v · 2^(−age/half), rounded down at every step: never more for an older one.
func decay(v, age, half uint64) uint64 {
	n := age / half
	if n >= 64 {
		return 0
	}
	hi, lo := bits.Mul64(age%half, 1<<decayBits)
	f, _ := bits.Div64(hi, lo, half)
	share := uint64(1 << 62)
	for i := range halves {
		if f>>(decayBits-1-i)&1 == 1 {
			hi, lo := bits.Mul64(share, halves[i])
			share = hi<<2 | lo>>62
		}
	}
	hi, lo = bits.Mul64(v, share)
	return (hi<<2 | lo>>62) >> n
}

// ln is the natural logarithm of x > 0.
func ln(x float64) float64 {
	const ln2 = 0.693147180559945309417232121458
	f, e := math.Frexp(x)
	if f < math.Sqrt2/2 {
		f, e = float64(f*2), e-1
	}
	s := (f - 1) / (f + 1)
	sq, sum := float64(s*s), 0.0
	for k := 25; k > 0; k -= 2 { // s² < 0.03: the rest is below 10^-20
		sum = float64(sum*sq) + 1/float64(k)
	}
	return float64(float64(2*s)*sum) + float64(float64(e)*ln2)
}

// lnGamma is ln Γ(x) of x > 0, by Stirling's series (DLMF 5.11.1) above 16.
func lnGamma(x float64) float64 {
	shift := 1.0
	for x < 16 {
		shift = float64(shift * x)
		x++
	}
	const halfLn2Pi = 0.918938533204672741780329736406
	in := 1 / x
	sq, sum := float64(in*in), 0.0
	for _, c := range [...]float64{1.0 / 156, -691.0 / 360360, 1.0 / 1188, -1.0 / 1680, 1.0 / 1260, -1.0 / 360,
		1.0 / 12} {
		sum = float64(sum*sq) + c
	}
	return float64((x-0.5)*ln(x)) - x + halfLn2Pi + float64(sum*in) - ln(shift)
}

// lowerBound is the number of millionths x, rounded down, at which Beta(½ + good, ½ + bad) reaches 5 %; good and bad
// are millionths, at most maxEvidence.
func lowerBound(good, bad uint64) uint32 {
	a, b := float64(good+one/2)/one, float64(bad+one/2)/one
	front := lnGamma(a+b) - lnGamma(a) - lnGamma(b)
	// Above this the fraction would converge slowly, and for a, b ≥ ½ more than 5 % lie below it.
	lo, hi := uint32(0), uint32((a+1)/(a+b+2)*one)
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		x := float64(mid) / one
		below := front + float64(a*ln(x)) + float64(b*ln(1-x)) - ln(a) + ln(betaFraction(a, b, x))
		if below <= lnFivePercent {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

const lnFivePercent = -2.99573227355399099343522357614

// betaFraction is the continued fraction of the incomplete beta function (DLMF 8.17.22) for x < (a+1)/(a+b+2), by
// Lentz's method.
func betaFraction(a, b, x float64) float64 {
	const (
		tiny   = 1e-300
		enough = 1e-14
		most   = 1000 // √max(a, b) times a small number are enough
	)
	full := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/full(1-float64(float64((a+b)*x)/(a+1)))
	h := d
	for i := 1; i <= most; i++ {
		m := float64(i)
		m2 := 2 * m
		even := float64(float64(m*(b-m))*x) / float64((a+m2-1)*(a+m2))
		d = 1 / full(1+float64(even*d))
		c = full(1 + even/c)
		h = float64(h * float64(d*c))
		odd := -float64(float64((a+m)*(a+b+m))*x) / float64((a+m2)*(a+m2+1))
		d = 1 / full(1+float64(odd*d))
		c = full(1 + odd/c)
		step := float64(d * c)
		h = float64(h * step)
		if math.Abs(step-1) < enough {
			break
		}
	}
	return h
}
