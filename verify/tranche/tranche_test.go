package tranche

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

func leafAt(i int, most market.Amount) Leaf {
	return Leaf{
		Version: LeafVersion, Index: uint16(i), Provider: sign.Key(sign.Sum([]byte{1, byte(i)})), Lease: market.LeaseID(sign.Sum([]byte{2, byte(i)})),
		Payout: sign.Key(sign.Sum([]byte{3, byte(i)})), Rate: market.Rate(1000 + i), Cap: most, Start: 100, End: market.Slot(200 + i),
	}
}

func leavesOf(n int) []Leaf {
	out := make([]Leaf, n)
	for i := range out {
		out[i] = leafAt(i, market.Amount(10*i+1))
	}
	return out
}

func build(tb testing.TB, leaves []Leaf) *Tree {
	tb.Helper()
	tree, err := Build(leaves)
	if err != nil {
		tb.Fatal(err)
	}
	return tree
}

func prove(tb testing.TB, tree *Tree, i int) Proof {
	tb.Helper()
	p, err := tree.Prove(i)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func TestEveryLeafProvable(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 9, 31, 100, 255, 256} {
		leaves := leavesOf(n)
		tree := build(t, leaves)
		var sum market.Amount
		for _, l := range leaves {
			sum += l.Cap
		}
		if tree.Root().Sum != sum || int(tree.Root().Count) != n {
			t.Fatalf("n=%d: root %+v, sum %d", n, tree.Root(), sum)
		}
		for i, l := range leaves {
			p := prove(t, tree, i)
			if err := p.Verify(tree.Root(), l); err != nil {
				t.Fatalf("n=%d leaf %d: %v", n, i, err)
			}
			if len(p) > MaxDepth {
				t.Fatalf("n=%d: path of %d", n, len(p))
			}
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	change := func(f func([]Leaf) []Leaf) []Leaf { return f(leavesOf(4)) }
	for name, c := range map[string]struct {
		leaves []Leaf
		want   error
	}{
		"none":     {nil, ErrCount},
		"257":      {leavesOf(257), ErrCount},
		"index":    {change(func(l []Leaf) []Leaf { l[2].Index = 1; return l }), ErrIndex},
		"twice":    {change(func(l []Leaf) []Leaf { l[2].Lease = l[0].Lease; return l }), ErrDuplicate},
		"overflow": {change(func(l []Leaf) []Leaf { l[2].Cap = math.MaxUint64; return l }), ErrOverflow},
		"version":  {change(func(l []Leaf) []Leaf { l[2].Version = 2; return l }), market.ErrMalformed},
		"slots":    {change(func(l []Leaf) []Leaf { l[2].End = l[2].Start; return l }), market.ErrMalformed},
	} {
		if _, err := Build(c.leaves); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := build(t, leavesOf(4)).Prove(4); !errors.Is(err, ErrIndex) {
		t.Errorf("leaf 4 of 4: %v", err)
	}
}

// What a cheating buyer or provider may present, and what stops it.
func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	leaves := leavesOf(6)
	tree := build(t, leaves)
	root, leaf, p := tree.Root(), leaves[2], prove(t, tree, 2)
	with := func(f func(root *Root, leaf *Leaf, p Proof) Proof) error {
		r, l, q := root, leaf, append(Proof{}, p...)
		q = f(&r, &l, q)
		return q.Verify(r, l)
	}
	for name, c := range map[string]struct {
		change func(root *Root, leaf *Leaf, p Proof) Proof
		want   error
	}{
		"sibling sum lower":  {func(_ *Root, _ *Leaf, p Proof) Proof { p[0].Sum--; return p }, ErrSum},
		"sums moved between": {func(_ *Root, _ *Leaf, p Proof) Proof { p[0].Sum--; p[1].Sum++; return p }, ErrRoot},
		"cap raised":         {func(_ *Root, l *Leaf, p Proof) Proof { l.Cap++; return p }, ErrSum},
		"cap raised, hidden": {func(_ *Root, l *Leaf, p Proof) Proof { l.Cap++; p[0].Sum--; return p }, ErrRoot},
		"root sum raised":    {func(r *Root, l *Leaf, p Proof) Proof { r.Sum++; l.Cap++; return p }, ErrRoot},
		"other index":        {func(_ *Root, l *Leaf, p Proof) Proof { l.Index = 3; return p }, ErrRoot},
		"index over count":   {func(_ *Root, l *Leaf, p Proof) Proof { l.Index = 6; return p }, ErrIndex},
		"count less":         {func(r *Root, _ *Leaf, p Proof) Proof { r.Count = 5; return p }, ErrRoot},
		"count more":         {func(r *Root, _ *Leaf, p Proof) Proof { r.Count = 9; return p }, ErrLength},
		"count 0":            {func(r *Root, _ *Leaf, p Proof) Proof { r.Count = 0; return p }, ErrCount},
		"count 257":          {func(r *Root, _ *Leaf, p Proof) Proof { r.Count = 257; return p }, ErrCount},
		"swapped siblings":   {func(_ *Root, _ *Leaf, p Proof) Proof { p[0], p[1] = p[1], p[0]; return p }, ErrRoot},
		"overflow":           {func(_ *Root, _ *Leaf, p Proof) Proof { p[1].Sum = math.MaxUint64; return p }, ErrOverflow},
		"wraps to the sum":   {func(_ *Root, l *Leaf, p Proof) Proof { l.Cap += 1000; p[1].Sum -= 1000; return p }, ErrOverflow},
		"short":              {func(_ *Root, _ *Leaf, p Proof) Proof { return p[:2] }, ErrLength},
		"long":               {func(_ *Root, _ *Leaf, p Proof) Proof { return append(p, Sibling{}) }, ErrLength},
		"other payout":       {func(_ *Root, l *Leaf, p Proof) Proof { l.Payout[0]++; return p }, ErrRoot},
		"other rate":         {func(_ *Root, l *Leaf, p Proof) Proof { l.Rate++; return p }, ErrRoot},
		"other root":         {func(r *Root, _ *Leaf, p Proof) Proof { r.Hash[0]++; return p }, ErrRoot},
	} {
		if err := with(c.change); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// Swapped children: leaf 3 at the place of leaf 2 needs the path of leaf 2, in which leaf 3 itself is the sibling.
	if err := p.Verify(root, leaves[3]); !errors.Is(err, ErrSum) && !errors.Is(err, ErrRoot) {
		t.Errorf("swapped children: %v", err)
	}
}

// A leaf and a node are hashed over different first bytes and lengths, so none can stand for the other: a node shown as a
// leaf of a tree one level lower has no leaf layout that hashes to it.
func TestLeafIsNotNode(t *testing.T) {
	t.Parallel()
	leaves := leavesOf(4)
	tree := build(t, leaves)
	b := leaves[0].Marshal()
	if leaves[0].node().Hash == sign.Sum([]byte{tagNode}, b[:]) || leaves[0].node().Hash == sign.Sum(b[:]) {
		t.Fatal("leaf hash is not tagged")
	}
	left, right := tree.levels[0][0], tree.levels[0][1]
	node, err := join(left, right)
	if err != nil {
		t.Fatal(err)
	}
	content := right.append(left.append(nil))
	if node.Hash == sign.Sum([]byte{tagLeaf}, content) || node.Hash != sign.Sum([]byte{tagNode}, content) || len(content) == LeafSize {
		t.Fatal("node hash is not tagged, or as long as a leaf")
	}
	if build(t, leavesOf(3)).Root().Hash == tree.Root().Hash {
		t.Fatal("three leaves have the root of four")
	}
}

func TestAnyChangeIsRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, MaxLeaves).Draw(t, "n")
		leaves := make([]Leaf, n)
		for i := range leaves {
			leaves[i] = leafAt(i, market.Amount(rapid.Uint64Range(0, math.MaxUint64/MaxLeaves).Draw(t, "cap")))
		}
		tree, err := Build(leaves)
		if err != nil {
			t.Fatal(err)
		}
		i := rapid.IntRange(0, n-1).Draw(t, "i")
		p, err := tree.Prove(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Verify(tree.Root(), leaves[i]); err != nil {
			t.Fatal(err)
		}
		root, leaf, path := tree.Root().Marshal(), leaves[i].Marshal(), p.Marshal()
		all := append(append(append([]byte{}, root[:]...), leaf[:]...), path...)
		bit := rapid.IntRange(0, len(all)*8-1).Draw(t, "bit")
		all[bit/8] ^= 1 << (bit % 8)
		r, err := UnmarshalRoot(all[:RootSize])
		if err != nil {
			return
		}
		l, err := UnmarshalLeaf(all[RootSize : RootSize+LeafSize])
		if err != nil {
			return
		}
		q, err := UnmarshalProof(all[RootSize+LeafSize:])
		if err != nil {
			return
		}
		if q.Verify(r, l) == nil {
			t.Fatalf("bit %d changed and still accepted", bit)
		}
	})
}

type vector struct {
	Leaves []string      `json:"leaves"`
	Root   string        `json:"root"`
	Sum    market.Amount `json:"sum"`
	Index  int           `json:"index"`
	Proof  string        `json:"proof"`
}

// badVector is a proof that must be refused.
type badVector struct {
	Why   string `json:"why"`
	Root  string `json:"root"`
	Leaf  string `json:"leaf"`
	Proof string `json:"proof"`
}

func TestVectors(t *testing.T) {
	t.Parallel()
	var out struct {
		Good []vector    `json:"good"`
		Bad  []badVector `json:"bad"`
	}
	for _, n := range []int{1, 2, 3, 6, 8} {
		leaves := leavesOf(n)
		tree := build(t, leaves)
		root := tree.Root().Marshal()
		v := vector{Root: fmt.Sprintf("%x", root), Sum: tree.Root().Sum, Index: n - 1, Proof: fmt.Sprintf("%x", prove(t, tree, n-1).Marshal())}
		for _, l := range leaves {
			b := l.Marshal()
			v.Leaves = append(v.Leaves, fmt.Sprintf("%x", b))
		}
		out.Good = append(out.Good, v)
	}
	bad := func(why string, change func(root *Root, leaf *Leaf, p Proof) Proof) {
		leaves := leavesOf(6)
		tree := build(t, leaves)
		r, l, p := tree.Root(), leaves[2], prove(t, tree, 2)
		p = change(&r, &l, p)
		if p.Verify(r, l) == nil {
			t.Fatalf("%s: accepted", why)
		}
		rb, lb := r.Marshal(), l.Marshal()
		out.Bad = append(out.Bad, badVector{why, fmt.Sprintf("%x", rb), fmt.Sprintf("%x", lb), fmt.Sprintf("%x", p.Marshal())})
	}
	bad("sibling sum changed", func(_ *Root, _ *Leaf, p Proof) Proof { p[0].Sum--; return p })
	bad("money moved from one sibling to another", func(_ *Root, _ *Leaf, p Proof) Proof { p[0].Sum--; p[1].Sum++; return p })
	bad("cap raised, sibling sum lowered", func(_ *Root, l *Leaf, p Proof) Proof { l.Cap++; p[0].Sum--; return p })
	bad("wrong index", func(_ *Root, l *Leaf, p Proof) Proof { l.Index = 3; return p })
	bad("wrong count", func(r *Root, _ *Leaf, p Proof) Proof { r.Count = 5; return p })
	bad("sums overflow", func(_ *Root, _ *Leaf, p Proof) Proof { p[1].Sum = math.MaxUint64; return p })
	bad("siblings swapped", func(_ *Root, _ *Leaf, p Proof) Proof { p[0], p[1] = p[1], p[0]; return p })
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	path := filepath.Join("testdata", "vectors.json")
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Fatalf("tranches differ from %s; the program would refuse them. If that is meant: go test -rewrite", path)
	}
}

func FuzzLeaf(f *testing.F) {
	b := leafAt(3, 77).Marshal()
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := UnmarshalLeaf(b)
		if err != nil {
			return
		}
		if out := l.Marshal(); !bytes.Equal(out[:], b) {
			t.Fatal("not the bytes that were read")
		}
	})
}

func FuzzRoot(f *testing.F) {
	b := build(f, leavesOf(5)).Root().Marshal()
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := UnmarshalRoot(b)
		if err != nil {
			return
		}
		if out := r.Marshal(); !bytes.Equal(out[:], b) {
			t.Fatal("not the bytes that were read")
		}
	})
}

func FuzzProof(f *testing.F) {
	tree := build(f, leavesOf(5))
	f.Add(prove(f, tree, 0).Marshal())
	f.Add(prove(f, tree, 4).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := UnmarshalProof(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Marshal(), b) {
			t.Fatal("not the bytes that were read")
		}
		_ = p.Verify(tree.Root(), leafAt(2, 21)) // must not panic
	})
}

func BenchmarkBuild256(b *testing.B) {
	leaves := leavesOf(256)
	b.ReportAllocs()
	for b.Loop() {
		build(b, leaves)
	}
}

func BenchmarkVerifyDepth8(b *testing.B) {
	leaves := leavesOf(256)
	tree := build(b, leaves)
	root, p := tree.Root(), prove(b, tree, 100)
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Verify(root, leaves[100]); err != nil {
			b.Fatal(err)
		}
	}
}
