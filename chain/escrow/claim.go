package escrow

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// plan claims the due amount, if it is time to.
func (c *Claims) plan(now time.Time, v View) (change bool, effects []Effect) {
	leaf, opened, err := c.leafIn(v)
	if err != nil {
		return false, nil
	}
	c.waits = ""
	use, why := c.choose(v, leaf, opened)
	if use == nil || c.fleet.underKind(kindClaim) {
		return false, nil
	}
	due := min(use.Cumulative, c.core.Cap-min(c.core.Cap, market.Amount(leaf.Freed)), c.accrued(v.Slot))
	if due <= market.Amount(leaf.Paid) || !c.ripe(why, v, leaf, opened, use, due) {
		c.waits = "nothing to claim yet"
		return false, nil
	}
	return c.claim(now, v, leaf, use, due-market.Amount(leaf.Paid))
}

// urgency is why to claim.
type urgency uint8

const (
	asItRuns urgency = iota
	isOver           // no more will be earned
	isRetiring
	isLate // the escrow's deadline has passed
)

// choose returns the voucher to claim with, and why to claim now. A final voucher comes first. While work goes on, or
// while a final voucher may still come, it is the newest voucher that is wholly earned, because the newest of all pays
// for time that is still to come. If this may be the last chance to claim, it is the newest voucher. Once nothing more
// can be earned, it is the smallest voucher that covers the amount owed.
func (c *Claims) choose(v View, leaf program.LeafState, opened market.Slot) (use *verify.SignedVoucher, why urgency) {
	switch {
	case leaf.Window != 0 && uint64(v.Slot) > uint64(opened)+uint64(leaf.Window):
		return nil, why
	case leaf.Window != 0:
		why = isRetiring
	case c.closing != nil || c.over:
		why = isOver
	case uint64(v.Slot) >= v.Escrow.Deadline:
		why = isLate
	}
	switch {
	case c.closing != nil:
		return c.closing, why
	case c.best == nil:
		return nil, why
	case c.over && c.earned != nil && c.earned.Cumulative >= c.owed:
		return c.earned, why
	case c.over && c.next != nil && c.next.Cumulative >= c.owed:
		return c.next, why
	case why != asItRuns || c.best.Cumulative <= c.sure:
		return c.best, why
	case c.earned != nil && c.earned.Cumulative <= c.sure:
		return c.earned, why
	}
	return nil, why
}

// ripe reports whether it is time to claim. The first earned interval is claimed early, later ones when enough has
// accrued. At the end the whole amount is claimed at once; or the amount so far, and again before it is too late.
func (c *Claims) ripe(
	why urgency, v View, leaf program.LeafState, opened market.Slot, use *verify.SignedVoucher, due market.Amount,
) bool {
	paid := market.Amount(leaf.Paid)
	if why == asItRuns {
		return paid == 0 || due-paid >= c.when.Amount || uint64(v.Slot) >= uint64(c.asked)+c.when.Slots
	}
	target, certain := c.target()
	if certain && paid >= target {
		return false
	}
	spare := max(1, uint64(c.net.Account.Rules.ResponseSlots)/4)
	switch {
	case due >= min(use.Cumulative, c.accrued(c.core.End)), certain && due >= target,
		uint64(v.Slot) >= uint64(c.asked)+spare:
		return true
	case why == isRetiring:
		return uint64(v.Slot)+spare >= uint64(opened)+uint64(leaf.Window)
	}
	return false
}

// claim asks for the transaction. Where the payout's account may be missing it is opened too: in the same transaction,
// or before it where both do not fit.
func (c *Claims) claim(
	now time.Time, v View, leaf program.LeafState, use *verify.SignedVoucher, stake market.Amount,
) (change bool, effects []Effect) {
	t := task{kind: kindClaim, tranche: c.funding.Tranche, leaf: c.funding.Index, amount: use.Cumulative}
	fails, ok := c.fleet.may(now, t)
	if !ok {
		c.waits = fmt.Sprintf("claiming failed %d times", fails)
		return false, nil
	}
	tables, ok := c.tables(v)
	if !ok {
		c.waits = "its lookup table is not there yet"
		return false, nil
	}
	payer := c.core.Provider
	missing := leaf.Paid == 0 && !c.open || fails > 0
	var in []program.Instruction
	if missing && !(c.apart && c.open) {
		in = append(in, program.OpenTokenAccount(payer, c.core.Payout, c.net.Mint))
	}
	if len(in) > 0 && c.apart {
		t = task{kind: kindOpenToken}
		if _, ok := c.fleet.may(now, t); !ok {
			return false, nil
		}
		return true, []Effect{Sign{Orders: []SignOrder{c.fleet.ask(now, t, stake, in...)}}}
	}
	call := program.Claim{Escrow: c.escrow, Tranche: program.TrancheAddress(c.net.Program, c.escrow, c.funding.Tranche),
		Vault: v.Escrow.Vault, Destination: program.TokenAccount(c.core.Payout, c.net.Mint), Mint: c.net.Mint,
		Network: c.net.address, Ed: uint8(len(in)), Leaf: tranche.LeafOf(c.core, c.funding.Index),
		Proof: c.funding.Proof}
	in = append(in, signedFor(c.net, c.keys, *use).Instruction(), call.Instruction(c.net.Program))
	c.asked = v.Slot
	order := c.fleet.ask(now, t, stake, in...)
	order.Tables = tables
	return true, []Effect{Sign{Orders: []SignOrder{order}}}
}

// signedFor is the voucher with as few signatures as it takes: each takes room.
func signedFor(net Net, keys market.KeySet, v verify.SignedVoucher) program.Signed {
	v.Sigs = v.Sigs[:min(len(v.Sigs), int(keys.Threshold))]
	return program.VoucherSigned(net.Domain(), v)
}

// looked compares payments with earnings.
func (c *Claims) looked(now time.Time, ev Looked) (change bool, effects []Effect, err error) {
	c.looking = false
	if ev.Err != "" {
		c.fleet.reason, c.lookAt = clip(ev.Err), now.Add(c.params.RetryAfter)
		return false, []Effect{Waiting{Reason: c.fleet.reason, Until: c.lookAt}}, nil
	}
	v, f := ev.Confirmed, ev.Final
	if v.Slot < f.Slot {
		v = f
	}
	c.lookAt = now.Add(c.params.PollEvery)
	if f.Slot < c.final || v.Slot < c.flewAt { // the endpoints lag behind their earlier answers
		return false, nil, nil
	}
	c.final = f.Slot
	change, effects = c.book(f)
	if c.end != endNot {
		return true, effects, nil
	}
	signs, more := c.plan(now, v)
	effects = append(effects, more...)
	tables, more := c.makeTable(now, f, v)
	signs, effects = signs || tables, append(effects, more...)
	if len(c.fleet.flights) == 0 {
		c.lookAt = now.Add(c.params.LookEvery)
		if c.waits != "" {
			effects = append(effects, Waiting{Reason: c.waits, Until: c.lookAt})
		}
	}
	return change || signs, effects, nil
}

// book records the final state.
func (c *Claims) book(f View) (change bool, effects []Effect) {
	leaf, opened, err := c.leafIn(f)
	switch {
	case err != nil && (c.landed != 0 || c.flown != 0):
		return false, c.lose(err.Error())
	case err != nil && f.Slot > c.core.ActivateBefore && !c.claiming(): // no claim of ours says that it was there
		return false, c.finish(endLost, "never funded: "+err.Error())
	case err != nil:
		c.waits = err.Error()
		return false, nil
	case c.landed == 0:
		c.landed, change = max(opened, 1), true
	}
	if paid := market.Amount(leaf.Paid); paid > c.paid {
		c.paid, change = paid, true
		effects = append(effects, Paid{Lease: c.core.ID(), Cumulative: paid})
	}
	effects = append(effects, c.settle()...)
	switch closes := uint64(opened) + uint64(leaf.Window); {
	case c.end != endNot:
	case leftOf(tranche.LeafOf(c.core, c.funding.Index), leaf) == 0:
		effects = append(effects, c.lose(c.because("nothing is left of the lease's money"))...)
	case leaf.Window != 0 && uint64(f.Slot) > closes:
		effects = append(effects, c.lose(c.because(
			fmt.Sprintf("retired, and the last slot for claims was %d", closes)))...)
	}
	return change, effects
}

// leafIn is the lease's leaf, as long as claims on it are paid.
func (c *Claims) leafIn(v View) (s program.LeafState, opened market.Slot, err error) {
	if v.Escrow == nil {
		return s, 0, ErrNoEscrow
	}
	if v.Escrow.State != program.EscrowOpen {
		return s, 0, ErrRefunded
	}
	t, ok := v.Tranches[c.funding.Tranche]
	if !ok {
		return s, 0, ErrNoTranche
	}
	if err := c.funding.Proof.Verify(rootOf(t), tranche.LeafOf(c.core, c.funding.Index)); err != nil {
		return s, 0, fmt.Errorf("%w: %w", ErrLeaf, err)
	}
	return t.Leaves[c.funding.Index], market.Slot(t.Opened), nil
}
