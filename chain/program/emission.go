package program

import "math/bits"

// The emission's schedule (src/emission.rs): months, what the first gives of the cap, and how each falls to the next.
const (
	EmissionMonths = 240
	emissionFirst  = 90
	emissionFalls  = 98_984_895
	emissionOf     = 100_000_000
)

// MonthOfEmission is what month number m, from 0, gives of a cap, in base units: ⌊cap / 90⌋ in the first, ⌊the one before ·
// 98,984,895 / 10⁸⌋ after it, nothing from month 240 on.
func MonthOfEmission(emission, m uint64) uint64 {
	if m >= EmissionMonths {
		return 0
	}
	gives := emission / emissionFirst
	for range m {
		gives = mulDiv(gives, emissionFalls, emissionOf)
	}
	return gives
}

// Allowance is what epoch number e gives of a cap with n epochs to a month, which is not 0. All epochs together give what their
// months give, and all months together no more than the cap.
func Allowance(emission uint64, n uint32, e uint64) uint64 {
	of := uint64(n)
	month, k := MonthOfEmission(emission, e/of), e%of
	return mulDiv(month, k+1, of) - mulDiv(month, k, of)
}

// mulDiv is ⌊a · b / c⌋, which must fit 64 bits.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}
