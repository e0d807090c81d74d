// Package rules has the rules by which a guardian signs the vouchers of a job's leases. It is pure: it reads no clock
// or network. An error is the reason for a guardian's refusal, and is sent to the supervisor.
package rules

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Last checks a payer's last receipt against its lease: the start of the bill, the amount, and the provider's
// signature.
func Last(d sign.Domain, core market.LeaseCore, payer meter.Payer) error {
	last, began := payer.Last(), payer.Began()
	id := core.ID().Short()
	owed, err := core.Rate.Owed(uint64(last.To - began))
	switch {
	case err != nil || last.To < began || owed != last.Cumulative:
		return fmt.Errorf("receipt %d of lease %s: wrong amount %d for slots %d to %d",
			last.Seq, id, last.Cumulative, began, last.To)
	case began < core.Start || began > core.ActivateBefore:
		return fmt.Errorf("lease %s began in slot %d, allowed is %d to %d", id, began, core.Start, core.ActivateBefore)
	case last.Provider != core.Provider || last.Buyer != core.Buyer || last.Cumulative > core.Cap ||
		last.Units != core.Units || last.UnitsRoot != core.UnitsRoot || last.RankEpoch != core.RankEpoch:
		return fmt.Errorf("receipt %d of lease %s is of another lease", last.Seq, id)
	}
	if err := last.VerifyBy(d, core.Provider, payer.LastSig()); err != nil {
		return fmt.Errorf("receipt %d of lease %s: %w", last.Seq, id, err)
	}
	return nil
}

// Voucher checks that a payer's voucher may be signed in slot now. It must be within the cap and the lease, and at most
// an interval beyond the provider's receipts, which must not be later than now. The payer must have a voucher. t has
// the lease's terms under its supervisor's epoch.
func Voucher(t meter.Terms, now market.Slot, payer meter.Payer) error {
	core, v := t.Core, *payer.Voucher()
	id := core.ID().Short()
	skew := 2 * t.SkewSlots
	last, began := payer.Last(), payer.Began()
	until := began // paid so far by receipts
	if last.Seq > 0 {
		until = last.To
	}
	if began < core.Start || began > core.ActivateBefore {
		return fmt.Errorf("lease %s began in slot %d, allowed is %d to %d", id, began, core.Start, core.ActivateBefore)
	}
	if until > After(now, skew) {
		return fmt.Errorf("lease %s is at slot %d, it is %d", id, until, now)
	}
	slots := uint64(min(After(until, t.IntervalSlots), core.End) - began)
	most, err := core.Rate.Owed(slots)
	if err != nil {
		return fmt.Errorf("lease %s: %w", id, err)
	}
	most = min(most, core.Cap)
	switch {
	case v.Version != verify.VoucherVersion || v.Flags&^verify.VoucherFinal != 0 || v.Seq == 0 ||
		v.Lease != core.ID() || v.Escrow != t.Escrow:
		return fmt.Errorf("the voucher of lease %s is not of this lease", id)
	case v.Supervision > t.Supervision:
		return fmt.Errorf("the voucher of lease %s is of epoch %d, granted is %d", id, v.Supervision, t.Supervision)
	case v.Cumulative > most:
		return fmt.Errorf("the voucher of lease %s is for %d, in slot %d it can be %d", id, v.Cumulative, now, most)
	case v.Horizon > min(After(until, t.IntervalSlots+skew), core.End):
		return fmt.Errorf("the voucher of lease %s pays until slot %d, it is %d", id, v.Horizon, now)
	case v.Final() != (last.Seq > 0 && last.Final()) || v.Final() && v.Cumulative != last.Cumulative:
		return fmt.Errorf("the voucher of lease %s is final, or is not, against its receipts", id)
	}
	return nil
}

// After is s + n, or the last slot there is.
func After(s market.Slot, n uint64) market.Slot {
	if sum := s + market.Slot(n); sum >= s {
		return sum
	}
	return ^market.Slot(0)
}
