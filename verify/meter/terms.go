package meter

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Terms is the agreed parameters of a lease. Both sides must use the same, or they refuse each other's messages.
type Terms struct {
	Domain        sign.Domain
	Core          market.LeaseCore
	Keys          market.KeySet // signers of the vouchers; their hash is in Core
	Escrow        sign.Key      // address of the escrow; zero on a free network
	Supervision   uint64        // epoch under which the job is supervised
	IntervalSlots uint64        // slots in a metering interval, at least 1
	GraceSlots    uint64        // unpaid slots that the seller works before the next voucher, at least 1
	SkewSlots     uint64        // maximum difference between the two sides' current slots
	// the most that the buyer pays ahead, of whole intervals; never more than it paid before. 0: one interval
	AheadSlots  uint64
	SettleSlots uint64 // how long one waits for the other at the end; 0: interval + 4·(grace + skew)
	// timeout of the payer for a receipt after the end of its interval, if more than grace + skew; there are no
	// payments in this time
	ReceiptSlots uint64
	SlotMillis   uint64 // nominal length of a slot, for the bound on usage
	MilliCPU     uint64 // the CPU limit of all units together, to bound usage; 0: no bound
}

// maxInterval bounds the slot counts of Terms, so that sums of a few of them cannot overflow.
const maxInterval = 1 << 32

// Validate reports the first field that is out of range. The lease core and the key set are checked too.
func (t Terms) Validate() error {
	switch {
	case t.IntervalSlots < 1 || t.IntervalSlots > maxInterval:
		return fmt.Errorf("%w: interval of %d slots", ErrTerms, t.IntervalSlots)
	case t.GraceSlots < 1 || t.GraceSlots > maxInterval:
		return fmt.Errorf("%w: grace of %d slots", ErrTerms, t.GraceSlots)
	case t.SkewSlots > maxInterval || t.SettleSlots > maxInterval || t.AheadSlots > maxInterval:
		return fmt.Errorf("%w: skew of %d slots, %d ahead, settling in %d",
			ErrTerms, t.SkewSlots, t.AheadSlots, t.SettleSlots)
	case t.ReceiptSlots > maxInterval:
		return fmt.Errorf("%w: receipts are waited for %d slots", ErrTerms, t.ReceiptSlots)
	case t.SlotMillis < 1 || t.SlotMillis > market.MaxSlotMillis:
		return fmt.Errorf("%w: slots of %d ms", ErrTerms, t.SlotMillis)
	case t.MilliCPU > math.MaxUint32*market.MaxUnitsPerLease:
		return fmt.Errorf("%w: %d milli-CPU", ErrTerms, t.MilliCPU)
	case t.Escrow.IsZero() != t.Domain.Program.IsZero():
		return fmt.Errorf("%w: escrow %s with program %s", ErrTerms, t.Escrow, t.Domain.Program)
	}
	if err := t.Domain.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrTerms, err)
	}
	if err := t.Core.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrTerms, err)
	}
	if err := t.Keys.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrTerms, err)
	}
	if t.Keys.Hash() != t.Core.VoucherKeys {
		return fmt.Errorf("%w: key set %s is not the lease's %s",
			ErrTerms, t.Keys.Hash().Short(), t.Core.VoucherKeys.Short())
	}
	if t.slotsFor(t.Core.Cap) == 0 {
		return fmt.Errorf("%w: the cap of %d does not pay for one slot", ErrTerms, t.Core.Cap)
	}
	return nil
}

// settle is how long one side waits for the other at the end.
func (t Terms) settle() uint64 {
	if t.SettleSlots > 0 {
		return t.SettleSlots
	}
	return t.IntervalSlots + 4*(t.GraceSlots+t.SkewSlots)
}

// slotsFor is the largest number of slots that cost at most a: ⌊(a·10⁶ + 10⁶ − 1) / rate⌋.
func (t Terms) slotsFor(a market.Amount) uint64 {
	rate := uint64(t.Core.Rate)
	hi, lo := bits.Mul64(uint64(a), market.RateScale)
	lo, carry := bits.Add64(lo, market.RateScale-1, 0)
	if hi += carry; hi >= rate { // also when the lease is free
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, rate)
	return q
}

// last is the slot in which a lease that started in start must end: its end, or the slot to which its cap pays.
func (t Terms) last(start market.Slot) market.Slot {
	return min(t.Core.End, after(start, t.slotsFor(t.Core.Cap)))
}

// next is the end of the interval that begins in from, of a lease that started in start.
func (t Terms) next(start, from market.Slot) market.Slot {
	return min(after(from, t.IntervalSlots), t.last(start))
}

// ahead is the slot to which a buyer pays after it co-signed the slots from start to to. It extends payment by the
// number of slots paid before, at least one interval, at most AheadSlots. So the buyer risks at most the amount of work
// that it received.
func (t Terms) ahead(start, to market.Slot) market.Slot {
	n := max(min(uint64(to-start), t.AheadSlots), t.IntervalSlots)
	return min(after(to, n-n%t.IntervalSlots), t.last(start))
}

// owed is the cost from start to slot to. Both lie within the lease, and Core.Validate checked that its whole cost
// fits.
func (t Terms) owed(start, to market.Slot) (market.Amount, error) {
	return t.Core.Rate.Owed(uint64(to - start))
}

// usable is the maximum CPU time of the units in the given slots; false if there is no bound.
func (t Terms) usable(slots uint64) (uint64, bool) {
	if t.MilliCPU == 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(slots*t.SlotMillis, t.MilliCPU)
	if hi >= 1000 {
		return 0, false
	}
	q, _ := bits.Div64(hi, lo, 1000)
	return q, true
}

// after is s + n, or the last slot there is.
func after(s market.Slot, n uint64) market.Slot {
	sum, carry := bits.Add64(uint64(s), n, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return market.Slot(sum)
}

// before is s − n, or slot 0.
func before(s market.Slot, n uint64) market.Slot {
	if uint64(s) < n {
		return 0
	}
	return s - market.Slot(n)
}

func refuse(rule verify.Rule, format string, args ...any) *verify.RuleError {
	return &verify.RuleError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
}

// asRule makes any error of a check a rule error.
func asRule(rule verify.Rule, err error) *verify.RuleError {
	if r, ok := err.(*verify.RuleError); ok {
		return r
	}
	return &verify.RuleError{Rule: rule, Detail: err.Error(), Err: err}
}
