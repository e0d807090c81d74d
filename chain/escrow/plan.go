package escrow

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

const (
	openingSpare = 15 // of the opening slots: later no opening is signed
	closeAtOnce  = 6  // tranches that one transaction closes
)

// plan requests the transactions that bring the chain nearer to the wanted state.
func (d *Deposit) plan(now time.Time, c View) (change bool, effects []Effect) {
	d.reasonFor = ""
	var orders []SignOrder
	add := func(t task, stake market.Amount, make func(fails uint8) []program.Instruction) {
		if fails, ok := d.fleet.may(now, t); ok {
			o := d.fleet.ask(now, t, stake, make(fails)...)
			o.Full = t.kind == kindFinal && d.deepest(t.tranche) > finalDepth
			orders = append(orders, o)
		}
	}
	if c.Escrow == nil {
		change, effects = d.planOpening(c, add)
	} else {
		change = d.planAdding(c, add)
		d.planLeaves(c, add)
		d.planStrangers(c, add)
		comes := slices.ContainsFunc(d.batches, func(b batch) bool { return b.comes(d) })
		if d.ending && !comes || d.over(c) {
			d.planEnd(c, add)
		}
	}
	if len(orders) > 0 {
		effects = append(effects, Sign{Orders: orders})
	}
	return change, effects
}

// finalDepth is the longest path with which a final receipt that frees a leaf leaves room for a bid. Longer ones go
// without: the freed amount is the buyer's anyhow, after the response slots.
const finalDepth = 7

// deepest is how long the paths of a tranche are at most.
func (d *Deposit) deepest(k uint16) int {
	for i := range d.batches {
		b := &d.batches[i]
		if at := int(k) - int(b.first); b.stage >= stageSigned && at >= 0 && at < len(b.trees) {
			return bits.Len(uint(b.trees[at].Root().Count - 1))
		}
	}
	return 0
}

// asking begins a transaction for a task with so much at stake, unless one is under way or it is too soon after a
// failure.
type asking func(t task, stake market.Amount, make func(fails uint8) []program.Instruction)

// nextBatch is the first batch that should be on chain, is not, and could be there in time; -1: none.
func (d *Deposit) nextBatch(c View) int {
	opening := d.fleet.underKind(kindOpen) && (c.Escrow == nil || !d.apart)
	if opening || d.fleet.underKind(kindAdd) {
		return -1
	}
	return slices.IndexFunc(d.batches, func(b batch) bool {
		first, _ := b.before()
		_, landed := b.landedIn(c)
		return !landed && c.Slot < first && b.comes(d)
	})
}

// planOpening decides the escrow's address, once, and opens it. The address is in the journal before anything is
// signed; it is changed only when no escrow can come to be there any more.
func (d *Deposit) planOpening(c View, add asking) (change bool, effects []Effect) {
	i := d.nextBatch(c)
	if i < 0 || d.seen || c.Slot == 0 || d.hires() {
		return false, nil
	}
	if d.opened == 0 {
		*d = d.named(uint64(c.Slot))
		change, effects = true, append(effects, Opening{Escrow: d.at, Opened: d.opened})
	}
	if uint64(c.Slot) > d.opened+program.OpeningSlots-openingSpare {
		d.reasonFor = fmt.Sprintf("too late to open the escrow of slot %d, too early to open another", d.opened)
		return change, effects
	}
	b := &d.batches[i]
	add(task{kind: kindOpen, tranche: uint16(i)}, b.caps(), func(uint8) []program.Instruction {
		change = true
		open := []program.Instruction{d.openEscrow(max(b.deposit, b.caps()))}
		if d.apart { // its tranches follow when it is seen
			return open
		}
		return append(open, d.addTranches(b, 0)...)
	})
	return change, effects
}

func (d *Deposit) openEscrow(deposit market.Amount) program.Instruction {
	return program.OpenEscrow{Payer: d.deal.Buyer, Buyer: d.deal.Buyer, Source: d.deal.Source, Authority: d.deal.Buyer,
		Escrow: d.at, Vault: d.vault, Mint: d.net.Mint, Network: d.net.address, Order: d.deal.Order, Opened: d.opened,
		Deadline: uint64(d.deadline), Deposit: uint64(deposit), Referrer: d.deal.Referrer,
		RefundOwner: d.deal.RefundOwner, MintIndex: d.net.index, Keys: d.deal.Keys,
		Standbys: d.deal.Standbys}.Instruction(d.net.Program)
}

// addTranches sets money aside for a batch, from a number on.
func (d *Deposit) addTranches(b *batch, first uint16) (out []program.Instruction) {
	b.number(first)
	for k, tree := range b.trees {
		index := first + uint16(k)
		out = append(out, program.AddTranche{Payer: d.deal.Buyer, Buyer: d.deal.Buyer, Escrow: d.at, Vault: d.vault,
			Index: index, Root: tree.Root(), Tranche: d.tranche(index)}.Instruction(d.net.Program))
	}
	d.asked = max(d.asked, first+uint16(len(b.trees)))
	return out
}

// number is that of its first tranche, in a transaction that is about to be signed.
func (b *batch) number(first uint16) { b.first, b.stage, b.near = first, stageSigned, 0 }

func (d *Deposit) tranche(k uint16) sign.Key { return program.TrancheAddress(d.net.Program, d.at, k) }

// free is the amount that nobody could claim.
func free(v View) market.Amount {
	owed := market.Amount(v.Escrow.Outstanding + v.Escrow.Fee)
	return v.Vault - min(v.Vault, owed)
}

// planAdding adds a batch to an escrow that is there, with as many tokens as it lacks. The next tranche has one number,
// so that of two transactions with the same only one can take effect, and its tokens move once.
func (d *Deposit) planAdding(c View, add asking) (change bool) {
	if d.hires() {
		return d.planHiring(c, add)
	}
	i := d.nextBatch(c)
	if i < 0 || c.Escrow.State != program.EscrowOpen || uint64(c.Slot) >= c.Escrow.Deadline {
		return false
	}
	b := &d.batches[i]
	add(task{kind: kindAdd, tranche: uint16(i)}, b.caps(), func(uint8) (out []program.Instruction) {
		change = true
		if short := b.caps() - min(b.caps(), free(c)); short > 0 {
			out = append(out, program.TopUp{Escrow: d.at, Vault: d.vault, Source: d.deal.Source,
				Authority: d.deal.Buyer, Mint: d.net.Mint, Amount: uint64(short)}.Instruction(d.net.Program))
		}
		return append(out, d.addTranches(b, c.Escrow.Tranches)...)
	})
	return change
}

// over reports that nobody can rely on the escrow any more: everything in it may go back.
func (d *Deposit) over(v View) bool { return uint64(v.Slot) > v.Escrow.Deadline+d.net.margin() }

// planLeaves frees the amounts that retired leases can no longer earn.
func (d *Deposit) planLeaves(c View, add asking) {
	if d.over(c) {
		return
	}
	for i := range d.batches {
		b := &d.batches[i]
		fit := d.fit(len(b.leases), b.hired)
		for j := range b.leases {
			e := &b.leases[j]
			s, ok := d.leafIn(c, b, j)
			k := b.first + uint16(j/fit)
			if !ok || e.left(s) == 0 || !d.ending && !e.retire && market.Slot(c.Tranches[k].Opened) <= e.before {
				continue
			}
			if e.final == nil || e.gain(s) > 0 {
				e.freed = 0
			} else if e.freed == 0 {
				e.freed = c.Slot
			}
			t := task{tranche: k, leaf: e.leaf.Index}
			switch over := c.Tranches[k].Opened + uint64(s.Window); {
			case s.Window != 0 && uint64(c.Slot) > over: // also the rest of a final receipt, if nobody claimed that
				t.kind = kindFinish
				add(t, market.Amount(e.left(s)), func(uint8) []program.Instruction {
					return []program.Instruction{program.RetireFinish{Escrow: d.at, Tranche: d.tranche(k), Leaf: e.leaf,
						Proof: d.funding(b, j).Proof}.Instruction(d.net.Program)}
				})
			case e.final != nil && e.freed == 0:
				t.kind = kindFinal
				add(t, market.Amount(e.left(s)), func(uint8) []program.Instruction {
					return []program.Instruction{program.FinalSigned(d.net.Domain(),
						e.final.core, e.final.by).Instruction(),
						program.RetireFinal{Escrow: d.at, Tranche: d.tranche(k), Network: d.net.address, Leaf: e.leaf,
							Proof: d.funding(b, j).Proof}.Instruction(d.net.Program)}
				})
			case s.Window == 0 && uint64(c.Slot) < uint64(e.freed)+d.patience(e):
				d.reasonFor = "providers have yet to claim"
			case s.Window == 0:
				t.kind = kindBegin
				add(t, market.Amount(e.left(s)), func(fails uint8) []program.Instruction {
					return []program.Instruction{program.RetireBegin{Escrow: d.at, Tranche: d.tranche(k),
						Network: d.net.address, Signers: d.retirers(fails),
						Index: e.leaf.Index}.Instruction(d.net.Program)}
				})
			default:
				d.reasonFor = fmt.Sprintf("providers may claim until slot %d", over)
			}
		}
	}
}

// patience is the number of slots in which a provider may claim the rest of its final receipt before the response slots
// begin. Most claim at once, and cost no transaction.
func (d *Deposit) patience(e *entry) uint64 {
	if e.final == nil {
		return 0
	}
	return uint64(d.net.Account.Rules.ResponseSlots)
}

// planEnd takes back free money, hands out the fees, and closes everything, as far as possible now.
func (d *Deposit) planEnd(c View, add asking) {
	if d.hires() {
		d.planLeaving(c, add)
		return
	}
	e := c.Escrow
	back := program.TokenAccount(d.deal.RefundOwner, d.net.Mint)
	opened := func(fails uint8) (out []program.Instruction) { // perhaps the account to be paid into is missing
		if fails > 0 {
			out = append(out, program.OpenTokenAccount(d.deal.Buyer, d.deal.RefundOwner, d.net.Mint))
		}
		return out
	}
	retires := func(t task) bool { return t.kind == kindBegin || t.kind == kindFinish || t.kind == kindFinal }
	retiring := d.fleet.under(retires)
	ends := e.State == program.EscrowOpen && d.over(c)
	// The refund of amounts that confirmed transactions freed is sent beside them. If they are forked away, it returns
	// the amount that is free then, and another the rest.
	if ends || free(c) > 0 && !d.fleet.unseen(retires) {
		add(task{kind: kindRefund}, free(c), func(fails uint8) []program.Instruction {
			return append(opened(fails), program.Refund{Escrow: d.at, Vault: d.vault, Destination: back,
				Mint: d.net.Mint, Network: d.net.address, Buyer: d.deal.Buyer}.Instruction(d.net.Program))
		})
	}
	if ends || e.State == program.EscrowOpen && (retiring || d.flying()) {
		return
	}
	settled := func(outstanding uint64) bool { return outstanding == 0 || e.State == program.EscrowRefunded }
	if settled(e.Outstanding) && e.Fee > 0 {
		add(task{kind: kindSweep}, 0, func(fails uint8) []program.Instruction { return d.sweep(*e, fails) })
	}
	d.planClosing(c, settled, add)
	if !settled(e.Outstanding) || e.Closed != e.Tranches || e.Fee > 0 {
		return
	}
	if uint64(c.Slot) <= e.Opened+program.OpeningSlots {
		d.reasonFor = fmt.Sprintf("the escrow can be closed after slot %d", e.Opened+program.OpeningSlots)
		return
	}
	add(task{kind: kindCloseEscrow}, 0, func(fails uint8) []program.Instruction {
		return append(opened(fails), program.CloseEscrow{Escrow: d.at, Vault: d.vault, Destination: back,
			Mint: d.net.Mint, RentPayer: e.RentPayer, Buyer: d.deal.Buyer}.Instruction(d.net.Program))
	})
}

// planClosing closes tranches of which nothing is outstanding, also such as the voucher keys added; of a Hire those for
// which the hirer paid the rent.
func (d *Deposit) planClosing(c View, settled func(uint64) bool, add asking) {
	if d.fleet.underKind(kindCloseTranche) {
		return
	}
	var out []program.Instruction
	var first uint16
	for k := range c.Escrow.Tranches {
		if t, ok := c.Tranches[k]; ok && settled(t.Outstanding) && len(out) < closeAtOnce &&
			(!d.hires() || t.RentPayer == d.hirer) {
			if len(out) == 0 {
				first = k
			}
			out = append(out, program.CloseTranche{Escrow: d.at, Tranche: d.tranche(k),
				RentPayer: t.RentPayer}.Instruction(d.net.Program))
		}
	}
	if len(out) > 0 {
		add(task{kind: kindCloseTranche, tranche: first}, 0, func(fails uint8) []program.Instruction {
			if fails > 0 {
				return out[:1] // perhaps another was closed meanwhile
			}
			return out
		})
	}
}

// sweep hands out the fees. When it failed before, accounts to be paid into may be missing, or the network's authority
// was given up, and with it the pool of a network that votes on nothing: that is tried every second time.
func (d *Deposit) sweep(e program.Escrow, fails uint8) (out []program.Instruction) {
	call := program.Sweep{Escrow: d.at, Vault: d.vault, Mint: d.net.Mint, Network: d.net.address}
	if d.net.Account.Params.Votes.On() || !d.net.Account.Authority.IsZero() && fails%2 == 0 {
		call.Pool = program.PoolAddress(d.net.Program, d.net.address, d.net.Mint)
	}
	share := func(wallet sign.Key) sign.Key {
		if wallet.IsZero() {
			return sign.Key{}
		}
		if fails > 0 {
			out = append(out, program.OpenTokenAccount(d.deal.Buyer, wallet, d.net.Mint))
		}
		return program.TokenAccount(wallet, d.net.Mint)
	}
	call.Treasury, call.Referrer = share(d.net.Account.Params.Treasury), share(e.Referrer)
	return append(out, call.Instruction(d.net.Program))
}

// planHiring has the voucher keys add a batch.
func (d *Deposit) planHiring(c View, add asking) (change bool) {
	i := d.nextBatch(c)
	if i < 0 {
		return false
	}
	b := &d.batches[i]
	hired, err := standbysFor(c, b.leaves())
	if err == nil {
		err = enough(c, b.leaves())
	}
	if err != nil {
		d.reasonFor = err.Error()
		return false
	}
	add(task{kind: kindAdd, tranche: uint16(i)}, b.caps(), func(fails uint8) (out []program.Instruction) {
		change = true
		b.number(c.Escrow.Tranches)
		d.asked = max(d.asked, b.first+uint16(len(b.trees)))
		fit := d.fit(len(b.leases), true)
		for k := range b.trees {
			index, part := b.first+uint16(k), hired[k*fit:min((k+1)*fit, len(hired))]
			out = append(out, program.AddStandbyTranche{Payer: d.hirer, Escrow: d.at, Vault: d.vault,
				Tranche: d.tranche(index), Signers: d.voters(fails), Index: index,
				Leaves: part}.Instruction(d.net.Program))
		}
		return out
	})
	return change
}

// planLeaving has the hirer's rent come back: its tranches are closed when nothing is outstanding, or when the deadline
// and the margin are over and the rest went back to the buyer, which anybody may see to.
func (d *Deposit) planLeaving(c View, add asking) {
	e := c.Escrow
	if e.State == program.EscrowOpen && d.over(c) {
		add(task{kind: kindRefund}, 0, func(fails uint8) (out []program.Instruction) {
			if fails > 0 { // perhaps the account to be paid into is missing
				out = append(out, program.OpenTokenAccount(d.hirer, e.RefundOwner, d.net.Mint))
			}
			return append(out, program.Refund{Escrow: d.at, Vault: d.vault,
				Destination: program.TokenAccount(e.RefundOwner, d.net.Mint), Mint: d.net.Mint,
				Network: d.net.address}.Instruction(d.net.Program))
		})
		return
	}
	d.planClosing(c, func(outstanding uint64) bool {
		return outstanding == 0 || e.State == program.EscrowRefunded
	}, add)
}
