package challenge

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/verifytest"
)

// genShape draws a shape of a few tiles.
func genShape(t *rapid.T) Shape {
	side := func(name string) uint32 { return 64 * rapid.Uint32Range(1, 2).Draw(t, name) }
	return Shape{
		Rows: side("rows"), Columns: side("columns"), Depth: side("depth"),
		Products: rapid.Uint32Range(1, 2).Draw(t, "products"),
	}
}

// genLeaves draws some numbers below n, ascending.
func genLeaves(t *rapid.T, n, most int) []uint32 {
	below := rapid.Uint32Range(0, uint32(n-1))
	leaves := rapid.SliceOfNDistinct(below, 1, min(n, most), rapid.ID[uint32]).Draw(t, "leaves")
	slices.Sort(leaves)
	return leaves
}

// An honest prover opens any leaves of any shape. One wrong value under its own root is found exactly when it is the
// value that the verifier computes.
func TestProductsOfAnyShape(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s, of := genShape(t), seed(rapid.Byte().Draw(t, "seed"))
		leaves := genLeaves(t, s.Leaves(), 8)
		g := ProductGenerator(of)
		lie := rapid.IntRange(0, len(leaves)-1).Draw(t, "lie")
		tile, value := int(leaves[lie])/TileLeafs, rapid.IntRange(0, LeafWords-1).Draw(t, "value")
		made, hashes := map[int]*Tile{}, make([]sign.Hash, s.Tiles())
		requested := map[int]int{}
		provide := func(i int) *Tile {
			requested[i]++
			return made[i]
		}
		for i := range hashes {
			made[i] = NewTile(&g, s, s.Place(i))
			hashes[i] = made[i].Hash()
		}
		honest, err := Commit(s, hashes)
		if err != nil || honest.Shape() != s {
			t.Fatal(honest.Shape(), err)
		}
		opened, err := honest.OpenTiles(leaves, provide)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range requested {
			if n != 1 {
				t.Fatalf("tile %d was requested %d times", i, n)
			}
		}
		pick := func(int) int { return value }
		if err := opened.Check(of, s, honest.Root(), leaves, pick); err != nil {
			t.Fatal(err)
		}
		made[tile][int(leaves[lie])%TileLeafs*LeafWords+value] += 1 << rapid.IntRange(0, 31).Draw(t, "bit")
		hashes[tile] = made[tile].Hash()
		liar, err := Commit(s, hashes)
		if err != nil {
			t.Fatal(err)
		}
		if opened, err = liar.OpenTiles(leaves, provide); err != nil {
			t.Fatal(err)
		}
		if err := opened.Check(of, s, liar.Root(), leaves, pick); !errors.Is(err, ErrEntry) {
			t.Fatalf("value %d of leaf %d is wrong: %v", value, leaves[lie], err)
		}
		if err := opened.Check(of, s, honest.Root(), leaves, pick); !errors.Is(err, ErrCommitment) {
			t.Fatalf("under the root of the right values: %v", err)
		}
		elsewhere := func(int) int { return (value + 1) % LeafWords }
		if err := opened.Check(of, s, liar.Root(), leaves, elsewhere); err != nil {
			t.Fatalf("the value that is checked is right: %v", err)
		}
		for i := range LeafWords {
			if err := CheckEntry(of, s, opened.Openings[lie], i); errors.Is(err, ErrEntry) != (i == value) {
				t.Fatalf("value %d, where %d is wrong: %v", i, value, err)
			}
		}
	})
}

// The packed product of 64 rows and 64 columns is that of its definition for any bytes.
func TestComputeIsDot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		depth := 4 * rapid.IntRange(1, 24).Draw(t, "depth")
		lines := func(name string) Lines {
			some := rapid.SliceOfN(rapid.SampledFrom([]byte{0x80, 0x81, 0xff, 0, 1, 0x7f}), 97, 97).Draw(t, name)
			l := Lines{Depth: depth, Bytes: make([]byte, TileSide*depth)}
			for i := range l.Bytes {
				l.Bytes[i] = some[i*i%97]
			}
			return l
		}
		rows, columns := lines("rows"), lines("columns")
		var tile Tile
		tile.Compute(rows, Pack(columns))
		for i := range TileSide {
			for j := range TileSide {
				if got, want := tile[i*TileSide+j], Dot(rows.Line(i), columns.Line(j)); got != want {
					t.Fatalf("row %d, column %d: %d, want %d", i, j, got, want)
				}
			}
		}
	})
}

// The leaves of a shape cover every value of every product once.
func TestLeavesCoverTheProducts(t *testing.T) {
	t.Parallel()
	s := Shape{Rows: 192, Columns: 128, Depth: 64, Products: 2}
	seen := map[Place]bool{}
	for leaf := range s.Leaves() {
		p := s.entry(leaf)
		if seen[p] || p.Product >= s.Products || p.Row >= s.Rows || p.Column+LeafWords > s.Columns || p.Column%LeafWords != 0 {
			t.Fatalf("leaf %d lies at %+v", leaf, p)
		}
		seen[p] = true
	}
	if got, want := len(seen)*LeafWords, int(s.Rows*s.Columns*s.Products); got != want {
		t.Fatalf("%d values are in leaves, want %d", got, want)
	}
	if got, want := s.Operations(), uint64(2*192*128*64*2); got != want {
		t.Errorf("%d operations, want %d", got, want)
	}
}

// genWalk draws a walk that a test can do.
func genWalk(t *rapid.T) Walk {
	return Walk{
		Cells: rapid.Uint64Range(1, MaxCells).Draw(t, "cells"), Work: rapid.Uint32Range(1, 3).Draw(t, "work"),
		Walkers: rapid.Uint32Range(1, 3*Group).Draw(t, "walkers"), Steps: rapid.Uint32Range(1, 12).Draw(t, "steps"),
	}
}

// Any walkers of any walk can be opened. A wrong end is found exactly when its walker is drawn, and a seed of another
// dataset or walk is refused.
func TestWalkersOfAnyWalk(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := genWalk(t)
		d, key := NewDataset(seed(1), w.Work), WalkKey(seed(2))
		ends := make([]uint64, w.Walkers)
		for i := range ends {
			steps := uint32(0)
			ends[i] = Go(w, key, uint32(i), func(j uint64) Cell {
				if steps++; j >= w.Cells {
					t.Fatalf("walker %d reads cell %d of %d", i, j, w.Cells)
				}
				return d.Cell(j)
			})
			if steps != w.Steps {
				t.Fatalf("walker %d makes %d steps, want %d", i, steps, w.Steps)
			}
		}
		drawn := genLeaves(t, len(ends), Ends)
		open := func() (Walked, sign.Hash) {
			a, err := NewArrivals(w, GroupHashes(ends), nil)
			if err != nil {
				t.Fatal(err)
			}
			shown, err := a.Open(drawn, func(group uint32) ([]uint64, error) {
				first, n := w.Members(group)
				return slices.Clone(ends[first : first+n]), nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return shown, a.Root()
		}
		shown, root := open()
		if err := shown.Check(seed(1), seed(2), w, root, drawn); err != nil {
			t.Fatal(err)
		}
		for i, e := range shown.Ends {
			if e.State() != ends[drawn[i]] {
				t.Fatalf("walker %d ended in %x, shown is %x", drawn[i], ends[drawn[i]], e.State())
			}
		}
		if err := shown.Check(seed(3), seed(2), w, root, drawn); !errors.Is(err, ErrWalk) {
			t.Fatalf("another dataset: %v", err)
		}
		if err := shown.Check(seed(1), seed(3), w, root, drawn); !errors.Is(err, ErrWalk) {
			t.Fatalf("another walk: %v", err)
		}
		lie := rapid.Uint32Range(0, w.Walkers-1).Draw(t, "lie")
		ends[lie] ^= 1 << rapid.IntRange(0, 63).Draw(t, "bit")
		shown, root = open()
		if err := shown.Check(seed(1), seed(2), w, root, drawn); errors.Is(err, ErrWalk) != slices.Contains(drawn, lie) {
			t.Fatalf("walker %d of %v lies: %v", lie, drawn, err)
		}
	})
}

// Groups divide the walkers: each is in one, and no group beyond the last has any.
func TestMembers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := Walk{Walkers: rapid.Uint32Range(1, MaxWalkers).Draw(t, "walkers")}
		k := rapid.Uint32Range(0, w.Walkers-1).Draw(t, "walker")
		if first, n := w.Members(k / Group); k < first || k >= first+n || n > Group {
			t.Fatalf("walker %d of %d is in a group of %d from %d on", k, w.Walkers, n, first)
		}
		last := uint32(w.Groups()) - 1
		if first, n := w.Members(last); first+n != w.Walkers || n < 1 {
			t.Fatalf("the last group has %d walkers from %d on, there are %d", n, first, w.Walkers)
		}
		if _, n := w.Members(last + 1); n != 0 {
			t.Fatalf("a group beyond the last has %d walkers", n)
		}
	})
}

// Every byte of an answer counts: any change is refused, where it is read or where it is checked.
func TestEveryByteOfAnswers(t *testing.T) {
	t.Parallel()
	s := Shape{Rows: 64, Columns: 64, Depth: 64, Products: 2}
	commit, err := Commit(s, tiles(s, seed(1)))
	if err != nil {
		t.Fatal(err)
	}
	leaves := []uint32{3, 130}
	opened, err := commit.Open(seed(1), leaves)
	if err != nil {
		t.Fatal(err)
	}
	w := Walk{Cells: 1000, Work: 1, Walkers: 70, Steps: 3}
	d, ends := NewDataset(seed(1), w.Work), make([]uint64, w.Walkers)
	for i := range ends {
		ends[i] = Go(w, WalkKey(seed(2)), uint32(i), d.Cell)
	}
	arrivals, again := arrive(t, w, ends)
	drawn := []uint32{64, 69}
	walked, err := arrivals.Open(drawn, again)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		bytes []byte
		check func([]byte) error
	}{
		"opened": {opened.Marshal(), func(b []byte) error {
			o, rest, err := UnmarshalOpened(b)
			if err != nil || len(rest) > 0 {
				return errors.Join(ErrMalformed, err)
			}
			return o.Check(seed(1), s, commit.Root(), leaves, func(int) int { return 0 })
		}},
		"walked": {walked.Marshal(), func(b []byte) error {
			o, rest, err := UnmarshalWalked(b)
			if err != nil || len(rest) > 0 {
				return errors.Join(ErrMalformed, err)
			}
			return o.Check(seed(1), seed(2), w, arrivals.Root(), drawn)
		}},
	} {
		verifytest.EveryByteCounts(t, name, c.bytes, c.check)
	}
}

// Sizes from a stranger are refused, or they stay within every bound that a verifier relies on. No product of them
// overflows.
func TestAcceptedSizesAreBounded(t *testing.T) {
	t.Parallel()
	u32 := rapid.OneOf(rapid.SampledFrom([]uint32{
		0, 1, 63, 64, 65, 128, MaxSide, MaxSide + 64, 1 << 16, MaxWork, MaxWork + 1, MaxSteps, MaxSteps + 1,
		MaxWalkers, MaxWalkers + 1, MaxLeaves, 1 << 31, 1<<32 - 64, 1<<32 - 1,
	}), rapid.Uint32())
	rapid.Check(t, func(t *rapid.T) {
		var b []byte
		for _, name := range []string{"0", "4", "8", "12", "16"} {
			b = binary.LittleEndian.AppendUint32(b, u32.Draw(t, name))
		}
		if s, err := UnmarshalShape(b[:ShapeSize]); err == nil {
			values := uint64(s.Rows) * uint64(s.Columns) * uint64(s.Products)
			if s.Leaves() > MaxLeaves || uint64(s.Leaves())*LeafWords != values || s.Operations()/uint64(s.Depth) != 2*values {
				t.Fatalf("%s is accepted with %d leaves", s, s.Leaves())
			}
		} else if !errors.Is(err, ErrShape) {
			t.Fatal(err)
		}
		w, err := UnmarshalWalk(append(b, 0, 0, 0, 0))
		if err != nil {
			if !errors.Is(err, ErrShape) {
				t.Fatal(err)
			}
			return
		}
		if uint64(w.Work)*uint64(w.Steps) > MaxRegeneration || w.Bytes()/CellSize != w.Cells || w.Cells > MaxCells {
			t.Fatalf("%s is accepted", w)
		}
		if w.Reads()/uint64(w.Steps) != uint64(w.Walkers) || w.Groups() > MaxWalkers/Group {
			t.Fatalf("%s is accepted with %d reads and %d groups", w, w.Reads(), w.Groups())
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		side := func(name string) uint32 { return 64 << rapid.IntRange(0, 9).Draw(t, name) }
		s := Shape{Rows: side("rows"), Columns: side("columns"), Depth: side("depth")}
		most := MaxLeaves * LeafWords / (uint64(s.Rows) * uint64(s.Columns))
		for _, n := range []uint64{most, most + 1} {
			s.Products = uint32(n)
			b := s.Marshal()
			if _, err := UnmarshalShape(b[:]); errors.Is(err, ErrShape) != (n > most) {
				t.Fatalf("%s, of which %d products are allowed: %v", s, most, err)
			}
		}
	})
	if _, err := UnmarshalWalk(append(make([]byte, 20), 0, 0, 1, 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("reserved bytes are set: %v", err)
	}
}

// The bounds of a decoder leave room for the longest proof that an honest prover sends.
func TestLongestProofsAreRead(t *testing.T) {
	t.Parallel()
	nothing := func(int, int) (sign.Hash, error) { return sign.Hash{}, nil }
	longest := func(t interface{ Fatal(...any) }, n int, indices []uint32) merkle.Many {
		var at []int
		for _, i := range indices {
			at = append(at, int(i))
		}
		nodes, err := merkle.ProveMany(n, at, nothing)
		if err != nil {
			t.Fatal(err)
		}
		return nodes
	}
	spread := func(n, k uint32) (out []uint32) {
		for i := range k {
			out = append(out, uint32(uint64(i)*uint64(n)/uint64(k)))
		}
		return out
	}
	check := func(t interface {
		Fatal(...any)
		Fatalf(string, ...any)
	}, leaves, walkers []uint32) {
		o := Opened{Nodes: longest(t, MaxLeaves, leaves)}
		for _, leaf := range leaves {
			o.Openings = append(o.Openings, Opening{Leaf: leaf})
		}
		if _, rest, err := UnmarshalOpened(o.Marshal()); err != nil || len(rest) > 0 {
			t.Fatalf("%d nodes of at most %d: %v", len(o.Nodes), maxNodes, err)
		}
		var w Walked
		var groups []uint32
		for _, k := range walkers {
			w.Ends = append(w.Ends, End{Walker: k, Group: make([]uint64, Group)})
			groups = append(groups, k/Group)
		}
		w.Nodes = longest(t, MaxWalkers/Group, slices.Compact(groups))
		if _, rest, err := UnmarshalWalked(w.Marshal()); err != nil || len(rest) > 0 {
			t.Fatalf("%d nodes of at most %d: %v", len(w.Nodes), maxEndNodes, err)
		}
	}
	check(t, spread(MaxLeaves, Openings), spread(MaxWalkers, Ends))
	rapid.Check(t, func(t *rapid.T) {
		r := sign.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "randomness"))
		check(t, Draw(r, MaxLeaves, Openings), Draw(r, MaxWalkers, Ends))
	})
}

// A prover that uses the package wrongly gets an error, never a proof that convicts it.
func TestProverErrors(t *testing.T) {
	t.Parallel()
	s := Shape{Rows: 64, Columns: 64, Depth: 64, Products: 3}
	hashes := tiles(s, seed(1))
	commit, err := Commit(s, hashes)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := commit.Open(seed(1), []uint32{130, 4, 131}); err == nil {
		t.Error("leaves that do not ascend are opened")
	}
	if _, err := commit.Open(seed(2), []uint32{4}); !errors.Is(err, ErrFault) {
		t.Errorf("tiles of another seed: %v, want %v", err, ErrFault)
	}
	if _, err := Commit(Shape{Rows: 1}, nil); !errors.Is(err, ErrShape) {
		t.Errorf("a shape out of bounds: %v, want %v", err, ErrShape)
	}
	c, err := NewCommitter(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add(hashes[:2]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Commit(); !errors.Is(err, ErrTiles) {
		t.Errorf("two tiles of three: %v, want %v", err, ErrTiles)
	}
	if err := c.Add(hashes[1:]); !errors.Is(err, ErrTiles) {
		t.Errorf("four tiles of three: %v, want %v", err, ErrTiles)
	}
	if err := c.Add(hashes[2:]); err != nil {
		t.Errorf("the third tile after a refused addition: %v", err)
	}
	if again, err := c.Commit(); err != nil || again.Root() != commit.Root() {
		t.Errorf("tiles that were added in two parts: %v", err)
	}
	opened, err := commit.Open(seed(1), []uint32{4})
	if err != nil {
		t.Fatal(err)
	}
	beyond := opened.Openings[0]
	beyond.Leaf = uint32(s.Leaves())
	for name, c := range map[string]struct{ err, want error }{
		"value -1":          {CheckEntry(seed(1), s, opened.Openings[0], -1), ErrOpenings},
		"value 32":          {CheckEntry(seed(1), s, opened.Openings[0], LeafWords), ErrOpenings},
		"a leaf beyond":     {CheckEntry(seed(1), s, beyond, 0), ErrOpenings},
		"no shape":          {CheckEntry(seed(1), Shape{}, opened.Openings[0], 0), ErrShape},
		"nothing was drawn": {Opened{}.Check(seed(1), s, commit.Root(), nil, nil), ErrCommitment},
		"no walker drawn": {
			Walked{}.Check(seed(1), seed(2), Walk{Cells: 1, Work: 1, Walkers: 1, Steps: 1}, seed(3), nil), ErrCommitment,
		},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	w := Walk{Cells: 10, Work: 1, Walkers: 5, Steps: 1}
	arrivals, _ := arrive(t, w, make([]uint64, w.Walkers))
	lost := errors.New("device lost")
	if _, err := arrivals.Open([]uint32{1}, func(uint32) ([]uint64, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("walkers that cannot be walked again: %v, want %v", err, lost)
	}
	if got := (End{Walker: 9, Group: []uint64{1, 2}}).State(); got != 0 {
		t.Errorf("a walker outside of its group ended in %d", got)
	}
}
