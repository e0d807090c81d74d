package deposit

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
)

// Step takes one event and returns the next state and its effects, in order. On an error the state is unchanged.
// Errors: ErrEvent, ErrLease, ErrTooMany, ErrEnding, ErrReceipt, ErrDeadline, market.ErrOverflow.
func (d Deposit) Step(now time.Time, ev escrow.Event) (Deposit, []escrow.Effect, error) {
	next := d
	next.batches, next.queue = d.batches.clone(), d.queue.Clone()
	change, effects, err := next.apply(now, ev)
	if err != nil {
		return d, nil, err
	}
	if change {
		effects = append([]escrow.Effect{escrow.Persist{State: next.Marshal()}}, effects...)
	}
	return next, effects, nil
}

// apply reports whether the journalled state changed.
func (d *Deposit) apply(now time.Time, ev escrow.Event) (change bool, effects []escrow.Effect, err error) {
	switch ev := ev.(type) {
	case escrow.Fund:
		if change, err = d.fund(ev); err != nil {
			return false, nil, err
		}
		return change, d.look(), nil
	case escrow.Hired:
		if change, err = d.addHired(ev); err != nil {
			return false, nil, err
		}
		return change, d.look(), nil
	case escrow.Retire:
		if change, err = d.retire(ev); err != nil {
			return false, nil, err
		}
		return change, d.look(), nil
	case escrow.End:
		change, d.ending = !d.ending, true
		return change, d.look(), nil
	case escrow.Signed:
		change, effects = d.signed(now, ev)
		return change, effects, nil
	case escrow.Pushed:
		change, effects = d.pushed(now, ev)
		return change, effects, nil
	case escrow.Looked:
		change, effects = d.looked(now, ev)
		return change, effects, nil
	case escrow.Ticked:
		if d.repeat {
			d.repeat, effects = false, d.replay()
		}
		effects = append(effects, d.queue.Tick(now, d.params, d.wants)...)
		if !d.lookAt.IsZero() && now.Before(d.lookAt) {
			return false, effects, nil
		}
		return false, append(effects, d.look()...), nil
	}
	return false, nil, fmt.Errorf("%w: a deposit takes no %T", escrow.ErrEvent, ev)
}

// look requests the escrow's state, if there is a reason.
func (d *Deposit) look() []escrow.Effect {
	if d.closed || !d.busy() {
		d.lookAt = time.Time{}
		return nil
	}
	if d.looking {
		return nil
	}
	d.looking = true
	tranches := make([]uint16, d.asked)
	for i := range tranches {
		tranches[i] = uint16(i)
	}
	return []escrow.Effect{escrow.Look{Escrow: d.at, Tranches: tranches}}
}

// wants reports whether a signed transaction is still to be sent.
func (d *Deposit) wants(t escrow.Task) bool {
	if t.Kind != escrow.TaskOpen && t.Kind != escrow.TaskAdd {
		return true
	}
	b := &d.batches[t.Tranche]
	// an opening may go before its tranches
	return d.pursues(b) && (b.stage == stageSigned || b.stage == stageWanted && t.Kind == escrow.TaskOpen)
}

func (d *Deposit) signed(now time.Time, ev escrow.Signed) (change bool, effects []escrow.Effect) {
	effects, change, tooLong := d.queue.Signed(now, d.params, ev, d.wants)
	for _, t := range tooLong {
		if t.Kind == escrow.TaskOpen && !d.apart { // once more, in two
			d.apart, d.batches[t.Tranche].stage = true, stageWanted
			d.queue.Succeeded(t)
			return true, append(effects, d.look()...)
		}
	}
	if d.lookAt.IsZero() {
		d.lookAt = now.Add(d.params.LookEvery)
	}
	return change, effects
}

func (d *Deposit) pushed(now time.Time, ev escrow.Pushed) (change bool, effects []escrow.Effect) {
	o := d.queue.Pushed(now, d.params, ev)
	effects = o.Effects
	if o.Over && o.Status.State == chain.Finalized {
		d.landed = max(d.landed, o.Status.Slot)
	}
	if i := int(o.Tx.Task.Tranche); o.Over && o.Tx.Task.Kind <= escrow.TaskAdd && o.Status.State != chain.Finalized &&
		d.batches[i].stage == stageSigned && !ev.Gone && !d.queue.Under(ofBatch(i)) {
		d.batches[i].stage = stageWanted
	}
	if o.Known || o.Over {
		effects = append(effects, d.look()...)
	}
	return o.Over, effects
}

// looked compares the chain's state with the wanted state. Final state is booked. Confirmed state is used for planning,
// and planned anew if it is forked away.
func (d *Deposit) looked(now time.Time, ev escrow.Looked) (change bool, effects []escrow.Effect) {
	d.looking = false
	if ev.Escrow != d.at {
		return false, d.look() // the question is older than the address
	}
	if ev.Err != "" {
		d.queue.Note(ev.Err)
		d.lookAt = now.Add(d.params.RetryAfter)
		return false, []escrow.Effect{escrow.Waiting{Reason: d.queue.Reason, Until: d.lookAt}}
	}
	c, f := ev.Confirmed, ev.Final
	if c.Slot < f.Slot {
		c = f
	}
	if f.Slot < d.final || c.Slot < d.landed { // the endpoints lag behind their earlier answers
		d.lookAt = now.Add(d.params.PollEvery)
		return false, nil
	}
	d.final = f.Slot
	if c.Escrow != nil && c.Escrow.Tranches > d.asked {
		d.asked = c.Escrow.Tranches
		return false, d.look()
	}
	d.adopt(c)
	d.adopt(f)
	change, renamed, effects := d.book(c, f)
	if renamed {
		d.asked = 1
	}
	if d.closed {
		d.queue.Clear()
		d.lookAt, d.waits = time.Time{}, ""
		return true, effects
	}
	effects = append(effects, d.expect(c)...)
	p := plan{books: &d.books, now: now, view: c, apart: d.apart}
	p.run()
	d.asked, d.waits = max(d.asked, p.asks), p.waits
	return change || p.change, append(effects, append(p.effects, d.rest(now)...)...)
}

// rest decides when to look again, and reports an awaited event.
func (d *Deposit) rest(now time.Time) []escrow.Effect {
	d.lookAt = now.Add(d.params.LookEvery)
	if d.queue.Len() > 0 || d.batches.flying() {
		d.lookAt = now.Add(d.params.PollEvery)
	}
	if !d.busy() {
		d.lookAt = time.Time{}
	}
	if d.queue.Len() == 0 && d.waits != "" {
		return []escrow.Effect{escrow.Waiting{Reason: d.waits, Until: d.lookAt}}
	}
	return nil
}

// retire gives leases up.
func (d *Deposit) retire(ev escrow.Retire) (change bool, err error) {
	for _, r := range ev.Leases {
		b, j, ok := d.batches.find(r.Lease)
		if !ok {
			return false, fmt.Errorf("%w: %s was never funded here", escrow.ErrLease, r.Lease.Short())
		}
		e := &b.leases[j]
		change = change || !e.retire
		e.retire = true
		if r.Final == nil || e.final != nil {
			continue
		}
		core := r.Final.ReceiptCore
		if !core.Final() || core.Lease != r.Lease || core.Provider != e.leaf.Provider {
			return false, fmt.Errorf("%w: %s", escrow.ErrReceipt, r.Lease.Short())
		}
		if err := core.VerifyBy(d.net.Domain(), core.Provider, r.Final.ProviderSig); err != nil {
			return false, fmt.Errorf("%w: %s: %w", escrow.ErrReceipt, r.Lease.Short(), err)
		}
		e.final = &finalReceipt{core: core, by: r.Final.ProviderSig}
		e.done, change = false, true
	}
	return change, nil
}
