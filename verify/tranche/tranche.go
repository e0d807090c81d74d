// Package tranche is the Merkle sum tree over the leases of one escrow tranche: it proves to the on-chain program that
// a lease is part of a deposit, and that the sum of all caps fits into the deposit.
//
// Every node carries the sum of the caps below it and hashes the sums of both its children, so no proof can hide money.
// The shape is market/merkle's: pairs level by level, a node without a right neighbour moves up unchanged.
//
//	leaf = SHA-256( 0x10 ‖ leaf layout[136] )                                        sum = cap
//	node = SHA-256( 0x11 ‖ left[32] ‖ left sum u64 ‖ right[32] ‖ right sum u64 )     sum = left + right, checked
//	root = SHA-256( 0x12 ‖ count u16 ‖ sum u64 ‖ top[32] )
//
// Integers are little-endian. Leaf layout, 136 bytes:
//
//	offset  size  field
//	     0     1  version = 1
//	     1     1  reserved: 0
//	     2     2  index of the leaf in its tranche
//	     4     4  reserved: 0
//	     8    32  provider
//	    40    32  lease id
//	    72    32  payout
//	   104     8  rate, millionths of a base unit per slot
//	   112     8  cap, base units
//	   120     8  start slot, nominal
//	   128     8  end slot, exclusive
//
// Root layout, 42 bytes: root hash[32] ‖ sum u64 ‖ count u16. Proof: count u8 ‖ count × ( sibling hash[32] ‖ sibling
// sum u64 ), lowest first, at most 8; the sides follow from the leaf's index and the root's count.
package tranche

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits and sizes, in bytes.
const (
	MaxLeaves   = 256
	MaxDepth    = 8
	LeafSize    = 136
	RootSize    = 42
	siblingSize = 40
	MaxProof    = 1 + MaxDepth*siblingSize
)

// LeafVersion is the version of the leaf written and read here.
const LeafVersion = 1

const (
	tagLeaf = 0x10
	tagNode = 0x11
	tagRoot = 0x12
)

// Leaf is the on-chain program's data about one lease.
type Leaf struct {
	Version  uint8          `json:"version"`
	Index    uint16         `json:"index"`
	Provider sign.Key       `json:"provider"`
	Lease    market.LeaseID `json:"lease"`
	Payout   sign.Key       `json:"payout"`
	Rate     market.Rate    `json:"rate"`
	Cap      market.Amount  `json:"cap"`
	Start    market.Slot    `json:"start"`
	End      market.Slot    `json:"end"`
}

// LeafOf is the leaf of a lease at a place in a tranche.
func LeafOf(core market.LeaseCore, index uint16) Leaf {
	return Leaf{
		Version: LeafVersion, Index: index, Provider: core.Provider, Lease: core.ID(), Payout: core.Payout,
		Rate: core.Rate, Cap: core.Cap, Start: core.Start, End: core.End,
	}
}

// Root commits to all leaves of a tranche, their number and the sum of their caps.
type Root struct {
	Hash  sign.Hash     `json:"hash"`
	Sum   market.Amount `json:"sum"`
	Count uint16        `json:"count"`
}

// Sibling is one step of a proof: a neighbour and the sum below it.
type Sibling struct {
	Hash sign.Hash     `json:"hash"`
	Sum  market.Amount `json:"sum"`
}

// Proof is the path from a leaf to the top, lowest first.
type Proof []Sibling

// Tree is a built tranche.
type Tree struct {
	levels [][]Sibling
}

// Build makes the tree. Leaf i must bear index i and every lease appear once. ErrCount, ErrIndex, ErrDuplicate,
// ErrOverflow, market.ErrMalformed.
func Build(leaves []Leaf) (*Tree, error) {
	if len(leaves) == 0 || len(leaves) > MaxLeaves {
		return nil, fmt.Errorf("%w: %d", ErrCount, len(leaves))
	}
	seen := make(map[market.LeaseID]bool, len(leaves))
	level := make([]Sibling, len(leaves))
	for i, l := range leaves {
		if int(l.Index) != i {
			return nil, fmt.Errorf("%w: leaf %d bears %d", ErrIndex, i, l.Index)
		}
		if seen[l.Lease] {
			return nil, fmt.Errorf("%w: %s", ErrDuplicate, l.Lease.Short())
		}
		seen[l.Lease] = true
		if err := l.validate(); err != nil {
			return nil, err
		}
		level[i] = l.node()
	}
	levels := [][]Sibling{level}
	for len(level) > 1 {
		up := make([]Sibling, 0, (len(level)+1)/2)
		for i := 0; i+1 < len(level); i += 2 {
			n, err := join(level[i], level[i+1])
			if err != nil {
				return nil, err
			}
			up = append(up, n)
		}
		if len(level)%2 == 1 {
			up = append(up, level[len(level)-1])
		}
		level = up
		levels = append(levels, level)
	}
	return &Tree{levels: levels}, nil
}

// Root is the commitment to the tranche.
func (t *Tree) Root() Root {
	top := t.levels[len(t.levels)-1][0]
	return rootOf(top, uint16(len(t.levels[0])))
}

// Prove returns the path of leaf i. It returns ErrIndex if there is no such leaf.
func (t *Tree) Prove(i int) (Proof, error) {
	if i < 0 || i >= len(t.levels[0]) {
		return nil, fmt.Errorf("%w: %d of %d", ErrIndex, i, len(t.levels[0]))
	}
	p := Proof{}
	for _, level := range t.levels[:len(t.levels)-1] {
		if at := i ^ 1; at < len(level) {
			p = append(p, level[at])
		}
		i /= 2
	}
	return p, nil
}

// Verify checks that leaf is part of the tranche under root: ErrCount, ErrIndex, ErrLength, ErrOverflow, ErrSum,
// ErrRoot.
func (p Proof) Verify(root Root, leaf Leaf) error {
	if root.Count == 0 || root.Count > MaxLeaves {
		return fmt.Errorf("%w: %d", ErrCount, root.Count)
	}
	if leaf.Index >= root.Count {
		return fmt.Errorf("%w: %d of %d", ErrIndex, leaf.Index, root.Count)
	}
	if err := leaf.validate(); err != nil {
		return err
	}
	node, next := leaf.node(), 0
	for at, width := int(leaf.Index), int(root.Count); width > 1; at, width = at/2, (width+1)/2 {
		if at^1 >= width {
			continue // no right neighbour: moves up unchanged
		}
		if next == len(p) {
			return fmt.Errorf("%w: %d siblings", ErrLength, len(p))
		}
		left, right := node, p[next]
		if at%2 == 1 {
			left, right = right, left
		}
		var err error
		if node, err = join(left, right); err != nil {
			return err
		}
		next++
	}
	switch {
	case next != len(p):
		return fmt.Errorf("%w: %d siblings, %d needed", ErrLength, len(p), next)
	case node.Sum != root.Sum:
		return fmt.Errorf("%w: got %d, want the root's %d", ErrSum, node.Sum, root.Sum)
	case rootOf(node, root.Count) != root:
		return ErrRoot
	}
	return nil
}

func (l Leaf) validate() error {
	switch {
	case l.Version != LeafVersion:
		return fmt.Errorf("%w: leaf version %d", market.ErrMalformed, l.Version)
	case l.Index >= MaxLeaves:
		return fmt.Errorf("%w: %d", ErrIndex, l.Index)
	case l.Start >= l.End:
		return fmt.Errorf("%w: leaf from slot %d to %d", market.ErrMalformed, l.Start, l.End)
	}
	return nil
}

func (l Leaf) node() Sibling {
	b := l.Marshal()
	return Sibling{Hash: sign.Sum([]byte{tagLeaf}, b[:]), Sum: l.Cap}
}

func join(left, right Sibling) (Sibling, error) {
	sum, carry := bits.Add64(uint64(left.Sum), uint64(right.Sum), 0)
	if carry != 0 {
		return Sibling{}, fmt.Errorf("%w: %d + %d", ErrOverflow, left.Sum, right.Sum)
	}
	b := make([]byte, 1, 1+2*siblingSize)
	b[0] = tagNode
	b = right.append(left.append(b))
	return Sibling{Hash: sha256.Sum256(b), Sum: market.Amount(sum)}, nil
}

func rootOf(top Sibling, count uint16) Root {
	b := make([]byte, 11, 11+sign.HashSize)
	b[0] = tagRoot
	binary.LittleEndian.PutUint16(b[1:], count)
	binary.LittleEndian.PutUint64(b[3:], uint64(top.Sum))
	return Root{Hash: sha256.Sum256(append(b, top.Hash[:]...)), Sum: top.Sum, Count: count}
}

func (s Sibling) append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(append(b, s.Hash[:]...), uint64(s.Sum))
}
