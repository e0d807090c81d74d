package account

import "math/bits"

// The emission's schedule (src/emission.rs): months, the first one's part of the cap, and the decline from each to the
// next.
const (
	EmissionMonths = 240
	emissionFirst  = 90
	emissionFalls  = 98_984_895
	emissionOf     = 100_000_000
)

// MonthOfEmission is the emission of month number m, from 0, of a cap, in base units: ⌊cap / 90⌋ in the first, ⌊the one
// before · 98,984,895 / 10⁸⌋ after it, nothing from month 240 on.
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

// Allowance is the emission of epoch number e of a cap with n epochs to a month, n > 0. The epochs of a month sum to
// its emission, and all months to at most the cap.
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
