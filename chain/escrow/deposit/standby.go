package deposit

import (
	"fmt"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// standbysFor finds the standby to hire for each leaf. A failure is permanent, as budgets only shrink.
func standbysFor(v escrow.View, leaves []tranche.Leaf) (out []program.StandbyLeaf, err error) {
	switch {
	case v.Escrow == nil:
		return nil, escrow.ErrNoEscrow
	case v.Escrow.State != account.EscrowOpen:
		return nil, escrow.ErrRefunded
	}
	spent := make([]market.Amount, len(v.Escrow.Standbys))
	for _, l := range leaves {
		no := fmt.Errorf("%w: %s, paid as %s", escrow.ErrStandby, l.Provider.Short(), l.Payout.Short())
		switch {
		case uint64(l.End) > v.Escrow.Deadline:
			return nil, fmt.Errorf("%w: lease %s ends at %d, the escrow's deadline is %d",
				escrow.ErrStandby, l.Lease.Short(), l.End, v.Escrow.Deadline)
		case l.Start < v.Slot && uint64(v.Slot-l.Start) > account.OpeningSlots:
			return nil, fmt.Errorf("%w: lease %s began at %d, too long before %d",
				escrow.ErrStandby, l.Lease.Short(), l.Start, v.Slot)
		}
		for i, s := range v.Escrow.Standbys {
			switch left := s.Budget - min(s.Budget, spent[i]); {
			case s.Provider != l.Provider || s.Payout != l.Payout:
			case l.Rate > s.MaxRate:
				no = fmt.Errorf("%w: %s for %d a million slots, at most %d",
					escrow.ErrStandby, l.Provider.Short(), l.Rate, s.MaxRate)
			case l.Cap > left:
				no = fmt.Errorf("%w: %s for up to %d, %d are left of its budget",
					escrow.ErrStandby, l.Provider.Short(), l.Cap, left)
			default:
				spent[i] += l.Cap
				out, no = append(out, program.StandbyLeaf{Standby: uint8(i), Lease: l.Lease, Rate: l.Rate, Cap: l.Cap,
					Start: l.Start, End: l.End}), nil
			}
			if no == nil {
				break
			}
		}
		if no != nil {
			return nil, no
		}
	}
	return out, nil
}

// enough reports whether the escrow's money suffices. If not, it may suffice later, after leases are retired.
func enough(v escrow.View, leaves []tranche.Leaf) error {
	var sum market.Amount
	for _, l := range leaves {
		var err error
		if sum, err = sum.Add(l.Cap); err != nil {
			return fmt.Errorf("%w: %w", escrow.ErrFree, err)
		}
	}
	if have := v.Free(); have < sum {
		return fmt.Errorf("%w: %d, %d needed", escrow.ErrFree, have, sum)
	}
	return nil
}

// hire has the voucher keys add a batch.
func (p *plan) hire() {
	i := p.next()
	if i < 0 {
		return
	}
	b := &p.batches[i]
	hired, err := standbysFor(p.view, b.leaves())
	if err == nil {
		err = enough(p.view, b.leaves())
	}
	if err != nil {
		p.waits = err.Error()
		return
	}
	t := escrow.Task{Kind: escrow.TaskAdd, Tranche: uint16(i)}
	p.ask(t, b.caps(), func(fails uint8) (out []svm.Instruction) {
		p.change = true
		p.number(b, p.view.Escrow.Tranches)
		for k := range b.trees {
			part := hired[k*b.fit : min((k+1)*b.fit, len(hired))]
			out = append(out, p.addStandbys(b.first+uint16(k), p.voters(fails), part))
		}
		return out
	})
}

// leave recovers the hirer's rent. A tranche can be closed when nothing is outstanding. After the deadline and the
// margin any peer may refund the rest to the buyer, and then close it.
func (p *plan) leave() {
	e := p.view.Escrow
	if e.State == account.EscrowOpen && p.over(p.view) {
		p.ask(escrow.Task{Kind: escrow.TaskRefund}, 0, func(fails uint8) []svm.Instruction {
			return append(p.openToken(e.RefundOwner, fails), p.refund(e.RefundOwner, sign.Key{}))
		})
		return
	}
	p.closeTranches()
}

// reclaim recovers the money in tranches of no batch. At the end these are unreported hires of the voucher keys.
// Immediately it is the second tranche of leases that have one already, so that they are not paid for twice. Unknown
// leaves can be retired, but their unclaimed money comes back only after the deadline.
func (p *plan) reclaim() {
	if p.over(p.view) || p.view.Escrow.State != account.EscrowOpen {
		return
	}
	for k := range p.view.Escrow.Tranches {
		t, ok := p.view.Tranches[k]
		if !ok || t.Outstanding == 0 {
			continue
		}
		b, tree, own := p.batches.owner(t)
		twice := false
		if b != nil {
			_, twice = b.landedIn(p.view)
		}
		if own || !twice && (!p.ending || p.hires()) {
			continue
		}
		for i, s := range t.Leaves {
			p.reclaimLeaf(k, t.Opened, uint16(i), s, b, tree)
		}
	}
}

// reclaimLeaf retires a leaf of a tranche outside of all batches. B is the batch with the same leases, tree the index
// of their tree in it. If b is nil, the leases are unknown.
func (p *plan) reclaimLeaf(k uint16, opened uint64, leaf uint16, s account.LeafState, b *batch, tree int) {
	t := escrow.Task{Kind: escrow.TaskBegin, Tranche: k, Leaf: leaf}
	switch over := opened + uint64(s.Window); {
	case s.Window == 0:
		p.ask(t, 0, func(fails uint8) []svm.Instruction {
			return []svm.Instruction{p.retireBegin(k, leaf, fails)}
		})
	case uint64(p.view.Slot) <= over:
		p.waits = fmt.Sprintf("providers may claim until slot %d", over)
	case b == nil:
		p.waits = fmt.Sprintf("leases hired by guardians: unknown; the rest is refunded after slot %d",
			p.view.Escrow.Deadline+p.net.Margin())
	default:
		j := tree*b.fit + int(leaf)
		if left := b.leases[j].left(s); left > 0 {
			t.Kind = escrow.TaskFinish
			p.ask(t, market.Amount(left), func(uint8) []svm.Instruction {
				return []svm.Instruction{p.retireFinish(k, b.leases[j].leaf, b.proof(j))}
			})
		}
	}
}
