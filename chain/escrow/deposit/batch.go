package deposit

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
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
	stageFunded                  // on chain, finalized
	stageVoid                    // not on chain in time. It could still come there late, and is then retired
)

// batch is the leases of one Fund: all of it lands in one transaction, or none.
type batch struct {
	stage   stage
	hired   bool   // of a deposit: reportedly set aside by the voucher keys for standbys
	first   uint16 // number of its first tranche
	deposit market.Amount
	leases  []entry
	fit     int             // leaves of each of its tranches but the last
	trees   []*tranche.Tree // of its tranches; never changed
	opened  market.Slot     // in which it landed, finalized; 0: not landed, or not seen
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

// left is the amount of a leaf that could still be claimed.
func (e *entry) left(s account.LeafState) uint64 { return s.Left(e.leaf.Cap) }

// gain is the amount that the final receipt would free.
func (e *entry) gain(s account.LeafState) uint64 {
	keeps := uint64(e.final.core.Cumulative) - min(uint64(e.final.core.Cumulative), s.Paid)
	return e.left(s) - min(e.left(s), keeps)
}

// build makes the trees over the leases, with at most fit leaves each. It returns ErrLease for a lease that no tranche
// can hold.
func (b *batch) build(fit int) error {
	seen := map[market.LeaseID]bool{}
	for _, e := range b.leases {
		if seen[e.leaf.Lease] {
			return fmt.Errorf("%w: %s: duplicate", escrow.ErrLease, e.leaf.Lease.Short())
		}
		seen[e.leaf.Lease] = true
	}
	b.fit = fit
	for part := range slices.Chunk(b.leases, fit) {
		leaves := make([]tranche.Leaf, len(part))
		for i, e := range part {
			leaves[i] = e.leaf
		}
		tree, err := tranche.Build(leaves)
		if err != nil {
			return fmt.Errorf("%w: %w", escrow.ErrLease, err)
		}
		b.trees = append(b.trees, tree)
	}
	return nil
}

// number is that of its first tranche, in a transaction that is about to be signed.
func (b *batch) number(first uint16) { b.first, b.stage, b.near = first, stageSigned, 0 }

// trancheOf is the number of a lease's tranche.
func (b *batch) trancheOf(j int) uint16 { return b.first + uint16(j/b.fit) }

// proof is a lease's path in its tranche.
func (b *batch) proof(j int) tranche.Proof {
	proof, err := b.trees[j/b.fit].Prove(int(b.leases[j].leaf.Index))
	if err != nil {
		panic("escrow: " + err.Error()) // build made the leaf with this index
	}
	return proof
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
func (b *batch) landedIn(v escrow.View) (opened uint64, ok bool) {
	for k, tree := range b.trees {
		if t, there := v.Tranches[b.first+uint16(k)]; there && escrow.RootOf(t) == tree.Root() {
			return t.Opened, true
		}
	}
	return 0, false
}

// leafIn is the state of a lease's leaf; ok is false if its tranche does not exist or takes no further claims.
func (b *batch) leafIn(v escrow.View, j int) (s account.LeafState, ok bool) {
	t, there := v.Tranches[b.trancheOf(j)]
	if !there || escrow.RootOf(t) != b.trees[j/b.fit].Root() || v.Escrow == nil ||
		v.Escrow.State != account.EscrowOpen {
		return s, false
	}
	return t.Leaves[b.leases[j].leaf.Index], true
}

// batches are the leases of a machine.
type batches []batch

// clone returns a copy with modifiable entries.
func (bs batches) clone() batches {
	out := slices.Clone(bs)
	for i := range out {
		out[i].leases = slices.Clone(out[i].leases)
	}
	return out
}

// find returns the batch of a lease and its place there; ok is false for a lease that is not there.
func (bs batches) find(lease market.LeaseID) (b *batch, j int, ok bool) {
	for i := range bs {
		for j := range bs[i].leases {
			if bs[i].leases[j].leaf.Lease == lease {
				return &bs[i], j, true
			}
		}
	}
	return nil, 0, false
}

// known counts the leases that are there.
func (bs batches) known(cores []market.LeaseCore) (n int) {
	for _, c := range cores {
		if _, _, ok := bs.find(c.ID()); ok {
			n++
		}
	}
	return n
}

// flying reports whether a batch waits to be final.
func (bs batches) flying() bool {
	return slices.ContainsFunc(bs, func(b batch) bool { return b.stage == stageSigned })
}

// deepest is how long the paths of a tranche are at most.
func (bs batches) deepest(k uint16) int {
	for i := range bs {
		b := &bs[i]
		if at := int(k) - int(b.first); b.stage >= stageSigned && at >= 0 && at < len(b.trees) {
			return bits.Len(uint(b.trees[at].Root().Count - 1))
		}
	}
	return 0
}

// owner returns the batch of an existing tranche, and the index of its tree. Own means that the tranche has the batch's
// number. The batch is nil if the tranche's leaves are unknown to this machine.
func (bs batches) owner(t account.Tranche) (b *batch, tree int, own bool) {
	root := escrow.RootOf(t)
	for i := range bs {
		for k, x := range bs[i].trees {
			if x.Root() == root {
				return &bs[i], k, bs[i].first+uint16(k) == t.Index
			}
		}
	}
	return nil, 0, false
}

// fits reports whether there is no duplicate lease, no overflow, and at most as many leases as Step adds.
func (bs batches) fits() bool {
	seen := map[market.LeaseID]bool{}
	hired := 0
	for _, b := range bs {
		var sum market.Amount
		var err error
		for _, e := range b.leases {
			if sum, err = sum.Add(e.leaf.Cap); err != nil || seen[e.leaf.Lease] {
				return false
			}
			seen[e.leaf.Lease] = true
		}
		if b.hired {
			hired += len(b.leases)
		}
		if int(b.first)+len(b.trees) > math.MaxUint16 {
			return false
		}
	}
	return hired <= maxHired && len(seen)-hired <= MaxLeases
}

// ofBatch selects the tasks that set a batch's money aside.
func ofBatch(i int) func(escrow.Task) bool {
	return func(t escrow.Task) bool { return t.Kind <= escrow.TaskAdd && int(t.Tranche) == i }
}
