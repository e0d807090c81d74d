package deposit

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
)

const (
	openingSpare = 15 // of the opening slots: later no opening is signed
	closeAtOnce  = 6  // tranches that one transaction closes
)

// finalDepth is the longest path with which a transaction that frees a leaf by a final receipt has room for a bid.
// Longer paths have no bid: the amount is freed after the response slots in any case.
const finalDepth = 7

// plan computes, from one confirmed view, the transactions that bring the chain nearer to the wanted state.
type plan struct {
	*books
	now   time.Time
	view  escrow.View
	apart bool // the opening and the first tranches do not fit together

	change  bool // of the journalled state
	effects []escrow.Effect
	orders  []escrow.SignOrder
	asks    uint16 // number of tranches, from the first, for the next look
	waits   string // the event that is awaited
}

// run requests all transactions that can be signed now.
func (p *plan) run() {
	if p.view.Escrow == nil {
		p.open()
	} else {
		if p.hires() {
			p.hire()
		} else {
			p.add()
		}
		p.retire()
		p.reclaim()
		comes := slices.ContainsFunc(p.batches, func(b batch) bool { return p.comes(&b) })
		if p.ending && !comes || p.over(p.view) {
			if p.hires() {
				p.leave()
			} else {
				p.end()
			}
		}
	}
	if len(p.orders) > 0 {
		p.effects = append(p.effects, escrow.Sign{Orders: p.orders})
	}
}

// ask begins a transaction for a task, unless one is pending or the last failure is too recent. The stake bounds the
// bid.
func (p *plan) ask(t escrow.Task, stake market.Amount, instructions func(fails uint8) []svm.Instruction) {
	if fails, ok := p.queue.May(p.now, t); ok {
		o := p.queue.Ask(p.now, t, stake, instructions(fails)...)
		o.Full = t.Kind == escrow.TaskFinal && p.batches.deepest(t.Tranche) > finalDepth
		p.orders = append(p.orders, o)
	}
}

// next is the first batch that should be on chain, is not, and could be there in time; -1: none.
func (p *plan) next() int {
	opening := p.queue.UnderKind(escrow.TaskOpen) && (p.view.Escrow == nil || !p.apart)
	if opening || p.queue.UnderKind(escrow.TaskAdd) {
		return -1
	}
	return slices.IndexFunc(p.batches, func(b batch) bool {
		first, _ := b.before()
		_, landed := b.landedIn(p.view)
		return !landed && p.view.Slot < first && p.comes(&b)
	})
}

// open decides the escrow's address, once, and opens it. The address is in the journal before anything is signed; it is
// changed only if no escrow can ever be opened there.
func (p *plan) open() {
	i := p.next()
	if i < 0 || p.seen || p.view.Slot == 0 || p.hires() {
		return
	}
	if p.opened == 0 {
		p.calls = p.named(uint64(p.view.Slot))
		p.change, p.effects = true, append(p.effects, escrow.Opening{Escrow: p.at, Opened: p.opened})
	}
	if uint64(p.view.Slot) > p.opened+account.OpeningSlots-openingSpare {
		p.waits = fmt.Sprintf("escrow of slot %d: too late to open; waiting to open another", p.opened)
		return
	}
	b := &p.batches[i]
	p.ask(escrow.Task{Kind: escrow.TaskOpen, Tranche: uint16(i)}, b.caps(), func(uint8) []svm.Instruction {
		p.change = true
		open := []svm.Instruction{p.calls.open(max(b.deposit, b.caps()), p.deadline)}
		if p.apart { // its tranches follow when it is seen
			return open
		}
		return append(open, p.addTranches(b, 0)...)
	})
}

// addTranches sets money aside for a batch, from a number on.
func (p *plan) addTranches(b *batch, first uint16) (out []svm.Instruction) {
	p.number(b, first)
	for k, tree := range b.trees {
		out = append(out, p.addTranche(first+uint16(k), tree.Root()))
	}
	return out
}

// number gives a batch the numbers of its tranches, in a transaction that is about to be signed.
func (p *plan) number(b *batch, first uint16) {
	b.number(first)
	p.asks = max(p.asks, first+uint16(len(b.trees)))
}

// add adds a batch to an existing escrow, with the missing tokens. Tranche numbers are unique, so of two transactions
// with one number only one can take effect, and its tokens move once.
func (p *plan) add() {
	e := p.view.Escrow
	i := p.next()
	if i < 0 || e.State != account.EscrowOpen || uint64(p.view.Slot) >= e.Deadline {
		return
	}
	b := &p.batches[i]
	p.ask(escrow.Task{Kind: escrow.TaskAdd, Tranche: uint16(i)}, b.caps(), func(uint8) (out []svm.Instruction) {
		p.change = true
		if short := b.caps() - min(b.caps(), p.view.Free()); short > 0 {
			out = append(out, p.topUp(short))
		}
		return append(out, p.addTranches(b, e.Tranches)...)
	})
}

// retire frees the amounts that retired leases can no longer earn.
func (p *plan) retire() {
	if p.over(p.view) {
		return
	}
	for i := range p.batches {
		b := &p.batches[i]
		for j := range b.leases {
			e := &b.leases[j]
			s, ok := b.leafIn(p.view, j)
			late := ok && market.Slot(p.view.Tranches[b.trancheOf(j)].Opened) > e.before
			if ok && e.left(s) > 0 && (p.ending || e.retire || late) {
				p.retireLeaf(b, j, s)
			}
		}
	}
}

// retireLeaf frees a leaf: by its final receipt, or after the response slots.
func (p *plan) retireLeaf(b *batch, j int, s account.LeafState) {
	e, k := &b.leases[j], b.trancheOf(j)
	if e.final == nil || e.gain(s) > 0 {
		e.freed = 0
	} else if e.freed == 0 {
		e.freed = p.view.Slot
	}
	t, left := escrow.Task{Tranche: k, Leaf: e.leaf.Index}, market.Amount(e.left(s))
	switch over := p.view.Tranches[k].Opened + uint64(s.Window); {
	case s.Window != 0 && uint64(p.view.Slot) > over: // also the unclaimed rest of a final receipt
		t.Kind = escrow.TaskFinish
		p.ask(t, left, func(uint8) []svm.Instruction {
			return []svm.Instruction{p.retireFinish(k, e.leaf, b.proof(j))}
		})
	case e.final != nil && e.freed == 0:
		t.Kind = escrow.TaskFinal
		p.ask(t, left, func(uint8) []svm.Instruction { return p.retireFinal(k, e.leaf, b.proof(j), *e.final) })
	case s.Window == 0 && uint64(p.view.Slot) < uint64(e.freed)+p.patience(e):
		p.waits = "providers have yet to claim"
	case s.Window == 0:
		t.Kind = escrow.TaskBegin
		p.ask(t, left, func(fails uint8) []svm.Instruction {
			return []svm.Instruction{p.retireBegin(k, e.leaf.Index, fails)}
		})
	default:
		p.waits = fmt.Sprintf("providers may claim until slot %d", over)
	}
}

// patience is the number of slots in which a provider may claim the rest of its final receipt before the response slots
// begin. Most claim immediately, and need no transaction of the buyer.
func (p *plan) patience(e *entry) uint64 {
	if e.final == nil {
		return 0
	}
	return uint64(p.net.Account.Rules.ResponseSlots)
}

// end reclaims free money, splits the fees, and closes all accounts, as far as possible now.
func (p *plan) end() {
	e := p.view.Escrow
	retires := func(t escrow.Task) bool {
		return t.Kind == escrow.TaskBegin || t.Kind == escrow.TaskFinish || t.Kind == escrow.TaskFinal
	}
	ends := e.State == account.EscrowOpen && p.over(p.view)
	// The refund of amounts that confirmed transactions freed is sent beside them. If they are forked away, it returns
	// the amount that is free then, and another the rest.
	if ends || p.view.Free() > 0 && !p.queue.Unseen(retires) {
		p.ask(escrow.Task{Kind: escrow.TaskRefund}, p.view.Free(), func(fails uint8) []svm.Instruction {
			return append(p.openToken(p.deal.RefundOwner, fails), p.refund(p.deal.RefundOwner, p.deal.Buyer))
		})
	}
	if ends || e.State == account.EscrowOpen && (p.queue.Under(retires) || p.batches.flying()) {
		return
	}
	if p.settled(e.Outstanding) && e.Fee > 0 {
		p.ask(escrow.Task{Kind: escrow.TaskSweep}, 0, func(fails uint8) []svm.Instruction {
			return p.sweep(*e, fails)
		})
	}
	p.closeTranches()
	if !p.settled(e.Outstanding) || e.Closed != e.Tranches || e.Fee > 0 {
		return
	}
	if uint64(p.view.Slot) <= e.Opened+account.OpeningSlots {
		p.waits = fmt.Sprintf("the escrow can be closed after slot %d", e.Opened+account.OpeningSlots)
		return
	}
	p.ask(escrow.Task{Kind: escrow.TaskCloseEscrow}, 0, func(fails uint8) []svm.Instruction {
		return append(p.openToken(p.deal.RefundOwner, fails), p.closeEscrow(e.RentPayer))
	})
}

// settled reports whether the outstanding amount is 0 or was refunded.
func (p *plan) settled(outstanding uint64) bool {
	return outstanding == 0 || p.view.Escrow.State == account.EscrowRefunded
}

// closeTranches closes tranches without outstanding money, including tranches of the voucher keys. A Hire closes only
// tranches with the hirer's rent.
func (p *plan) closeTranches() {
	if p.queue.UnderKind(escrow.TaskCloseTranche) {
		return
	}
	var out []svm.Instruction
	var first uint16
	for k := range p.view.Escrow.Tranches {
		if t, ok := p.view.Tranches[k]; ok && p.settled(t.Outstanding) && len(out) < closeAtOnce &&
			(!p.hires() || t.RentPayer == p.hirer) {
			if len(out) == 0 {
				first = k
			}
			out = append(out, p.closeTranche(k, t.RentPayer))
		}
	}
	if len(out) > 0 {
		t := escrow.Task{Kind: escrow.TaskCloseTranche, Tranche: first}
		p.ask(t, 0, func(fails uint8) []svm.Instruction {
			if fails > 0 {
				return out[:1] // another may have been closed concurrently
			}
			return out
		})
	}
}
