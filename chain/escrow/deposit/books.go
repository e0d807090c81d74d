package deposit

import (
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
)

// books are the machine's record of its escrow: the wanted leases, and their finalized state on chain. They are the
// journalled part of its state, with the pending transactions.
type books struct {
	calls
	deadline market.Slot // fixed once opened is chosen
	seen     bool        // such an escrow exists or existed, finalized
	final    market.Slot // newest final view: an older one is of a node that lags
	landed   market.Slot // a view from before this slot lacks final state
	ending   bool
	closed   bool
	refunded market.Amount // finalized
	batches  batches
	queue    escrow.Queue

	back bool // all unclaimable money is refunded, finally; not persisted
}

func (b *books) check() error {
	switch {
	case !b.hires():
		return b.deal.check()
	case b.opened == 0 || b.deadline == 0 || !b.deal.Source.IsZero() || !b.deal.RefundOwner.IsZero() ||
		!b.deal.Referrer.IsZero() || len(b.deal.Standbys) > 0:
		return fmt.Errorf("%w: an escrow opened in slot %d, with the deadline %d",
			escrow.ErrEvent, b.opened, b.deadline)
	}
	return b.deal.checkKeys()
}

// due reports whether a lease of x still needs its money set aside: it can still earn, or it ended with a receipt for
// work before the money was on chain.
func (b *books) due(x *batch) bool {
	return slices.ContainsFunc(x.leases, func(e entry) bool {
		return !e.void && (!b.ending && !e.retire || !b.hires() && e.final != nil && e.final.core.Cumulative > 0)
	})
}

// pursues reports whether transactions for x are still worth sending: before the end all are.
func (b *books) pursues(x *batch) bool { return !b.ending || b.due(x) }

// comes reports whether x is due and may still come on chain in time.
func (b *books) comes(x *batch) bool {
	return (x.stage == stageWanted || x.stage == stageSigned) && !x.hired && b.due(x)
}

// busy reports whether anything is to be done or waited for.
func (b *books) busy() bool {
	return b.ending || b.queue.Len() > 0 || slices.ContainsFunc(b.batches, func(x batch) bool {
		return x.stage == stageWanted && !x.hired || x.stage == stageSigned ||
			(x.stage == stageFunded || x.hired) && slices.ContainsFunc(x.leases, func(e entry) bool {
				return e.retire && !e.done
			})
	})
}

// owing is the sum that unseen transactions are to take from the deal's source.
func (b *books) owing() (sum market.Amount) {
	for i := range b.batches {
		x := &b.batches[i]
		if x.stage == stageWanted && b.pursues(x) || x.stage == stageSigned && x.near == 0 && x.opened == 0 {
			sum = sum.Plus(max(x.deposit, x.caps()))
		}
	}
	return sum
}

// funding returns the place of the money of a batch's lease.
func (b *books) funding(x *batch, j int) escrow.Funding {
	f := escrow.Funding{Opened: b.opened, Tranche: x.trancheOf(j), Index: x.leases[j].leaf.Index, Proof: x.proof(j)}
	if b.hires() || x.hired || b.deal.leaseBuyer() != b.deal.Buyer {
		f.Buyer, f.Order = b.deal.Buyer, b.deal.Order
	}
	return f
}

// book records the final state. C is the confirmed state. Renamed means that the address was given up: no escrow can be
// opened there.
func (b *books) book(c, f escrow.View) (change, renamed bool, effects []escrow.Effect) {
	switch {
	case f.Escrow != nil:
		change = !b.seen
		b.seen = true
		if back := market.Amount(f.Escrow.Refunded); back > b.refunded && !b.hires() {
			b.refunded, change = back, true
			effects = append(effects, escrow.Refunded{Amount: back})
		}
	case b.seen:
		b.closed = true
	case c.Escrow == nil && b.opened != 0 && uint64(f.Slot) > b.opened+account.OpeningSlots:
		// It does not exist and can never be opened under this address.
		b.closed = b.ending
		if !b.queue.UnderKind(escrow.TaskOpen) && !b.closed && !b.hires() {
			b.calls = b.named(0)
			change, renamed = true, true
		}
	case b.opened == 0:
		b.closed = b.ending
	}
	for i := range b.batches {
		booked, reports := b.bookBatch(i, c, f)
		change, effects = change || booked, append(effects, reports...)
	}
	b.closed = b.closed || b.hires() && b.gone(c, f)
	if b.closed {
		return true, renamed, append(effects, escrow.Closed{Refunded: b.refunded})
	}
	b.back = b.empty(f)
	return change, renamed, effects
}

// empty reports whether nothing is left to free and all free money is back.
func (b *books) empty(f escrow.View) bool {
	for _, x := range b.batches {
		open := x.stage == stageFunded && slices.ContainsFunc(x.leases, func(e entry) bool { return !e.done })
		if open || x.stage == stageWanted && !x.hired || x.stage == stageSigned {
			return false
		}
	}
	return f.Escrow == nil || f.Escrow.State != account.EscrowOpen || f.Free() == 0 && !b.retiring(f)
}

// retiring reports whether a tranche outside of all batches can still be recovered before the deadline.
func (b *books) retiring(f escrow.View) bool {
	for _, t := range f.Tranches {
		x, _, own := b.batches.owner(t)
		if own || t.Outstanding == 0 {
			continue
		}
		for _, s := range t.Leaves {
			if x != nil || s.Window == 0 || uint64(f.Slot) <= t.Opened+uint64(s.Window) {
				return true
			}
		}
	}
	return false
}

// bookBatch records the final state of a batch.
func (b *books) bookBatch(i int, c, f escrow.View) (change bool, effects []escrow.Effect) {
	x := &b.batches[i]
	if x.stage == stageFunded {
		b.bookLeaves(x, f)
		return false, nil
	}
	if opened, ok := x.landedIn(f); ok {
		return true, b.bookLanded(i, market.Slot(opened))
	}
	if x.stage == stageVoid {
		return false, nil
	}
	if x.stage == stageSigned && f.Escrow != nil && f.Escrow.Tranches > x.first {
		_, other := f.Tranches[x.first]
		if !other && b.shared() && b.queue.Under(ofBatch(i)) {
			return false, nil // it is closed already; the outcome of our transaction decides whether it was ours
		}
		b.queue.Drop(ofBatch(i))
		if !other { // it was ours, or no endpoint remembers; no lease is funded twice
			x.stage = stageFunded
			b.bookLeaves(x, f)
			return true, nil
		}
		x.stage, change = stageWanted, true // its number went to another
	}
	if x.hired {
		return change, nil // it may never come
	}
	first, last := x.before()
	_, near := x.landedIn(c)
	idle := !b.queue.Under(ofBatch(i)) && !near && f.Slot >= b.landed
	why := b.hopeless(x, f)
	if b.closed || f.Slot > last || idle && (!b.pursues(x) || f.Slot > first || why != nil) {
		x.stage = stageVoid
		for j := range x.leases {
			x.leases[j].void = true
		}
		return true, append(effects, x.reportVoid(why)...)
	}
	return change, effects
}

// bookLanded records a finalized batch. Leases for which it was too late are void, and their money is taken back.
func (b *books) bookLanded(i int, opened market.Slot) (effects []escrow.Effect) {
	x := &b.batches[i]
	x.stage, x.opened = stageFunded, opened
	b.queue.Drop(ofBatch(i))
	for j := range x.leases {
		e := &x.leases[j]
		e.void = e.void || opened > e.before
		e.retire = e.retire || e.void
	}
	return append(b.reportFunded(x, opened, true), x.reportVoid(nil)...)
}

// bookLeaves records the leases without remaining work.
func (b *books) bookLeaves(x *batch, f escrow.View) {
	for j := range x.leases {
		e := &x.leases[j]
		if e.done || !e.retire && !b.ending {
			continue
		}
		s, ok := x.leafIn(f, j)
		e.done = !ok || e.left(s) == 0 || e.final != nil && e.gain(s) == 0
	}
}

// gone reports whether no account with the rent of an ended Hire is left, and none can appear.
func (b *books) gone(c, f escrow.View) bool {
	if !b.ending || b.queue.Len() > 0 || b.batches.flying() || f.Slot < b.landed {
		return false
	}
	for _, v := range []escrow.View{c, f} {
		for _, t := range v.Tranches {
			if t.RentPayer == b.hirer {
				return false
			}
		}
	}
	return true
}

// hopeless returns an error if standbys can never be hired for a batch.
func (b *books) hopeless(x *batch, f escrow.View) error {
	if !b.hires() || f.Escrow == nil {
		return nil
	}
	_, err := standbysFor(f, x.leaves())
	if errors.Is(err, escrow.ErrNoEscrow) {
		return nil
	}
	return err
}

// adopt finds batches that stand under another number than their own, or had none: the voucher keys hired them for a
// Deposit, or for another supervisor.
func (b *books) adopt(v escrow.View) {
	for i := range b.batches {
		x := &b.batches[i]
		if _, there := x.landedIn(v); there || x.stage == stageFunded || !x.hired && !b.hires() ||
			b.queue.Under(ofBatch(i)) || v.Escrow == nil {
			continue
		}
		for k := range v.Escrow.Tranches {
			if t, ok := v.Tranches[k]; ok && escrow.RootOf(t) == x.trees[0].Root() {
				x.first = k
				break
			}
		}
	}
}

func (b *books) reportFunded(x *batch, opened market.Slot, final bool) []escrow.Effect {
	report := escrow.Funded{Escrow: b.at, Landed: opened, Final: final}
	for j, e := range x.leases {
		if !e.void && opened <= e.before {
			report.Leases = append(report.Leases, escrow.FundedLease{Lease: e.leaf.Lease, Funding: b.funding(x, j)})
		}
	}
	if len(report.Leases) == 0 {
		return nil
	}
	return []escrow.Effect{report}
}

func (b *batch) reportVoid(why error) []escrow.Effect {
	var report escrow.Void
	if why != nil {
		report.Reason = escrow.Clip(why.Error())
	}
	for _, e := range b.leases {
		if e.void {
			report.Leases = append(report.Leases, e.leaf.Lease)
		}
	}
	if len(report.Leases) == 0 {
		return nil
	}
	return []escrow.Effect{report}
}

// expect reports the leases that are funded if the confirmed block stays.
func (b *books) expect(c escrow.View) (effects []escrow.Effect) {
	for i := range b.batches {
		x := &b.batches[i]
		opened, ok := x.landedIn(c)
		if x.stage != stageSigned || x.near != 0 || !ok {
			continue
		}
		x.near = market.Slot(opened)
		effects = append(effects, b.reportFunded(x, market.Slot(opened), false)...)
	}
	return effects
}

// replay repeats the final events.
func (b *books) replay() (effects []escrow.Effect) {
	if b.opened != 0 && !b.hires() {
		effects = append(effects, escrow.Opening{Escrow: b.at, Opened: b.opened})
	}
	for i := range b.batches {
		x := &b.batches[i]
		if x.opened != 0 {
			effects = append(effects, b.reportFunded(x, x.opened, true)...)
		}
		effects = append(effects, x.reportVoid(nil)...)
	}
	if b.refunded > 0 {
		effects = append(effects, escrow.Refunded{Amount: b.refunded})
	}
	if b.closed {
		effects = append(effects, escrow.Closed{Refunded: b.refunded})
	}
	return effects
}
