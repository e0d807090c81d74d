package claims

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

// looked compares payments with earnings.
func (c *Claims) looked(now time.Time, ev escrow.Looked) (change bool, effects []escrow.Effect) {
	c.looking = false
	if ev.Err != "" {
		c.queue.Note(ev.Err)
		c.lookAt = now.Add(c.params.RetryAfter)
		return false, []escrow.Effect{escrow.Waiting{Reason: c.queue.Reason, Until: c.lookAt}}
	}
	v, f := ev.Confirmed, ev.Final
	if v.Slot < f.Slot {
		v = f
	}
	c.lookAt = now.Add(c.params.PollEvery)
	if f.Slot < c.final || v.Slot < c.landedAt { // the endpoints lag behind their earlier answers
		return false, nil
	}
	c.final = f.Slot
	change, effects = c.book(f)
	if c.end != endNot {
		return true, effects
	}
	for _, orders := range [][]escrow.SignOrder{
		c.plan(now, v),
		c.table.create(now, &c.leaf, &c.queue, f.Slot, v, c.core.Cap-min(c.core.Cap, c.paid)),
	} {
		if len(orders) > 0 {
			change, effects = true, append(effects, escrow.Sign{Orders: orders})
		}
	}
	if c.queue.Len() == 0 {
		c.lookAt = now.Add(c.params.LookEvery)
		if c.waits != "" {
			effects = append(effects, escrow.Waiting{Reason: c.waits, Until: c.lookAt})
		}
	}
	return change, effects
}

// book records the final state.
func (c *Claims) book(f escrow.View) (change bool, effects []escrow.Effect) {
	leaf, opened, err := c.in(f)
	switch {
	case err != nil && (c.landed != 0 || c.landedAmount != 0):
		return false, c.lose(err.Error())
	case err != nil && f.Slot > c.core.ActivateBefore && !c.queue.Under(claims):
		// No claim of ours shows that it was there.
		return false, c.finish(endLost, "never funded: "+err.Error())
	case err != nil:
		c.waits = err.Error()
		return false, nil
	case c.landed == 0:
		c.landed, change = max(opened, 1), true
	}
	if paid := market.Amount(leaf.Paid); paid > c.paid {
		c.paid, change = paid, true
		effects = append(effects, escrow.Paid{Lease: c.core.ID(), Cumulative: paid})
	}
	effects = append(effects, c.settle()...)
	switch closes := uint64(opened) + uint64(leaf.Window); {
	case c.end != endNot:
	case leaf.Left(c.core.Cap) == 0:
		effects = append(effects, c.lose(because(c.queue.Reason, "no money left for the lease"))...)
	case leaf.Window != 0 && uint64(f.Slot) > closes:
		effects = append(effects, c.lose(because(c.queue.Reason,
			fmt.Sprintf("retired, and the last slot for claims was %d", closes)))...)
	}
	return change, effects
}

// plan claims the due amount, if it is time to.
func (c *Claims) plan(now time.Time, v escrow.View) []escrow.SignOrder {
	leaf, opened, err := c.in(v)
	if err != nil {
		return nil
	}
	c.waits = ""
	why, open := c.urgency(v, leaf, opened)
	if !open || c.queue.UnderKind(escrow.TaskClaim) {
		return nil
	}
	use := c.choose(why)
	if use == nil {
		return nil
	}
	due := min(use.Cumulative, c.core.Cap-min(c.core.Cap, market.Amount(leaf.Freed)), c.accrued(v.Slot))
	if due <= market.Amount(leaf.Paid) || !c.ripe(why, v, leaf, opened, use, due) {
		c.waits = "nothing to claim yet"
		return nil
	}
	return c.claim(now, v, leaf, use, due-market.Amount(leaf.Paid))
}

// ripe reports whether it is time to claim. The first earned interval is claimed early, later ones when enough has
// accrued. At the end the whole amount is claimed immediately; or the present amount, and the rest before the deadline.
func (c *Claims) ripe(
	why urgency, v escrow.View, leaf account.LeafState, opened market.Slot, use *verify.SignedVoucher,
	due market.Amount,
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
	case due >= min(use.Cumulative, c.all()), certain && due >= target, uint64(v.Slot) >= uint64(c.asked)+spare:
		return true
	case why == isRetiring:
		return uint64(v.Slot)+spare >= uint64(opened)+uint64(leaf.Window)
	}
	return false
}

// claim requests the transaction. If the payout's account may be missing, it is opened too: in the same transaction, or
// before it if both do not fit.
func (c *Claims) claim(
	now time.Time, v escrow.View, leaf account.LeafState, use *verify.SignedVoucher, stake market.Amount,
) []escrow.SignOrder {
	t := escrow.Task{Kind: escrow.TaskClaim, Tranche: c.funding.Tranche, Leaf: c.funding.Index, Amount: use.Cumulative}
	fails, ok := c.queue.May(now, t)
	if !ok {
		c.waits = fmt.Sprintf("claiming failed %d times", fails)
		return nil
	}
	tables, ok := c.table.use(&c.leaf, &c.queue, v.Escrow.Vault)
	if !ok {
		c.waits = "lookup table: not created yet"
		return nil
	}
	missing := (leaf.Paid == 0 && !c.open || fails > 0) && !(c.apart && c.open)
	if missing && c.apart {
		t = escrow.Task{Kind: escrow.TaskOpenToken}
		if _, ok := c.queue.May(now, t); !ok {
			return nil
		}
		return []escrow.SignOrder{c.queue.Ask(now, t, stake, c.openToken())}
	}
	var in []svm.Instruction
	if missing {
		in = append(in, c.openToken())
	}
	in = append(in, c.leaf.claim(v.Escrow.Vault, *use, len(in))...)
	c.asked = v.Slot
	order := c.queue.Ask(now, t, stake, in...)
	order.Tables = tables
	return []escrow.SignOrder{order}
}
