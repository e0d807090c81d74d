package merkle

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// Any set of leaves of any tree is provable at once, nothing else passes, and one leaf's proof is its path.
func TestMany(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		leaves := genLeaves(t)
		tree := New(leaves)
		n := len(leaves)
		indices := rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, n, rapid.ID[int]).Draw(t, "indices")
		slices.Sort(indices)
		proof, err := ProveMany(n, indices, tree.Node)
		if err != nil {
			t.Fatal(err)
		}
		shown := make([]Indexed, len(indices))
		for k, i := range indices {
			shown[k] = Indexed{Index: i, Data: leaves[i]}
		}
		if err := proof.Verify(tree.Root(), n, shown); err != nil {
			t.Fatal(err)
		}
		if len(indices) == 1 && !slices.Equal(proof, Many(Prove(leaves, indices[0]))) {
			t.Fatal("the proof of one leaf is not its path")
		}
		if err := append(slices.Clone(proof), sign.Hash{}).Verify(tree.Root(), n, shown); !errors.Is(err, ErrLength) {
			t.Fatalf("a node more: %v", err)
		}
		if len(proof) > 0 {
			if err := proof[1:].Verify(tree.Root(), n, shown); err == nil {
				t.Fatal("a node less is accepted")
			}
			wrong := slices.Clone(proof)
			wrong[rapid.IntRange(0, len(proof)-1).Draw(t, "node")][0] ^= 1
			if err := wrong.Verify(tree.Root(), n, shown); !errors.Is(err, ErrRoot) {
				t.Fatalf("another node: %v", err)
			}
		}
		k := rapid.IntRange(0, len(shown)-1).Draw(t, "leaf")
		wrong := slices.Clone(shown)
		wrong[k].Data = append(slices.Clone(wrong[k].Data), 1)
		if err := proof.Verify(tree.Root(), n, wrong); !errors.Is(err, ErrRoot) {
			t.Fatalf("another leaf: %v", err)
		}
		if err := proof.Verify(tree.Root(), n+1, shown); err == nil {
			t.Fatal("accepted for a tree of another size")
		}
		for _, bad := range [][]Indexed{nil, {{Index: n}}, {{Index: -1}}, {shown[0], shown[0]}} {
			if err := proof.Verify(tree.Root(), n, bad); !errors.Is(err, ErrIndex) {
				t.Fatalf("%v: %v", bad, err)
			}
		}
	})
}

// A tree built as its nodes come, in whatever portions, is the tree built at once.
func TestBuilder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		nodes := make([]sign.Hash, rapid.IntRange(0, 70).Draw(t, "n"))
		for i := range nodes {
			nodes[i] = HashLeaf([]byte{byte(i)})
		}
		split := func(n int, do func(from, to int)) {
			for i := range n {
				do(n-1-i, n-i)
			}
		}
		if rapid.Bool().Draw(t, "at once") {
			split = nil
		}
		b := NewBuilder(rapid.IntRange(0, 80).Draw(t, "expected"), split)
		for rest := nodes; len(rest) > 0; {
			k := rapid.IntRange(1, len(rest)).Draw(t, "portion")
			b.Add(rest[:k])
			rest = rest[k:]
		}
		got, want := b.Tree(), Over(nodes)
		if got.Len() != want.Len() || got.RootOf(5) != want.RootOf(5) {
			t.Fatalf("%d nodes", len(nodes))
		}
		for level := range want.levels {
			for i := range want.levels[level] {
				if h, err := got.Node(level, i); err != nil || h != want.levels[level][i] {
					t.Fatalf("node %d of level %d of %d nodes: %v", i, level, len(nodes), err)
				}
			}
		}
	})
}

// A tree over the tops of perfect trees has the root of the tree over all their leaves.
func TestOver(t *testing.T) {
	t.Parallel()
	for blocks := 1; blocks <= 9; blocks++ {
		leaves := leavesOf(blocks * 8)
		var tops []sign.Hash
		for i := range blocks {
			top, err := New(leaves[i*8:(i+1)*8]).Node(3, 0)
			if err != nil {
				t.Fatal(err)
			}
			tops = append(tops, top)
		}
		if Over(tops).RootOf(len(leaves)) != Root(leaves) {
			t.Errorf("%d blocks", blocks)
		}
	}
	if Over(nil).RootOf(0) != Root(nil) {
		t.Error("the empty tree")
	}
}
