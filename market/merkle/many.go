package merkle

import (
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// Many is one proof for several leaves of a tree: the nodes that cannot be computed from the leaves, level by level
// from the lowest, each from left to right. Which nodes those are follows from the indices and the number of leaves, so
// it too has exactly one accepted form. It is shorter than as many single proofs, which repeat the nodes near the top.
type Many []sign.Hash

// Indexed is a leaf and its number.
type Indexed struct {
	Index int
	Data  []byte
}

// Node returns node i of a level; level 0 has the leaves' hashes. It returns ErrIndex if there is no such node.
func (t *Tree) Node(level, i int) (sign.Hash, error) {
	if level < 0 || level >= len(t.levels) || i < 0 || i >= len(t.levels[level]) {
		return sign.Hash{}, fmt.Errorf("%w: node %d of level %d", ErrIndex, i, level)
	}
	return t.levels[level][i], nil
}

// Over builds the tree over nodes that are themselves tops of trees, all of one power-of-two number of leaves: level 0
// is nodes. RootOf gives the root that a tree of all leaves would have.
func Over(nodes []sign.Hash) *Tree { return &Tree{levels: rise(nodes)} }

// RootOf is the root of a tree of n leaves of which t is the part from some level up.
func (t *Tree) RootOf(n int) sign.Hash {
	if t.Len() == 0 {
		return hashRoot(0, nil)
	}
	top := t.levels[len(t.levels)-1][0]
	return hashRoot(uint64(n), top[:])
}

// HashLeaf is the hash of a leaf's data, as it stands on level 0.
func HashLeaf(data []byte) sign.Hash { return hashLeaf(data) }

// ProveMany gathers the proof for leaves of a tree of n leaves. node returns the tree's nodes, as [Tree.Node] does.
// Indices must be strictly ascending; ErrIndex otherwise, and when one is not below n.
func ProveMany(n int, indices []int, node func(level, i int) (sign.Hash, error)) (Many, error) {
	if err := ascending(n, indices); err != nil {
		return nil, err
	}
	proof := Many{}
	at := append([]int(nil), indices...)
	for level, width := 0, n; width > 1; level, width = level+1, (width+1)/2 {
		up := at[:0]
		for k := 0; k < len(at); k++ {
			i := at[k]
			switch sibling := i ^ 1; {
			case sibling >= width: // no right neighbour: moves up unchanged
			case k+1 < len(at) && at[k+1] == sibling:
				k++
			default:
				h, err := node(level, sibling)
				if err != nil {
					return nil, err
				}
				proof = append(proof, h)
			}
			up = append(up, i/2)
		}
		at = up
	}
	return proof, nil
}

// Verify checks that leaves, strictly ascending by index, are leaves of the tree of n under root. ErrIndex: no leaves,
// or not ascending, or not below n. ErrLength: too few or too many nodes. ErrRoot: another root.
func (m Many) Verify(root sign.Hash, n int, leaves []Indexed) error {
	indices := make([]int, len(leaves))
	nodes := make([]sign.Hash, len(leaves))
	for k, l := range leaves {
		indices[k], nodes[k] = l.Index, hashLeaf(l.Data)
	}
	if err := ascending(n, indices); err != nil {
		return err
	}
	rest := m
	for width := n; width > 1; width = (width + 1) / 2 {
		up := 0
		for k := 0; k < len(indices); k++ {
			i, node := indices[k], nodes[k]
			switch sibling := i ^ 1; {
			case sibling >= width:
			case k+1 < len(indices) && indices[k+1] == sibling:
				node = hashNode(node, nodes[k+1])
				k++
			case len(rest) == 0:
				return fmt.Errorf("%w: %d nodes are too few", ErrLength, len(m))
			case i%2 == 0:
				node, rest = hashNode(node, rest[0]), rest[1:]
			default:
				node, rest = hashNode(rest[0], node), rest[1:]
			}
			indices[up], nodes[up] = i/2, node
			up++
		}
		indices, nodes = indices[:up], nodes[:up]
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d nodes too many", ErrLength, len(rest))
	}
	if hashRoot(uint64(n), nodes[0][:]) != root {
		return ErrRoot
	}
	return nil
}

func ascending(n int, indices []int) error {
	if len(indices) == 0 {
		return fmt.Errorf("%w: no leaf asked", ErrIndex)
	}
	before := -1
	for _, i := range indices {
		if i <= before || i >= n {
			return fmt.Errorf("%w: %d of %d after %d", ErrIndex, i, n, before)
		}
		before = i
	}
	return nil
}
