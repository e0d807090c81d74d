package escrow

import (
	"slices"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/tranche"
)

func (d *Deposit) pushed(now time.Time, ev Pushed) (change bool, effects []Effect, err error) {
	x, status, known, over, effects := d.fleet.pushed(now, d.params, ev)
	if over && status.State == chain.Finalized {
		d.landed = max(d.landed, status.Slot)
	}
	if i := int(x.task.tranche); over && x.task.kind <= kindAdd && status.State != chain.Finalized &&
		d.batches[i].stage == stageSigned && !ev.Gone && !d.underBatch(i) {
		d.batches[i].stage = stageWanted
	}
	if known || over {
		effects = append(effects, d.look()...)
	}
	return over, effects, nil
}

// looked compares the chain's state with the wanted state. Final state is booked. Confirmed state is used for planning,
// and planned anew if it is forked away.
func (d *Deposit) looked(now time.Time, ev Looked) (change bool, effects []Effect, err error) {
	d.looking = false
	if ev.Escrow != d.at {
		return false, d.look(), nil // the question is older than the address
	}
	if ev.Err != "" {
		d.fleet.reason, d.lookAt = clip(ev.Err), now.Add(d.params.RetryAfter)
		return false, []Effect{Waiting{Reason: d.fleet.reason, Until: d.lookAt}}, nil
	}
	c, f := ev.Confirmed, ev.Final
	if c.Slot < f.Slot {
		c = f
	}
	if f.Slot < d.final || c.Slot < d.landed { // the endpoints lag behind their earlier answers
		d.lookAt = now.Add(d.params.PollEvery)
		return false, nil, nil
	}
	d.final = f.Slot
	if c.Escrow != nil && c.Escrow.Tranches > d.asked {
		d.asked = c.Escrow.Tranches
		return false, d.look(), nil
	}
	d.adopt(c)
	d.adopt(f)
	change, effects = d.book(c, f)
	if d.closed {
		d.lookAt, d.fleet.flights, d.reasonFor, d.fleet.reason = time.Time{}, nil, "", ""
		return true, effects, nil
	}
	effects = append(effects, d.foretell(c)...)
	planned, more := d.plan(now, c)
	change, effects = change || planned, append(effects, more...)
	d.lookAt = now.Add(d.params.LookEvery)
	if len(d.fleet.flights) > 0 || d.flying() {
		d.lookAt = now.Add(d.params.PollEvery)
	}
	if !d.busy() {
		d.lookAt = time.Time{}
	}
	if len(d.fleet.flights) == 0 && d.reasonFor != "" {
		effects = append(effects, Waiting{Reason: d.reasonFor, Until: d.lookAt})
	}
	return change, effects, nil
}

// flying reports whether a batch waits to be final.
func (d *Deposit) flying() bool {
	for _, b := range d.batches {
		if b.stage == stageSigned {
			return true
		}
	}
	return false
}

// book records the final state. C is the confirmed state.
func (d *Deposit) book(c, f View) (change bool, effects []Effect) {
	switch {
	case f.Escrow != nil:
		change = !d.seen
		d.seen = true
		if back := market.Amount(f.Escrow.Refunded); back > d.refunded && !d.hires() {
			d.refunded, change = back, true
			effects = append(effects, Refunded{Amount: back})
		}
	case d.seen:
		d.closed = true
	case c.Escrow == nil && d.opened != 0 && uint64(f.Slot) > d.opened+program.OpeningSlots:
		// It is not there and can never be opened any more under this address.
		d.closed = d.ending
		if !d.fleet.underKind(kindOpen) && !d.closed && !d.hires() {
			*d = d.named(0)
			d.asked, change = 1, true
		}
	case d.opened == 0:
		d.closed = d.ending
	}
	for i := range d.batches {
		booked, told := d.bookBatch(i, c, f)
		change, effects = change || booked, append(effects, told...)
	}
	d.closed = d.closed || d.hires() && d.gone(c, f)
	if d.closed {
		return true, append(effects, Closed{Refunded: d.refunded})
	}
	d.back = d.woundUp(f)
	return change, effects
}

// woundUp reports whether nothing is left to free and all free money is back.
func (d *Deposit) woundUp(f View) bool {
	for _, b := range d.batches {
		open := b.stage == stageFunded && slices.ContainsFunc(b.leases, func(e entry) bool { return !e.done })
		if open || b.stage == stageWanted && !b.hired || b.stage == stageSigned {
			return false
		}
	}
	return f.Escrow == nil || f.Escrow.State != program.EscrowOpen || free(f) == 0 && !d.retiring(f)
}

// bookBatch records the final state of a batch.
func (d *Deposit) bookBatch(i int, c, f View) (change bool, effects []Effect) {
	b := &d.batches[i]
	if b.stage == stageFunded {
		d.bookLeaves(b, f)
		return false, nil
	}
	if opened, ok := b.landedIn(f); ok {
		return true, d.bookLanded(i, market.Slot(opened))
	}
	if b.stage == stageVoid {
		return false, nil
	}
	if b.stage == stageSigned && f.Escrow != nil && f.Escrow.Tranches > b.first {
		_, other := f.Tranches[b.first]
		if !other && d.shared() && d.underBatch(i) {
			return false, nil // it is closed already; the outcome of our transaction decides whether it was ours
		}
		d.dropBatch(i)
		if !other { // it was ours, or nobody knows any more; no lease is funded twice
			b.stage = stageFunded
			d.bookLeaves(b, f)
			return true, nil
		}
		b.stage, change = stageWanted, true // its number went to another
	}
	if b.hired {
		return change, nil // it may never come
	}
	first, last := b.before()
	_, near := b.landedIn(c)
	idle := !d.underBatch(i) && !near && f.Slot >= d.landed
	why := d.hopeless(b, f)
	if d.closed || f.Slot > last || idle && (!b.pursued(d) || f.Slot > first || why != nil) {
		b.stage = stageVoid
		for j := range b.leases {
			b.leases[j].void = true
		}
		return true, append(effects, b.tellVoid(why)...)
	}
	return change, effects
}

// bookLanded: a batch is on chain for ever. Leases for which that was too late are void, and their money is taken back.
func (d *Deposit) bookLanded(i int, opened market.Slot) (effects []Effect) {
	b := &d.batches[i]
	b.stage, b.opened = stageFunded, opened
	d.dropBatch(i)
	for j := range b.leases {
		e := &b.leases[j]
		e.void = e.void || opened > e.before
		e.retire = e.retire || e.void
	}
	return append(d.tellFunded(b, opened, true), b.tellVoid(nil)...)
}

func (d *Deposit) tellFunded(b *batch, opened market.Slot, final bool) []Effect {
	told := Funded{Escrow: d.at, Landed: opened, Final: final}
	for j, e := range b.leases {
		if !e.void && opened <= e.before {
			told.Leases = append(told.Leases, FundedLease{Lease: e.leaf.Lease, Funding: d.funding(b, j)})
		}
	}
	if len(told.Leases) == 0 {
		return nil
	}
	return []Effect{told}
}

func (b *batch) tellVoid(why error) []Effect {
	var told Void
	if why != nil {
		told.Reason = clip(why.Error())
	}
	for _, e := range b.leases {
		if e.void {
			told.Leases = append(told.Leases, e.leaf.Lease)
		}
	}
	if len(told.Leases) == 0 {
		return nil
	}
	return []Effect{told}
}

// recall repeats final events, once after a restart.
func (d *Deposit) recall() (effects []Effect) {
	if !d.retell {
		return nil
	}
	d.retell = false
	if d.opened != 0 && !d.hires() {
		effects = append(effects, Opening{Escrow: d.at, Opened: d.opened})
	}
	for i := range d.batches {
		b := &d.batches[i]
		if b.opened != 0 {
			effects = append(effects, d.tellFunded(b, b.opened, true)...)
		}
		effects = append(effects, b.tellVoid(nil)...)
	}
	if d.refunded > 0 {
		effects = append(effects, Refunded{Amount: d.refunded})
	}
	if d.closed {
		effects = append(effects, Closed{Refunded: d.refunded})
	}
	return effects
}

// bookLeaves notes of which leases nothing is left to do.
func (d *Deposit) bookLeaves(b *batch, f View) {
	for j := range b.leases {
		e := &b.leases[j]
		if e.done || !e.retire && !d.ending {
			continue
		}
		s, ok := d.leafIn(f, b, j)
		e.done = !ok || e.left(s) == 0 || e.final != nil && e.gain(s) == 0
	}
}

// foretell reports the leases that are funded if the confirmed block stays.
func (d *Deposit) foretell(c View) (effects []Effect) {
	for i := range d.batches {
		b := &d.batches[i]
		opened, ok := b.landedIn(c)
		if b.stage != stageSigned || b.near != 0 || !ok {
			continue
		}
		b.near = market.Slot(opened)
		effects = append(effects, d.tellFunded(b, market.Slot(opened), false)...)
	}
	return effects
}

// underBatch reports whether a transaction with the batch could still land.
func (d *Deposit) underBatch(i int) bool {
	return d.fleet.under(func(t task) bool { return t.kind <= kindAdd && int(t.tranche) == i })
}

// dropBatch forgets the batch's transactions: none of them can land any more, or one has.
func (d *Deposit) dropBatch(i int) {
	d.fleet.drop(func(x flight) bool { return x.task.kind <= kindAdd && int(x.task.tranche) == i })
}

// before is the first and the last activate-before slot of a batch.
func (b *batch) before() (first, last market.Slot) {
	first = b.leases[0].before
	for _, e := range b.leases {
		first, last = min(first, e.before), max(last, e.before)
	}
	return first, last
}

// landedIn finds the batch's tranches in a view; opened is their slot. Roots are over leases, of which each is in one
// batch.
func (b *batch) landedIn(v View) (opened uint64, ok bool) {
	for k, tree := range b.trees {
		if t, there := v.Tranches[b.first+uint16(k)]; there && rootOf(t) == tree.Root() {
			return t.Opened, true
		}
	}
	return 0, false
}

// leafIn is the state of a lease's leaf; ok is false when its tranche is not there or nobody can claim any more.
func (d *Deposit) leafIn(v View, b *batch, j int) (s program.LeafState, ok bool) {
	k := j / d.fit(len(b.leases), b.hired)
	t, there := v.Tranches[b.first+uint16(k)]
	if !there || rootOf(t) != b.trees[k].Root() || v.Escrow == nil || v.Escrow.State != program.EscrowOpen {
		return s, false
	}
	return t.Leaves[b.leases[j].leaf.Index], true
}

// left is the amount of a leaf that could still be claimed.
func (e *entry) left(s program.LeafState) uint64 { return leftOf(e.leaf, s) }

func leftOf(l tranche.Leaf, s program.LeafState) uint64 {
	return uint64(l.Cap) - min(uint64(l.Cap), s.Freed) - min(uint64(l.Cap)-min(uint64(l.Cap), s.Freed), s.Paid)
}

// gain is the amount that the final receipt would free.
func (e *entry) gain(s program.LeafState) uint64 {
	keeps := uint64(e.final.core.Cumulative) - min(uint64(e.final.core.Cumulative), s.Paid)
	return e.left(s) - min(e.left(s), keeps)
}
