package market

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// Slot is a position in time as the chain counts it. Differences of slots are plain uint64.
type Slot uint64

// Amount is money in the token's base units.
type Amount uint64

// Price is base units per unit-hour.
type Price uint64

// Rate is the cost of a whole lease per slot, in millionths of a base unit.
type Rate uint64

const (
	// RateScale is the number of Rate steps in one base unit per slot.
	RateScale = 1_000_000
	// MaxSlotMillis bounds the length of a slot: a minute.
	MaxSlotMillis = 60_000
	// MaxUnitsPerLease bounds the units of one lease.
	MaxUnitsPerLease = 1024

	millisPerHour = 3_600_000
)

// RateOf is the rate of a lease of a number of units at price p, with slots of slotMillis milliseconds. It rounds up:
// ⌈p·units·slotMillis·10⁶ / 3 600 000⌉. It returns ErrOverflow, or ErrMalformed for units or slotMillis out of range.
func RateOf(p Price, units int, slotMillis uint64) (Rate, error) {
	if units < 1 || units > MaxUnitsPerLease {
		return 0, malformed("units", "%d, want 1 to %d", units, MaxUnitsPerLease)
	}
	if slotMillis < 1 || slotMillis > MaxSlotMillis {
		return 0, malformed("slot_millis", "%d, want 1 to %d", slotMillis, MaxSlotMillis)
	}
	const divisor = millisPerHour * 5 / RateScale // 18: 10⁶ / 3 600 000 = 5/18
	hi, lo := bits.Mul64(uint64(p), uint64(units)*slotMillis*5)
	lo, carry := bits.Add64(lo, divisor-1, 0)
	hi += carry
	if hi >= divisor {
		return 0, fmt.Errorf("rate of price %d for %d units: %w", p, units, ErrOverflow)
	}
	q, _ := bits.Div64(hi, lo, divisor)
	return Rate(q), nil
}

// Owed is the cost of a number of slots: ⌊rate · slots / 10⁶⌋. It returns ErrOverflow if the cost does not fit. The
// cost of an interval is the difference of two Owed from the lease's start, so that rounding errors do not add up.
func (r Rate) Owed(slots uint64) (Amount, error) {
	hi, lo := bits.Mul64(uint64(r), slots)
	if hi >= RateScale {
		return 0, fmt.Errorf("cost of %d slots at rate %d: %w", slots, r, ErrOverflow)
	}
	q, _ := bits.Div64(hi, lo, RateScale)
	return Amount(q), nil
}

// Add is a checked sum.
func (a Amount) Add(b Amount) (Amount, error) {
	sum, carry := bits.Add64(uint64(a), uint64(b), 0)
	if carry != 0 {
		return 0, fmt.Errorf("%d + %d: %w", a, b, ErrOverflow)
	}
	return Amount(sum), nil
}

// Plus is the sum, or the largest amount if that is larger.
func (a Amount) Plus(b Amount) Amount { return a + min(b, math.MaxUint64-a) }

// Times is a checked product.
func (a Amount) Times(n uint64) (Amount, error) {
	hi, lo := bits.Mul64(uint64(a), n)
	if hi != 0 {
		return 0, fmt.Errorf("%d × %d: %w", a, n, ErrOverflow)
	}
	return Amount(lo), nil
}

// MaxDecimals is the largest number of decimals a mint may have: 10¹⁹ still fits 64 bits.
const MaxDecimals = 19

// Decimal formats base units as whole tokens with at least two decimals and no needless zeros: 0.40, 1.00, 12.345678.
func Decimal(base uint64, decimals uint8) string {
	if decimals == 0 {
		return fmt.Sprint(base)
	}
	digits := fmt.Sprintf("%0*d", int(decimals)+1, base)
	whole, part := digits[:len(digits)-int(decimals)], digits[len(digits)-int(decimals):]
	keep := min(2, len(part))
	return whole + "." + part[:keep] + strings.TrimRight(part[keep:], "0")
}

// ParseDecimal parses a decimal number of whole tokens into base units. It refuses signs, exponents, more decimals than
// the mint has, and overflow.
func ParseDecimal(text string, decimals uint8) (uint64, error) {
	whole, part, dotted := strings.Cut(text, ".")
	if len(text) > 40 || decimals > MaxDecimals || whole == "" || dotted && part == "" {
		return 0, malformed("amount", "%.40q is not a decimal number", text)
	}
	if len(part) > int(decimals) {
		return 0, malformed("amount", "%q has %d decimals, the token has %d", text, len(part), decimals)
	}
	var n uint64
	for _, c := range []byte(whole + part + strings.Repeat("0", int(decimals)-len(part))) {
		if c < '0' || c > '9' {
			return 0, malformed("amount", "%q is not a decimal number", text)
		}
		hi, lo := bits.Mul64(n, 10)
		lo, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, fmt.Errorf("amount %q: %w", text, ErrOverflow)
		}
		n = lo
	}
	return n, nil
}

// CheckDecimal refuses text that is not a decimal number in any token. It is for callers that do not have the token
// yet.
func CheckDecimal(text string) error {
	if _, err := ParseDecimal(text, MaxDecimals); err != nil && !errors.Is(err, ErrOverflow) {
		return err
	}
	return nil
}
