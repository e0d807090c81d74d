package claims

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
)

// Step takes one event and returns the next state and its effects, in order. On an error the state is unchanged.
// Errors: ErrEvent, ErrVoucher.
func (c Claims) Step(now time.Time, ev escrow.Event) (Claims, []escrow.Effect, error) {
	next := c
	next.queue = c.queue.Clone()
	change, effects, err := next.apply(now, ev)
	if err != nil {
		return c, nil, err
	}
	if next.end != endNot && !next.Done() && next.lookAt.IsZero() {
		next.lookAt = now
	}
	if change {
		effects = append([]escrow.Effect{escrow.Persist{State: next.Marshal()}}, effects...)
	}
	return next, effects, nil
}

// apply reports whether the journalled state changed.
func (c *Claims) apply(now time.Time, ev escrow.Event) (change bool, effects []escrow.Effect, err error) {
	if _, tick := ev.(escrow.Ticked); tick && c.repeat {
		effects = c.replay()
	}
	if c.end != endNot {
		change, more := c.close(now, ev)
		return change, append(effects, more...), nil
	}
	switch ev := ev.(type) {
	case escrow.VoucherKept:
		if change, err = c.keep(&c.leaf, ev.Voucher, ev.Earned); err != nil || !change {
			return false, nil, err
		}
		return true, append(c.settle(), c.soon(now)...), nil
	case escrow.LeaseOver:
		change = !c.over
		c.over, c.owed = true, max(c.owed, ev.Owed)
		return change, append(c.settle(), c.soon(now)...), nil
	case escrow.Signed:
		change, effects = c.signed(now, ev)
		return change, effects, nil
	case escrow.Pushed:
		change, effects = c.pushed(now, ev)
		return change, effects, nil
	case escrow.Looked:
		change, effects = c.looked(now, ev)
		return change, effects, nil
	case escrow.Ticked:
		return false, append(effects, c.tick(now, sends(&c.queue))...), nil
	}
	return false, nil, fmt.Errorf("%w: claims take no %T", escrow.ErrEvent, ev)
}

// sends reports whether a task's transaction is to be sent now. A claim is not, unless its payout's account and its
// lookup table are there: both can have been in a block that was forked away, and a claim that fails in a block is not
// replaced before that block is final.
func sends(q *escrow.Queue) func(escrow.Task) bool {
	stands := func(k escrow.TaskKind) bool { return !q.UnderKind(k) || q.UnderState(k, chain.Confirmed) }
	return func(t escrow.Task) bool {
		return t.Kind != escrow.TaskClaim || stands(escrow.TaskOpenToken) && stands(escrow.TaskMakeTable)
	}
}

// tick emits the due sends and looks.
func (c *Claims) tick(now time.Time, send func(escrow.Task) bool) []escrow.Effect {
	effects := c.queue.Tick(now, c.params, send)
	if c.lookAt.IsZero() || !now.Before(c.lookAt) {
		effects = append(effects, c.look()...)
	}
	return effects
}

// soon schedules a look as early as possible: the wiring ticks at Next.
func (c *Claims) soon(now time.Time) []escrow.Effect {
	if c.end == endNot && (c.closing != nil || c.over) {
		return c.look()
	}
	if c.lookAt.IsZero() {
		c.lookAt = now
	}
	return nil
}

func (c *Claims) look() []escrow.Effect {
	if c.looking || c.Done() {
		return nil
	}
	c.looking = true
	return []escrow.Effect{escrow.Look{Escrow: c.escrow, Tranches: []uint16{c.funding.Tranche}}}
}

func (c *Claims) signed(now time.Time, ev escrow.Signed) (change bool, effects []escrow.Effect) {
	effects, change, tooLong := c.queue.Signed(now, c.params, ev, sends(&c.queue))
	c.table.unsigned(&c.queue)
	for _, t := range tooLong {
		if t.Kind == escrow.TaskClaim && !c.apart { // once more, in two
			c.apart = true
			c.queue.Succeeded(t)
			return change, c.look()
		}
	}
	return change, effects
}

func (c *Claims) pushed(now time.Time, ev escrow.Pushed) (change bool, effects []escrow.Effect) {
	o := c.queue.Pushed(now, c.params, ev)
	effects = o.Effects
	final, kind := o.Status.State == chain.Finalized, o.Tx.Task.Kind
	if o.Over && final {
		c.landedAt = max(c.landedAt, o.Status.Slot)
		switch kind {
		case escrow.TaskClaim:
			c.landedAmount = max(c.landedAmount, min(o.Tx.Task.Amount, c.accrued(o.Status.Slot)))
		case escrow.TaskOpenToken:
			c.open = true
		}
	}
	if o.Over {
		c.table.record(o.Tx, o.Status)
	}
	if o.Known && kind == escrow.TaskOpenToken && o.Tx.State == chain.Confirmed {
		c.open = true
	}
	if o.Over && (kind == escrow.TaskClaim || kind == escrow.TaskOpenToken) && !final {
		c.open = false
	}
	if o.Known || o.Over {
		effects = append(effects, c.look()...)
	}
	return o.Over, effects
}

// closes reports whether a transaction is still to be sent after the end of the claims.
func closes(t escrow.Task) bool { return t.Kind != escrow.TaskMakeTable }

// close handles an event after the end of the claims, to recover the table's rent.
func (c *Claims) close(now time.Time, ev escrow.Event) (change bool, effects []escrow.Effect) {
	if c.Done() {
		return false, nil
	}
	switch ev := ev.(type) {
	case escrow.Signed:
		effects, change, _ = c.queue.Signed(now, c.params, ev, closes)
		c.table.unsigned(&c.queue)
	case escrow.Pushed:
		o := c.queue.Pushed(now, c.params, ev)
		if change, effects = o.Over, o.Effects; o.Over {
			c.table.record(o.Tx, o.Status)
		}
	case escrow.Looked:
		return c.closeTable(now, ev)
	case escrow.Ticked:
		effects = c.tick(now, closes)
	}
	return change, effects
}

func (c *Claims) closeTable(now time.Time, ev escrow.Looked) (change bool, effects []escrow.Effect) {
	c.looking, c.lookAt = false, now.Add(c.params.LookEvery)
	if ev.Err != "" {
		c.queue.Note(ev.Err)
		return false, nil
	}
	c.waits = ""
	if c.queue.Len() > 0 {
		return false, nil
	}
	change, orders, waits := c.table.close(now, c.core.Provider, &c.queue, ev.Final.Slot)
	c.waits = waits
	switch {
	case len(orders) > 0:
		effects = []escrow.Effect{escrow.Sign{Orders: orders}}
	case waits != "":
		effects = []escrow.Effect{escrow.Waiting{Reason: waits, Until: c.lookAt}}
	}
	return change, effects
}
