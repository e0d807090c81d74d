package claims

import (
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// vouchers holds the vouchers that a claim may use, and the earned amount. Values behind pointers are never changed.
type vouchers struct {
	best    *verify.SignedVoucher // highest number
	earned  *verify.SignedVoucher // the newest known to be earned, or else the first
	next    *verify.SignedVoucher // between the two: the best of when earned last changed, which is earned next
	closing *verify.SignedVoucher // the final one
	over    bool                  // LeaseOver was received
	owed    market.Amount         // by then
	sure    market.Amount         // amount that both sides have signed for
}

// urgency is why to claim.
type urgency uint8

const (
	asItRuns urgency = iota
	isOver           // no more will be earned
	isRetiring
	isLate // the escrow's deadline has passed
)

// keep adds a voucher and the earned amount.
func (k *vouchers) keep(l *leaf, v verify.SignedVoucher, earned market.Amount) (change bool, err error) {
	if err := v.Check(l.net.Domain(), l.core); err != nil {
		return false, fmt.Errorf("%w: %w", escrow.ErrVoucher, err)
	}
	if v.Escrow != l.escrow {
		return false, fmt.Errorf("%w: of escrow %s, not %s", escrow.ErrVoucher, v.Escrow, l.escrow)
	}
	if earned > k.sure {
		k.sure, change = earned, true
	}
	if k.next != nil && k.next.Cumulative <= k.sure {
		k.earned, k.next = k.next, nil
	}
	switch {
	case v.Final():
		if k.closing != nil {
			return change, nil
		}
		k.closing = &v
	case k.best == nil:
		k.best = &v
	case v.Seq <= k.best.Seq:
		return change, nil
	default:
		switch { // several vouchers are paid ahead, so that the best may not be earned for long
		case k.earned == nil || k.best.Cumulative <= k.sure:
			k.earned, k.next = k.best, nil
		case k.next == nil:
			k.next = k.best
		}
		k.best = &v
	}
	return true, nil
}

// target is the total to claim in the end, once that is certain. All is the cost of the whole lease.
func (k *vouchers) target(all market.Amount) (amount market.Amount, certain bool) {
	switch {
	case k.closing != nil:
		return min(k.closing.Cumulative, all), true
	case k.best != nil:
		amount = min(k.best.Cumulative, all)
	}
	if k.over {
		return min(amount, k.owed), true
	}
	return amount, false
}

// choose returns the voucher to claim with; nil: none. A final voucher comes first. During the work, or while a final
// voucher may still arrive, it is the newest fully earned voucher, because later ones pay for future time. If this may
// be the last chance to claim, it is the newest voucher. Once nothing more can be earned, it is the smallest voucher
// that covers the amount owed.
func (k *vouchers) choose(why urgency) *verify.SignedVoucher {
	switch {
	case k.closing != nil:
		return k.closing
	case k.best == nil:
		return nil
	case k.over && k.earned != nil && k.earned.Cumulative >= k.owed:
		return k.earned
	case k.over && k.next != nil && k.next.Cumulative >= k.owed:
		return k.next
	case why != asItRuns || k.best.Cumulative <= k.sure:
		return k.best
	case k.earned != nil && k.earned.Cumulative <= k.sure:
		return k.earned
	}
	return nil
}

// urgency is the reason to claim now; open is false once the program refuses claims.
func (k *vouchers) urgency(
	v escrow.View, leaf account.LeafState, opened market.Slot,
) (why urgency, open bool) {
	switch {
	case leaf.Window != 0 && uint64(v.Slot) > uint64(opened)+uint64(leaf.Window):
		return asItRuns, false
	case leaf.Window != 0:
		return isRetiring, true
	case k.closing != nil || k.over:
		return isOver, true
	case uint64(v.Slot) >= v.Escrow.Deadline:
		return isLate, true
	}
	return asItRuns, true
}

// consistent reports whether the vouchers are of this lease and in order.
func (k *vouchers) consistent(l *leaf) bool {
	id := l.core.ID()
	for _, v := range []*verify.SignedVoucher{k.best, k.earned, k.next, k.closing} {
		if v != nil &&
			(v.Lease != id || v.Escrow != l.escrow || v.Set.Hash() != l.core.VoucherKeys ||
				v.Final() != (v == k.closing) || len(v.Sigs) < int(l.keys.Threshold)) {
			return false
		}
	}
	return (k.earned == nil || k.best != nil && k.earned.Seq < k.best.Seq) &&
		(k.next == nil || k.earned != nil && k.earned.Seq < k.next.Seq && k.next.Seq < k.best.Seq)
}
