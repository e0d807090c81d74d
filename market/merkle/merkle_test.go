package merkle

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

func leavesOf(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = fmt.Appendf(nil, "leaf %d", i)
	}
	return out
}

func genLeaves(t *rapid.T) [][]byte {
	return rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 70), 1, 40).Draw(t, "leaves")
}

// Every leaf of every tree is provable, and only at its own place.
func TestEveryLeafProvable(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 70; n++ {
		leaves := leavesOf(n)
		tree := New(leaves)
		for i := range leaves {
			p, err := tree.Prove(i)
			if err != nil {
				t.Fatal(err)
			}
			for j := range leaves {
				err := p.Verify(tree.Root(), leaves[i], j, n)
				if (err == nil) != (i == j) {
					t.Fatalf("n=%d leaf %d claimed as %d: %v", n, i, j, err)
				}
			}
			for m := 1; m <= 2*n+2; m++ {
				if m != n && p.Verify(tree.Root(), leaves[i], i, m) == nil {
					t.Fatalf("leaf %d of %d accepted as one of %d", i, n, m)
				}
			}
		}
	}
}

// The tree is RFC 6962's: the definition there splits at the largest power of two below n.
func TestShapeIsRFC6962(t *testing.T) {
	t.Parallel()
	var mth func(leaves [][]byte) sign.Hash
	mth = func(leaves [][]byte) sign.Hash {
		if len(leaves) == 1 {
			return sign.Sum([]byte{0}, leaves[0])
		}
		k := 1
		for k*2 < len(leaves) {
			k *= 2
		}
		left, right := mth(leaves[:k]), mth(leaves[k:])
		return sign.Sum([]byte{1}, left[:], right[:])
	}
	for n := 1; n < 130; n++ {
		leaves := leavesOf(n)
		top := mth(leaves)
		want := sign.Sum([]byte{2, byte(n), 0, 0, 0, 0, 0, 0, 0}, top[:])
		if got := Root(leaves); got != want {
			t.Fatalf("n=%d: %x, RFC 6962 gives %x", n, got, want)
		}
	}
}

func TestAnyChangeIsRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		leaves := genLeaves(t)
		n := len(leaves)
		i := rapid.IntRange(0, n-1).Draw(t, "i")
		root, p, leaf := Root(leaves), Prove(leaves, i), leaves[i]
		if err := p.Verify(root, leaf, i, n); err != nil {
			t.Fatal(err)
		}
		bit := func(name string, b []byte) {
			k := rapid.IntRange(0, len(b)*8-1).Draw(t, name)
			b[k/8] ^= 1 << (k % 8)
		}
		bad := root
		bit("root bit", bad[:])
		if err := p.Verify(bad, leaf, i, n); !errors.Is(err, ErrRoot) {
			t.Fatalf("changed root: %v", err)
		}
		if len(p) > 0 {
			q := append(Proof{}, p...)
			bit("sibling bit", q[rapid.IntRange(0, len(q)-1).Draw(t, "sibling")][:])
			if err := q.Verify(root, leaf, i, n); !errors.Is(err, ErrRoot) {
				t.Fatalf("changed sibling: %v", err)
			}
			if err := p[:len(p)-1].Verify(root, leaf, i, n); !errors.Is(err, ErrLength) {
				t.Fatalf("short path: %v", err)
			}
		}
		if err := append(append(Proof{}, p...), root).Verify(root, leaf, i, n); !errors.Is(err, ErrLength) {
			t.Fatalf("long path: %v", err)
		}
		other := append([]byte{}, leaf...)
		if len(other) == 0 {
			other = []byte{0}
		} else {
			bit("leaf bit", other)
		}
		if err := p.Verify(root, other, i, n); !errors.Is(err, ErrRoot) {
			t.Fatalf("changed leaf: %v", err)
		}
	})
}

// What is hashed for an inner node is not a leaf, and the odd leaf is not its own neighbour.
func TestTreeAttacks(t *testing.T) {
	t.Parallel()
	leaves := leavesOf(2)
	a, b := hashLeaf(leaves[0]), hashLeaf(leaves[1])
	node := append(append([]byte{}, a[:]...), b[:]...)
	if Root([][]byte{node}) == Root(leaves) {
		t.Fatal("an inner node passes as a leaf")
	}
	three := leavesOf(3)
	if Root(three) == Root(append(leavesOf(3), three[2])) {
		t.Fatal("a doubled last leaf gives the same root")
	}
	if Root(nil) == Root([][]byte{{}}) {
		t.Fatal("the empty tree is the tree of one empty leaf")
	}
	if err := (Proof{}).Verify(Root(nil), nil, 0, 0); !errors.Is(err, ErrIndex) {
		t.Fatalf("something proven in the empty tree: %v", err)
	}
	if _, err := New(leaves).Prove(2); !errors.Is(err, ErrIndex) {
		t.Fatalf("Prove(2) of 2: %v", err)
	}
	if err := Prove(leaves, 0).Verify(Root(leaves), leaves[0], -1, 2); !errors.Is(err, ErrIndex) {
		t.Fatalf("negative index: %v", err)
	}
}

type vector struct {
	Leaves []string `json:"leaves_utf8"`
	Root   string   `json:"root"`
	Index  int      `json:"index"`
	Proof  string   `json:"proof"`
}

func TestVectors(t *testing.T) {
	t.Parallel()
	var got []vector
	for _, n := range []int{0, 1, 2, 3, 5, 8, 11} {
		leaves := leavesOf(n)
		v := vector{Leaves: []string{}, Root: fmt.Sprintf("%x", Root(leaves))}
		for _, l := range leaves {
			v.Leaves = append(v.Leaves, string(l))
		}
		if n > 0 {
			v.Index = n - 1
			v.Proof = fmt.Sprintf("%x", Prove(leaves, v.Index).Marshal())
		}
		got = append(got, v)
	}
	b, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	path := filepath.Join("testdata", "vectors.json")
	if *rewrite {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Fatalf("trees differ from %s; a network's roots would change. If that is meant: go test -rewrite", path)
	}
}

func FuzzProof(f *testing.F) {
	f.Add([]byte{0})
	f.Add(Prove(leavesOf(5), 4).Marshal())
	f.Add(Prove(leavesOf(8), 3).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := UnmarshalProof(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if !bytes.Equal(p.Marshal(), b) {
			t.Fatal("not the bytes that were read")
		}
	})
}

func BenchmarkTree16384(b *testing.B) {
	leaves := leavesOf(16384)
	b.ReportAllocs()
	for b.Loop() {
		New(leaves)
	}
}
