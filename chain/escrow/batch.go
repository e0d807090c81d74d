package escrow

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// stage of a batch of leases.
type stage uint8

const (
	stageWanted stage = iota + 1 // not on chain
	stageSigned                  // in a transaction that may have been sent: its first tranche has a number
	stageFunded                  // on chain for ever
	stageVoid                    // not on chain in time. It could still come there late, and is then retired
)

// batch is the leases of one Fund: all of it lands in one transaction, or none.
type batch struct {
	stage   stage
	hired   bool   // of a deposit: the voucher keys are said to have set this aside for standbys
	first   uint16 // number of its first tranche
	deposit market.Amount
	leases  []entry
	trees   []*tranche.Tree // of its tranches; never changed
	opened  market.Slot     // in which it landed, for ever; 0: not, or nobody saw it
	// slot in which it landed by a view that is not final, as reported; 0: by none. Not kept over a restart
	near market.Slot
}

// entry is a lease.
type entry struct {
	leaf   tranche.Leaf
	before market.Slot // activate-before
	retire bool
	void   bool          // Void was reported
	final  *finalReceipt // its value is never changed
	done   bool          // only its provider's claims can still change it on chain; not kept over a restart
	// freed is the first slot in which the final receipt freed no more money; 0 while it does, or without one. It is
	// not journalled.
	freed market.Slot
}

type finalReceipt struct {
	core verify.ReceiptCore
	by   sign.Signature
}

// build makes the trees over the leases. It refuses leases that no tranche can hold, with ErrLease.
func (b *batch) build(fit int) error {
	seen := map[market.LeaseID]bool{}
	for _, e := range b.leases {
		if seen[e.leaf.Lease] {
			return fmt.Errorf("%w: %s stands twice", ErrLease, e.leaf.Lease.Short())
		}
		seen[e.leaf.Lease] = true
	}
	for part := range slices.Chunk(b.leases, fit) {
		leaves := make([]tranche.Leaf, len(part))
		for i, e := range part {
			leaves[i] = e.leaf
		}
		tree, err := tranche.Build(leaves)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrLease, err)
		}
		b.trees = append(b.trees, tree)
	}
	return nil
}

// due reports whether the money of some lease of b is still to be set aside: of one that can earn, or of one that ended
// with a receipt for work that was done before the money was on chain.
func (b *batch) due(d *Deposit) bool {
	return slices.ContainsFunc(b.leases, func(e entry) bool {
		return !e.void && (!d.ending && !e.retire || !d.hires() && e.final != nil && e.final.core.Cumulative > 0)
	})
}

// pursued reports whether transactions for b are still worth sending: before the end all are.
func (b *batch) pursued(d *Deposit) bool { return !d.ending || b.due(d) }

// comes reports whether b is due and may still come on chain in time.
func (b *batch) comes(d *Deposit) bool {
	return (b.stage == stageWanted || b.stage == stageSigned) && !b.hired && b.due(d)
}

func (b *batch) caps() (sum market.Amount) {
	for _, t := range b.trees {
		sum += t.Root().Sum // fund checked that this fits
	}
	return sum
}

// leaves are a batch's.
func (b *batch) leaves() []tranche.Leaf {
	out := make([]tranche.Leaf, len(b.leases))
	for i, e := range b.leases {
		out[i] = e.leaf
	}
	return out
}

// known counts the leases that are there.
func (d *Deposit) known(cores []market.LeaseCore) (n int) {
	for _, c := range cores {
		if d.entry(c.ID()) != nil {
			n++
		}
	}
	return n
}

// entry returns a lease of the deposit, or nil. Within Step it may be changed: Step works on a copy.
func (d *Deposit) entry(lease market.LeaseID) *entry {
	for i := range d.batches {
		for j := range d.batches[i].leases {
			if e := &d.batches[i].leases[j]; e.leaf.Lease == lease {
				return e
			}
		}
	}
	return nil
}
