package challenge

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"golang.org/x/crypto/chacha20"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

func seed(n byte) sign.Hash { return sha256.Sum256([]byte{n}) }

// naive is every value of a product by its definition.
func naive(s Shape, of sign.Hash, product uint32) [][]int32 {
	g := ProductGenerator(of)
	rows := NewLines(&g, s, A, product, 0, int(s.Rows))
	columns := NewLines(&g, s, B, product, 0, int(s.Columns))
	out := make([][]int32, s.Rows)
	for i := range out {
		out[i] = make([]int32, s.Columns)
		for j := range out[i] {
			for k := range int(s.Depth) {
				out[i][j] += int32(int8(rows.Line(i)[k])) * int32(int8(columns.Line(j)[k]))
			}
		}
	}
	return out
}

func tiles(s Shape, of sign.Hash) []sign.Hash {
	g := ProductGenerator(of)
	out := make([]sign.Hash, s.Tiles())
	for i := range out {
		out[i] = NewTile(&g, s, s.Place(i)).Hash()
	}
	return out
}

// The generator is ChaCha but for the number of rounds: with twenty it is the library's.
func TestGeneratorIsChaCha(t *testing.T) {
	t.Parallel()
	key := seed(1)
	lib, err := chacha20.NewUnauthenticatedCipher(key[:], make([]byte, chacha20.NonceSize))
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, BlockSize)
	lib.XORKeyStream(want, want)
	g := NewGenerator(key)
	x := [16]uint32{c0, c1, c2, c3}
	copy(x[4:], g.key[:])
	start := x
	for range 10 {
		for i := range 4 {
			x[i], x[4+i], x[8+i], x[12+i] = quarter(x[i], x[4+i], x[8+i], x[12+i])
		}
		for i := range 4 {
			b, c, d := 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4
			x[i], x[b], x[c], x[d] = quarter(x[i], x[b], x[c], x[d])
		}
	}
	for i := range x {
		if got := x[i] + start[i]; got != binary.LittleEndian.Uint32(want[4*i:]) {
			t.Fatalf("word %d is %08x", i, got)
		}
	}
	// The written-out eight rounds against a loop over the same quarters.
	x = start
	x[12], x[13], x[14], x[15] = 5, 6, 7, 8
	begin := x
	for range 4 {
		for i := range 4 {
			x[i], x[4+i], x[8+i], x[12+i] = quarter(x[i], x[4+i], x[8+i], x[12+i])
		}
		for i := range 4 {
			b, c, d := 4+(i+1)%4, 8+(i+2)%4, 12+(i+3)%4
			x[i], x[b], x[c], x[d] = quarter(x[i], x[b], x[c], x[d])
		}
	}
	var got [16]uint32
	g.block(&got, 5|6<<32, 7, 8)
	for i := range got {
		if got[i] != x[i]+begin[i] {
			t.Fatalf("word %d of eight rounds is %08x", i, got[i])
		}
	}
}

// Tiles hold what the definition says, in the order that PROTOCOL.md gives, and the root is that of the plain tree.
func TestTilesAreTheProduct(t *testing.T) {
	t.Parallel()
	s := Shape{Rows: 128, Columns: 192, Depth: 320, Products: 3}
	want := make([][]byte, 0, s.Leaves())
	for product := range s.Products {
		c := naive(s, seed(2), product)
		for i := 0; i < int(s.Rows); i += TileSide {
			for j := 0; j < int(s.Columns); j += TileSide {
				for r := range TileSide {
					for half := 0; half < TileSide; half += LeafWords {
						var leaf []byte
						for k := range LeafWords {
							leaf = binary.LittleEndian.AppendUint32(leaf, uint32(c[i+r][j+half+k]))
						}
						want = append(want, leaf)
					}
				}
			}
		}
	}
	commit, err := Commit(s, tiles(s, seed(2)))
	if err != nil {
		t.Fatal(err)
	}
	if commit.Root() != merkle.Root(want) {
		t.Fatal("the commitment is not the plain tree over all leaves")
	}
	all := make([]uint32, 0, Openings)
	for i := 0; i < s.Leaves(); i += s.Leaves()/Openings + 1 {
		all = append(all, uint32(i))
	}
	o, err := commit.Open(seed(2), all)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range o.Openings {
		if string(x.Data()) != string(want[all[i]]) {
			t.Fatalf("leaf %d", all[i])
		}
		for k := range LeafWords {
			if err := CheckEntry(seed(2), s, x, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := o.Check(seed(2), s, commit.Root(), all, func(i int) int { return i % LeafWords }); err != nil {
		t.Fatal(err)
	}
}

// The extreme values: sums of 2¹⁵ products of −128·−128 are exact in the packed lanes.
func TestExtremesAreExact(t *testing.T) {
	t.Parallel()
	for _, fill := range [][2]byte{{0x80, 0x80}, {0x80, 0x7f}, {0x7f, 0x80}, {0x7f, 0x7f}, {0xff, 1}, {0, 0x80}} {
		line := func(b byte) Lines {
			l := Lines{Depth: MaxDepth, Bytes: make([]byte, TileSide*MaxDepth)}
			for i := range l.Bytes {
				l.Bytes[i] = b
				if fill[0] != fill[1] && i%3 == 0 {
					l.Bytes[i] = ^b
				}
			}
			return l
		}
		rows, columns := line(fill[0]), line(fill[1])
		var tile Tile
		tile.Compute(rows, Pack(columns))
		for _, at := range [][2]int{{0, 0}, {0, 1}, {63, 63}, {17, 40}} {
			if got, want := tile[at[0]*TileSide+at[1]], Dot(rows.Line(at[0]), columns.Line(at[1])); got != want {
				t.Errorf("%x: %d, want %d", fill, got, want)
			}
		}
	}
}

func TestOpeningsRefused(t *testing.T) {
	t.Parallel()
	s := Shape{Rows: 64, Columns: 128, Depth: 128, Products: 2}
	hashes := tiles(s, seed(3))
	commit, err := Commit(s, hashes)
	if err != nil {
		t.Fatal(err)
	}
	drawn := Draw(seed(4), s.Leaves(), Openings)
	good, err := commit.Open(seed(3), drawn)
	if err != nil {
		t.Fatal(err)
	}
	pick := func(i int) int { return (i * 7) % LeafWords }
	check := func(o Opened, of sign.Hash, s Shape, root sign.Hash, drawn []uint32) error {
		return o.Check(of, s, root, drawn, pick)
	}
	if err := check(good, seed(3), s, commit.Root(), drawn); err != nil {
		t.Fatal(err)
	}
	change := func(f func(o *Opened)) Opened {
		o, rest, err := UnmarshalOpened(good.Marshal())
		if err != nil || len(rest) != 0 {
			t.Fatal(err)
		}
		f(&o)
		return o
	}
	other := s
	other.Depth = 192
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"another seed":       {check(good, seed(9), s, commit.Root(), drawn), ErrEntry},
		"another shape":      {check(good, seed(3), other, commit.Root(), drawn), ErrEntry},
		"another root":       {check(good, seed(3), s, seed(9), drawn), ErrCommitment},
		"another draw":       {check(good, seed(3), s, commit.Root(), Draw(seed(5), s.Leaves(), Openings)), ErrOpenings},
		"one less":           {check(change(func(o *Opened) { o.Openings = o.Openings[1:] }), seed(3), s, commit.Root(), drawn), ErrOpenings},
		"a value":            {check(change(func(o *Opened) { o.Openings[5].Values[pick(5)]++ }), seed(3), s, commit.Root(), drawn), ErrCommitment},
		"a node":             {check(change(func(o *Opened) { o.Nodes[3][0] ^= 1 }), seed(3), s, commit.Root(), drawn), ErrCommitment},
		"a node more":        {check(change(func(o *Opened) { o.Nodes = append(o.Nodes, seed(1)) }), seed(3), s, commit.Root(), drawn), ErrCommitment},
		"a node less":        {check(change(func(o *Opened) { o.Nodes = o.Nodes[1:] }), seed(3), s, commit.Root(), drawn), ErrCommitment},
		"a shape of nothing": {check(good, seed(3), Shape{}, commit.Root(), drawn), ErrShape},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}

	// A prover that invents one of a hundred values of every leaf is caught where it is looked at, under its own root.
	g := ProductGenerator(seed(3))
	wrong := make([]sign.Hash, s.Tiles())
	for i := range wrong {
		tile := NewTile(&g, s, s.Place(i))
		for k := range tile {
			tile[k] ^= 1
		}
		wrong[i] = tile.Hash()
	}
	lie, err := Commit(s, wrong)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lie.Open(seed(3), drawn); !errors.Is(err, ErrFault) {
		t.Errorf("a tile that is not what was committed: %v", err)
	}
	if _, err := Commit(s, hashes[1:]); !errors.Is(err, ErrTiles) {
		t.Error(err)
	}
	if _, err := commit.Open(seed(3), []uint32{uint32(s.Leaves())}); !errors.Is(err, ErrOpenings) {
		t.Error(err)
	}
	if _, err := commit.Open(seed(3), []uint32{4, 4}); err == nil {
		t.Error("one leaf opened twice")
	}
}

func TestWalk(t *testing.T) {
	t.Parallel()
	w := Walk{Cells: 4096, Work: 3, Walkers: 300, Steps: 20}
	d := NewDataset(seed(1), w.Work)
	stored := make([]Cell, w.Cells)
	for j := range stored {
		stored[j] = d.Cell(uint64(j))
	}
	key := WalkKey(seed(2))
	ends := make([]uint64, w.Walkers)
	read := map[uint64]bool{}
	for i := range ends {
		ends[i] = Go(w, key, uint32(i), func(j uint64) Cell { read[j] = true; return stored[j] })
	}
	// 6,000 reads of 4,096 cells reach 1 − e^(−1.46) of them, when they are even.
	if got := float64(len(read)) / float64(w.Cells); got < 0.74 || got > 0.80 {
		t.Errorf("%.3f of all cells are read", got)
	}
	a, again := arrive(t, w, ends)
	drawn := Draw(seed(3), int(w.Walkers), Ends)
	o, err := a.Open(drawn, again)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Check(seed(1), seed(2), w, a.Root(), drawn); err != nil {
		t.Fatal(err)
	}
	other := w
	other.Cells--
	wrong := append([]uint64(nil), ends...)
	wrong[drawn[2]]++
	liar, againWrong := arrive(t, w, wrong)
	bad, err := liar.Open(drawn, againWrong)
	if err != nil {
		t.Fatal(err)
	}
	// Two of one group, which lie once in the tree.
	pair := []uint32{1, 3, 64, 70}
	both, err := a.Open(pair, again)
	if err != nil {
		t.Fatal(err)
	}
	if err := both.Check(seed(1), seed(2), w, a.Root(), pair); err != nil {
		t.Fatal(err)
	}
	forms, short := both, both
	forms.Ends, short.Ends = slices.Clone(both.Ends), slices.Clone(both.Ends)
	forms.Ends[1].Group = slices.Clone(forms.Ends[1].Group)
	forms.Ends[1].Group[9]++
	short.Ends[3].Group = short.Ends[3].Group[:10]
	for name, c := range map[string]struct{ err, want error }{
		"two forms":       {forms.Check(seed(1), seed(2), w, a.Root(), pair), ErrOpenings},
		"a short group":   {short.Check(seed(1), seed(2), w, a.Root(), pair), ErrOpenings},
		"another dataset": {o.Check(seed(9), seed(2), w, a.Root(), drawn), ErrWalk},
		"another walk":    {o.Check(seed(1), seed(9), w, a.Root(), drawn), ErrWalk},
		"fewer cells":     {o.Check(seed(1), seed(2), other, a.Root(), drawn), ErrWalk},
		"a wrong end":     {bad.Check(seed(1), seed(2), w, liar.Root(), drawn), ErrWalk},
		"another root":    {bad.Check(seed(1), seed(2), w, a.Root(), drawn), ErrCommitment},
		"another draw":    {o.Check(seed(1), seed(2), w, a.Root(), []uint32{1, 2, 3, 5}), ErrOpenings},
		"no walk":         {o.Check(seed(1), seed(2), Walk{}, a.Root(), drawn), ErrShape},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	if _, err := a.Open([]uint32{w.Walkers}, again); !errors.Is(err, ErrOpenings) {
		t.Error(err)
	}
	if _, err := a.Open(drawn, againWrong); !errors.Is(err, ErrFault) {
		t.Errorf("walkers that end elsewhere the second time: %v", err)
	}
	if _, err := NewArrivals(w, make([]sign.Hash, 2), nil); !errors.Is(err, ErrWalk) {
		t.Error(err)
	}
}

// arrive commits to ends, and gives them again by group.
func arrive(t testing.TB, w Walk, ends []uint64) (*Arrivals, func(uint32) ([]uint64, error)) {
	t.Helper()
	a, err := NewArrivals(w, GroupHashes(ends), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a, func(group uint32) ([]uint64, error) {
		first, n := w.Members(group)
		return ends[first : first+n], nil
	}
}

// A walk over more than a stretch: stretches follow each other without gaps, each is walked once, by every walker, and what is read
// lies in it.
func TestStretches(t *testing.T) {
	t.Parallel()
	for _, w := range []Walk{
		{Cells: 1, Steps: 5}, {Cells: Stretch, Steps: 5}, {Cells: Stretch + 1, Steps: 5}, {Cells: 137 << 25, Steps: 1024}, {Cells: MaxCells, Steps: 1024},
		{Cells: MaxCells - 7, Steps: 3},
	} {
		w.Work, w.Walkers = 1, 1
		var cell uint64
		var step uint32
		for j := range w.Stretches() {
			first, cells, from, to := w.Stretch(j)
			if first != cell || cells < 1 || cells > Stretch || from != step || to < from || to-from > w.Steps/w.Stretches()+1 {
				t.Fatalf("%s: stretch %d: %d cells from %d, steps %d to %d", w, j, cells, first, from, to)
			}
			for k := from; k < to; k++ {
				if k*w.Stretches()/w.Steps != j {
					t.Errorf("%s: step %d in stretch %d", w, k, j)
				}
			}
			cell, step = first+cells, to
		}
		if cell != w.Cells || step != w.Steps {
			t.Errorf("%s: %d cells in %d steps", w, cell, step)
		}
		k, j := uint32(0), uint32(0)
		Go(w, 9, 0, func(at uint64) Cell {
			for {
				first, cells, from, to := w.Stretch(j)
				if k < to && k >= from {
					if at < first || at >= first+cells {
						t.Errorf("%s: step %d reads cell %d", w, k, at)
					}
					break
				}
				j++
			}
			k++
			return Cell{at, 1, 2, 3}
		})
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, MaxLeaves).Draw(t, "n")
		k := rapid.IntRange(1, Openings).Draw(t, "k")
		r := sign.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "r"))
		got := Draw(r, n, k)
		if len(got) != min(n, k) {
			t.Fatalf("%d of %d", len(got), k)
		}
		for i, x := range got {
			if int(x) >= n || i > 0 && x <= got[i-1] {
				t.Fatalf("%v below %d", got, n)
			}
		}
		if !reflect.DeepEqual(got, Draw(r, n, k)) {
			t.Fatal("the draw is not repeated")
		}
	})
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, s := range []Shape{
		{}, {64, 64, 64, 0}, {32, 64, 64, 1}, {64, 96, 64, 1}, {64, 64, 65, 1}, {64, 64, 0, 1}, {64, 64, MaxDepth + 64, 1},
		{MaxSide + 64, 64, 64, 1}, {64, 64, 64, MaxLeaves/TileLeafs + 1}, {MaxSide, MaxSide, 64, 17}, {64, 64, 64, 1<<32 - 1},
	} {
		if err := s.Check(); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range []Shape{{64, 64, 64, 1}, {64, 64, 64, MaxLeaves / TileLeafs}, {8192, 8192, MaxDepth, 256}, {MaxSide, MaxSide, 64, 16}} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
	for _, w := range []Walk{{}, {1, 0, 1, 1}, {1, 1, 0, 1}, {1, 1, 1, 0}, {MaxCells + 1, 1, 1, 1}, {1, MaxWork + 1, 1, 1}, {1, 1024, 1, 17}, {1, 1, MaxWalkers + 1, 1}} {
		if err := w.Check(); !errors.Is(err, ErrShape) {
			t.Errorf("%s: %v", w, err)
		}
	}
}

type vectors struct {
	Seed  string   `json:"seed"`
	Line  string   `json:"row_1_of_A_2"`
	Col   string   `json:"column_3_of_B_2"`
	Shape Shape    `json:"shape"`
	Root  string   `json:"root"`
	Draw  []uint32 `json:"draw"`
	Open  string   `json:"opened_sha256"`
	Walk  Walk     `json:"walk"`
	Cell  []string `json:"cell_7"`
	Key   string   `json:"walk_key"`
	Ends  []string `json:"ends"`
	Ended string   `json:"arrivals_root"`
}

func TestVectors(t *testing.T) {
	t.Parallel()
	v := vectors{Seed: seed(0).String(), Shape: Shape{64, 128, 192, 3}, Walk: Walk{Cells: 1000, Work: 5, Walkers: 8, Steps: 12}}
	g := ProductGenerator(seed(0))
	line := make([]byte, BlockSize)
	g.Line(line, A, 2, 1)
	v.Line = hex.EncodeToString(line)
	g.Line(line, B, 2, 3)
	v.Col = hex.EncodeToString(line)
	c, err := Commit(v.Shape, tiles(v.Shape, seed(0)))
	if err != nil {
		t.Fatal(err)
	}
	v.Root = c.Root().String()
	v.Draw = Draw(seed(1), v.Shape.Leaves(), 6)
	o, err := c.Open(seed(0), v.Draw)
	if err != nil {
		t.Fatal(err)
	}
	v.Open = sign.Sum(o.Marshal()).String()
	word := func(x uint64) string { return fmt.Sprintf("%016x", x) }
	d := NewDataset(seed(0), v.Walk.Work)
	for _, x := range d.Cell(7) {
		v.Cell = append(v.Cell, word(x))
	}
	key := WalkKey(seed(1))
	v.Key = word(key)
	var ends []uint64
	for i := range v.Walk.Walkers {
		ends = append(ends, Go(v.Walk, key, i, d.Cell))
		v.Ends = append(v.Ends, word(ends[i]))
	}
	arrivals, _ := arrive(t, v.Walk, ends)
	v.Ended = arrivals.Root().String()
	got, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "vectors.json")
	if *rewrite {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got)+"\n" {
		t.Errorf("got %s", got)
	}
}

func FuzzOpened(f *testing.F) {
	s := Shape{64, 64, 64, 2}
	c, err := Commit(s, tiles(s, seed(1)))
	if err != nil {
		f.Fatal(err)
	}
	o, err := c.Open(seed(1), Draw(seed(2), s.Leaves(), 5))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(o.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		o, rest, err := UnmarshalOpened(b)
		if err != nil {
			return
		}
		if got := append(o.Marshal(), rest...); string(got) != string(b) {
			t.Fatalf("%x is read as %x", b, got)
		}
		drawn := make([]uint32, len(o.Openings))
		for i, x := range o.Openings {
			drawn[i] = x.Leaf
		}
		if err := o.Check(seed(1), s, c.Root(), drawn, func(i int) int { return i % LeafWords }); err == nil && len(o.Nodes) == 0 && len(drawn) < s.Leaves() {
			t.Fatal("accepted without a proof")
		}
	})
}

func FuzzWalked(f *testing.F) {
	w := Walk{Cells: 10, Work: 1, Walkers: 5, Steps: 1}
	a, again := arrive(f, w, []uint64{1, 2, 3, 4, 5})
	o, err := a.Open([]uint32{1, 4}, again)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(o.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		o, rest, err := UnmarshalWalked(b)
		if err != nil {
			return
		}
		if got := append(o.Marshal(), rest...); string(got) != string(b) {
			t.Fatalf("%x is read as %x", b, got)
		}
		drawn := make([]uint32, len(o.Ends))
		for i, e := range o.Ends {
			drawn[i] = e.Walker
		}
		_ = o.Check(seed(1), seed(2), w, seed(3), drawn)
	})
}

func FuzzShape(f *testing.F) {
	b := Shape{64, 128, 64, 3}.Marshal()
	f.Add(b[:])
	w := Walk{Cells: 10, Work: 1, Walkers: 5, Steps: 1}.Marshal()
	f.Add(w[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := UnmarshalShape(b); err == nil {
			if got := s.Marshal(); string(got[:]) != string(b) {
				t.Fatalf("%x is read as %x", b, got)
			}
		}
		if w, err := UnmarshalWalk(b); err == nil {
			if got := w.Marshal(); string(got[:]) != string(b) {
				t.Fatalf("%x is read as %x", b, got)
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s := Shape{Rows: 512, Columns: 512, Depth: MaxDepth, Products: 1}
	c, err := Commit(s, tiles(s, seed(1)))
	if err != nil {
		b.Fatal(err)
	}
	drawn := Draw(seed(2), s.Leaves(), Openings)
	o, err := c.Open(seed(1), drawn)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("product", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := o.Check(seed(1), s, c.Root(), drawn, func(i int) int { return i % LeafWords }); err != nil {
				b.Fatal(err)
			}
		}
	})
	w := Walk{Cells: 1 << 32, Work: 64, Walkers: 1 << 16, Steps: 256}
	ends := make([]uint64, w.Walkers)
	d := NewDataset(seed(1), w.Work)
	walkers := Draw(seed(3), len(ends), Ends)
	for _, i := range walkers {
		ends[i] = Go(w, WalkKey(seed(2)), i, d.Cell)
	}
	a, again := arrive(b, w, ends)
	shown, err := a.Open(walkers, again)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("walk", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := shown.Check(seed(1), seed(2), w, a.Root(), walkers); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTile(b *testing.B) {
	s := Shape{Rows: 64, Columns: 64, Depth: 8192, Products: 1}
	g := ProductGenerator(seed(1))
	rows, columns := NewLines(&g, s, A, 0, 0, TileSide), Pack(NewLines(&g, s, B, 0, 0, TileSide))
	var tile Tile
	b.SetBytes(int64(s.Operations())) // MB/s are millions of operations a second
	for b.Loop() {
		tile.Compute(rows, columns)
	}
}

func BenchmarkLine(b *testing.B) {
	g := ProductGenerator(seed(1))
	line := make([]byte, MaxDepth)
	b.SetBytes(MaxDepth)
	for b.Loop() {
		g.Line(line, A, 0, rand.Uint32())
	}
}
