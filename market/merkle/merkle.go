// Package merkle is the plain binary Merkle tree of Starling: unit inventories, receipt batches, anchors.
//
// The shape is that of RFC 6962: leaves keep their order, pairs are hashed level by level, and a node without a right
// neighbour moves up unchanged (it is never paired with itself, the cause of CVE-2012-2459). Leaves, inner nodes and
// the root carry different first bytes, and the root commits to the number of leaves, so a proof is for "leaf i of
// exactly n":
//
//	leaf = SHA-256( 0x00 ‖ data )
//	node = SHA-256( 0x01 ‖ left[32] ‖ right[32] )
//	root = SHA-256( 0x02 ‖ n u64 little-endian ‖ top[32] )       top is the last node left; absent when n = 0
//
// A proof is the list of siblings from the leaf upwards. The side of each sibling, and the levels without one, follow
// from i and n alone, so a proof has exactly one accepted form.
//
//	proof = count u8 ‖ count × sibling[32]
package merkle

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// MaxDepth is the longest path a proof may have: 2^32 leaves.
const MaxDepth = 32

// First byte of a hash's input, by the place in the tree.
const (
	tagLeaf = 0x00
	tagNode = 0x01
	tagRoot = 0x02
)

// Proof is the path from a leaf to the top: siblings, lowest first.
type Proof []sign.Hash

// Tree is a built tree, for callers that need many proofs. Zero value: the empty tree.
type Tree struct {
	levels [][]sign.Hash // levels[0] are the leaf hashes, the last level has one node
}

// New builds the tree over leaves. It hashes each leaf once and keeps no reference to them.
func New(leaves [][]byte) *Tree {
	if len(leaves) == 0 {
		return &Tree{}
	}
	level := make([]sign.Hash, len(leaves))
	for i, leaf := range leaves {
		level[i] = hashLeaf(leaf)
	}
	return &Tree{levels: rise(level)}
}

// rise gives all levels above the lowest, and the lowest.
func rise(level []sign.Hash) [][]sign.Hash {
	if len(level) == 0 {
		return nil
	}
	levels := [][]sign.Hash{level}
	for len(level) > 1 {
		up := make([]sign.Hash, 0, (len(level)+1)/2)
		for i := 0; i+1 < len(level); i += 2 {
			up = append(up, hashNode(level[i], level[i+1]))
		}
		if len(level)%2 == 1 {
			up = append(up, level[len(level)-1])
		}
		level = up
		levels = append(levels, level)
	}
	return levels
}

// Len is the number of leaves.
func (t *Tree) Len() int {
	if len(t.levels) == 0 {
		return 0
	}
	return len(t.levels[0])
}

// Root commits to all leaves, their order and their number.
func (t *Tree) Root() sign.Hash {
	if t.Len() == 0 {
		return hashRoot(0, nil)
	}
	top := t.levels[len(t.levels)-1][0]
	return hashRoot(uint64(t.Len()), top[:])
}

// Prove gives the path of leaf i. ErrIndex when there is no such leaf.
func (t *Tree) Prove(i int) (Proof, error) {
	n := t.Len()
	if i < 0 || i >= n {
		return nil, fmt.Errorf("%w: %d of %d", ErrIndex, i, n)
	}
	proof := Proof{}
	for _, level := range t.levels[:len(t.levels)-1] {
		if sibling := i ^ 1; sibling < len(level) {
			proof = append(proof, level[sibling])
		}
		i /= 2
	}
	return proof, nil
}

// Root is the root over leaves; the empty list has a root too, without leaves to prove.
func Root(leaves [][]byte) sign.Hash { return New(leaves).Root() }

// Prove gives the path of leaves[i]. It panics when i is out of range, as indexing the slice would; use [Tree.Prove]
// for an index that comes from a peer.
func Prove(leaves [][]byte, i int) Proof {
	proof, err := New(leaves).Prove(i)
	if err != nil {
		panic(err)
	}
	return proof
}

// Verify checks that leaf is number i of the n leaves under root. ErrIndex: i is not below n. ErrLength: the path has
// another length than i and n require. ErrRoot: the path leads to another root.
func (p Proof) Verify(root sign.Hash, leaf []byte, i, n int) error {
	if i < 0 || i >= n {
		return fmt.Errorf("%w: %d of %d", ErrIndex, i, n)
	}
	if want := depth(i, n); len(p) != want {
		return fmt.Errorf("%w: %d siblings, leaf %d of %d has %d", ErrLength, len(p), i, n, want)
	}
	node, next := hashLeaf(leaf), 0
	for at, width := i, n; width > 1; at, width = at/2, (width+1)/2 {
		if at^1 >= width {
			continue // no right neighbour: moves up unchanged
		}
		if at%2 == 0 {
			node = hashNode(node, p[next])
		} else {
			node = hashNode(p[next], node)
		}
		next++
	}
	if hashRoot(uint64(n), node[:]) != root {
		return ErrRoot
	}
	return nil
}

// Marshal gives the wire form. A path longer than MaxDepth cannot be built by this package.
func (p Proof) Marshal() []byte {
	b := make([]byte, 1, 1+len(p)*sha256.Size)
	b[0] = byte(len(p))
	for _, h := range p {
		b = append(b, h[:]...)
	}
	return b
}

// UnmarshalProof decodes the wire form without trailing bytes. It returns ErrMalformed otherwise.
func UnmarshalProof(b []byte) (Proof, error) {
	if len(b) == 0 || b[0] > MaxDepth || len(b) != 1+int(b[0])*sha256.Size {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	p := make(Proof, b[0])
	for i := range p {
		copy(p[i][:], b[1+i*sha256.Size:])
	}
	return p, nil
}

// depth is the number of siblings on the path of leaf i of n.
func depth(i, n int) int {
	d := 0
	for ; n > 1; i, n = i/2, (n+1)/2 {
		if i^1 < n {
			d++
		}
	}
	return d
}

func hashLeaf(data []byte) sign.Hash {
	h := sha256.New()
	h.Write([]byte{tagLeaf})
	h.Write(data)
	return sign.Hash(h.Sum(nil))
}

func hashNode(left, right sign.Hash) sign.Hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = tagNode
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

func hashRoot(n uint64, top []byte) sign.Hash {
	b := make([]byte, 9, 9+sha256.Size)
	b[0] = tagRoot
	binary.LittleEndian.PutUint64(b[1:], n)
	return sha256.Sum256(append(b, top...))
}
