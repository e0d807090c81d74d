package ptx_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/ptxsim"
	"github.com/starling-network/starling/verify/challenge"
)

// capabilities are one for each module that there is.
var capabilities = []uint32{61, 80}

// bench is a simulated GPU with a module.
type bench struct {
	t *testing.T
	*ptxsim.GPU
	module *ptxsim.Module
}

func newBench(t *testing.T, capability uint32) bench {
	t.Helper()
	text, err := ptx.Module(capability)
	if err != nil {
		t.Fatal(err)
	}
	m, err := ptxsim.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return bench{t, ptxsim.New(1 << 30), m}
}

func (b bench) alloc(size int) uint64 {
	b.t.Helper()
	at, err := b.Alloc(uint64(size))
	if err != nil {
		b.t.Fatal(err)
	}
	return at
}

// with is memory that holds these bytes.
func (b bench) with(data []byte) uint64 {
	b.t.Helper()
	at := b.alloc(len(data))
	if err := b.Write(at, data); err != nil {
		b.t.Fatal(err)
	}
	return at
}

func (b bench) read(at uint64, size int) []byte {
	b.t.Helper()
	out := make([]byte, size)
	if err := b.Read(out, at); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b bench) launch(k ptx.Kernel, blocks int, args ...uint64) {
	b.t.Helper()
	if err := b.Launch(b.module, k.Name, blocks, k.Threads, args); err != nil {
		b.t.Fatal(err)
	}
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

func hash(r *rand.Rand) (h sign.Hash) {
	for i := range h {
		h[i] = byte(r.Uint32())
	}
	return h
}

// words are the eight words of a key.
func words(key sign.Hash) []uint64 {
	var out []uint64
	for i := 0; i < len(key); i += 4 {
		out = append(out, uint64(binary.LittleEndian.Uint32(key[i:])))
	}
	return out
}

// each runs a test on all modules, over several seeds.
func each(t *testing.T, seeds int, f func(b bench, r *rand.Rand)) {
	t.Parallel()
	for _, capability := range capabilities {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%d/%d", capability, seed), func(t *testing.T) {
				t.Parallel()
				f(newBench(t, capability), random(uint64(seed)))
			})
		}
	}
}

func TestRows(t *testing.T) {
	each(t, 4, func(b bench, r *rand.Rand) {
		seed := hash(r)
		g := challenge.ProductGenerator(seed)
		depth, lines := 64*(1+r.IntN(9)), 1+r.IntN(70)
		product, first := r.Uint32N(1<<20), r.Uint32N(challenge.MaxSide)
		m := challenge.Matrix(r.IntN(2))
		total := lines * depth / 64
		out := b.alloc(lines * depth)
		args := append([]uint64{out}, words(challenge.ProductKey(seed))...)
		b.launch(ptx.Rows, (total+255)/256, append(args, uint64(2*product+uint32(m)), uint64(first), uint64(depth/64), uint64(total))...)
		want := challenge.NewLines(&g, challenge.Shape{Depth: uint32(depth)}, m, product, first, lines)
		if !bytes.Equal(b.read(out, lines*depth), want.Bytes) {
			b.t.Errorf("%d lines of %d from %d of matrix %d of product %d differ", lines, depth, first, m, product)
		}
	})
}

// A block down, several, and more than go together; K of one stage, of as many as there are buffers, and of more.
func TestGemm(t *testing.T) {
	shapes := []struct{ rows, columns, depth int }{{1, 1, 64}, {1, 2, 128}, {2, 1, 192}, {1, 1, 512}, {9, 2, 64}, {3, 3, 256}}
	each(t, len(shapes), func(b bench, r *rand.Rand) {
		s := shapes[r.IntN(len(shapes))]
		gemm(b, s.rows, s.columns, s.depth, func() byte { return byte(r.Uint32()) })
	})
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		for _, capability := range capabilities {
			for i, s := range shapes {
				r := random(uint64(100 + i))
				gemm(newBench(t, capability), s.rows, s.columns, s.depth, func() byte { return byte(r.Uint32()) })
			}
			// The largest sums there are: every factor −128, then −128 by 127.
			for _, last := range []byte{0x80, 0x7f} {
				n := 0
				gemm(newBench(t, capability), 1, 1, 1024, func() byte {
					if n++; n > 128*1024 {
						return last
					}
					return 0x80
				})
			}
		}
	})
}

// gemm multiplies lines of these bytes and compares every entry.
func gemm(b bench, rows, columns, depth int, next func() byte) {
	b.t.Helper()
	lines := func(n int) []byte {
		data := make([]byte, n*ptx.BlockSide*depth)
		for i := range data {
			data[i] = next()
		}
		return data
	}
	x, y := lines(rows), lines(columns)
	m, n := rows*ptx.BlockSide, columns*ptx.BlockSide
	c := b.alloc(4 * m * n)
	b.launch(ptx.Gemm, rows*columns, b.with(x), b.with(y), c, uint64(depth), uint64(rows), uint64(columns))
	got := b.read(c, 4*m*n)
	for i := range m {
		for j := range n {
			want := challenge.Dot(x[i*depth:(i+1)*depth], y[j*depth:(j+1)*depth])
			if v := int32(binary.LittleEndian.Uint32(got[4*(i*n+j):])); v != want {
				b.t.Fatalf("%d×%d×%d: entry %d, %d is %d, want %d", m, depth, n, i, j, v, want)
			}
		}
	}
}

// What would go wrong on a GPU now and then goes wrong in the simulator always: a barrier or a wait that is missing.
func TestMissingIsFound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		capability uint32
		old, new   string
		n          int // which one in the text of gemm
		want       string
	}{
		{61, "bar.sync 0;", "", 0, "since the last barrier"},
		{61, "bar.sync 0;", "", 1, "which is unwritten"},
		{80, "bar.sync 0;", "", 0, "since the last barrier"},
		{80, "cp.async.wait_group 1;", "", 0, "during a copy"},
		{80, "cp.async.wait_group 1;", "cp.async.wait_group 2;", 0, "during a copy"},
		{80, "cp.async.commit_group;", "", 2, "during a copy"},
	} {
		text, err := ptx.Module(c.capability)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(text, ".entry gemm(")
		for range c.n {
			at += strings.Index(text[at:], c.old) + len(c.old)
		}
		m, err := ptxsim.Parse(text[:at] + strings.Replace(text[at:], c.old, c.new, 1))
		if err != nil {
			t.Fatal(err)
		}
		b := bench{t, ptxsim.New(1 << 20), m}
		const depth = 64 * 6
		x, y, z := b.with(make([]byte, ptx.BlockSide*depth)), b.with(make([]byte, ptx.BlockSide*depth)), b.alloc(4*ptx.BlockSide*ptx.BlockSide)
		err = b.Launch(m, ptx.Gemm.Name, 1, ptx.Gemm.Threads, []uint64{x, y, z, depth, 1, 1})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d without %q number %d: %v", c.capability, c.old, c.n, err)
		}
	}
}

func TestTiles(t *testing.T) {
	each(t, 3, func(b bench, r *rand.Rand) {
		down, across := 1+r.IntN(3), 1+r.IntN(3)
		pitch := (across*64 + 127) / 128 * 128
		data := make([]byte, 4*down*64*pitch)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		out := b.alloc(32 * down * across)
		b.launch(ptx.Tiles, (down*across+ptx.BlockTiles-1)/ptx.BlockTiles, b.with(data), out, uint64(pitch), uint64(across), uint64(down*across))
		got := b.read(out, 32*down*across)
		for i := range down * across {
			var tile challenge.Tile
			for k := range tile {
				at := (i/across*64+k/64)*pitch + i%across*64 + k%64
				tile[k] = int32(binary.LittleEndian.Uint32(data[4*at:]))
			}
			if want := tile.Hash(); sign.Hash(got[32*i:]) != want {
				b.t.Errorf("%d × %d tiles: number %d differs", down, across, i)
			}
		}
	})
}

func TestFill(t *testing.T) {
	each(t, 4, func(b bench, r *rand.Rand) {
		seed, work := hash(r), 1+r.Uint32N(5)
		set := challenge.NewDataset(seed, work)
		cells, first := 1+r.IntN(600), r.IntN(100)
		out := b.alloc(32 * (first + cells))
		args := append([]uint64{out}, words(challenge.DatasetKey(seed))...)
		b.launch(ptx.Fill, (cells+255)/256, append(args, uint64(first), uint64(cells), uint64(work))...)
		got := b.read(out+32*uint64(first), 32*cells)
		for i := range cells {
			var want []byte
			for _, v := range set.Cell(uint64(first + i)) {
				want = binary.LittleEndian.AppendUint64(want, v)
			}
			if !bytes.Equal(got[32*i:32*i+32], want) {
				b.t.Fatalf("cell %d of work %d is %x, want %x", first+i, work, got[32*i:32*i+32], want)
			}
		}
	})
}

// A cell's number has 64 bits: beyond 2³² its upper half counts. The memory of 2³² cells is not needed to see that.
func TestFillFar(t *testing.T) {
	each(t, 2, func(b bench, r *rand.Rand) {
		seed := hash(r)
		set := challenge.NewDataset(seed, 2)
		first := 1<<32 + r.Uint64N(1<<35)
		out := b.alloc(32 * 40)
		args := append([]uint64{out - 32*first}, words(challenge.DatasetKey(seed))...)
		b.launch(ptx.Fill, 1, append(args, first, 40, 2)...)
		got := b.read(out, 32*40)
		for i := range uint64(40) {
			if v := binary.LittleEndian.Uint64(got[32*i:]); v != set.Cell(first + i)[0] {
				b.t.Fatalf("cell %d differs", first+i)
			}
		}
	})
}

func TestWalk(t *testing.T) {
	each(t, 4, func(b bench, r *rand.Rand) {
		w := challenge.Walk{Cells: 1 + r.Uint64N(2000), Work: 1, Walkers: 1 + r.Uint32N(300), Steps: 2 + r.Uint32N(40)}
		set := challenge.NewDataset(hash(r), w.Work)
		var data []byte
		for j := range w.Cells {
			for _, v := range set.Cell(j) {
				data = binary.LittleEndian.AppendUint64(data, v)
			}
		}
		key, cells, ends := r.Uint64(), b.with(data), b.alloc(int(8*w.Walkers))
		blocks := int(w.Walkers+127) / 128
		// In two parts: the second goes on where the first ended.
		part := uint64(1 + r.Uint32N(w.Steps-1))
		b.launch(ptx.Walk, blocks, cells, ends, key, w.Cells, 0, uint64(w.Walkers), part, 1)
		b.launch(ptx.Walk, blocks, cells, ends, key, w.Cells, 0, uint64(w.Walkers), uint64(w.Steps)-part, 0)
		// And the last walker alone.
		b.launch(ptx.Walk, 1, cells, ends, key, w.Cells, uint64(w.Walkers-1), 1, uint64(w.Steps), 1)
		got := b.read(ends, int(8*w.Walkers))
		for i := range w.Walkers {
			want := challenge.Go(w, key, i, set.Cell)
			if i == 0 {
				want = challenge.Go(w, key, w.Walkers-1, set.Cell)
			}
			if v := binary.LittleEndian.Uint64(got[8*i:]); v != want {
				b.t.Fatalf("%s: walker %d ends at %x, want %x", w, i, v, want)
			}
		}
	})
}

func TestGroups(t *testing.T) {
	each(t, 3, func(b bench, r *rand.Rand) {
		count := 1 + r.IntN(140)
		ends := make([]uint64, 64*count)
		var data []byte
		for i := range ends {
			ends[i] = r.Uint64()
			data = binary.LittleEndian.AppendUint64(data, ends[i])
		}
		out := b.alloc(32 * count)
		b.launch(ptx.Groups, (count+127)/128, b.with(data), out, uint64(count))
		for i, want := range challenge.GroupHashes(ends) {
			if got := sign.Hash(b.read(out+32*uint64(i), 32)); got != want {
				b.t.Fatalf("group %d of %d is %s, want %s", i, count, got, want)
			}
		}
	})
}

func TestCapability(t *testing.T) {
	t.Parallel()
	if _, err := ptx.Module(60); !errors.Is(err, ptx.ErrCapability) {
		t.Error(err)
	}
	for capability, target := range map[uint32]string{61: "sm_61", 75: "sm_61", 80: "sm_80", 90: "sm_80", 120: "sm_80"} {
		text, err := ptx.Module(capability)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ptxsim.Parse(text)
		if err != nil || m.Target != target {
			t.Errorf("%d is %v, want %s: %v", capability, m, target, err)
		}
	}
}
