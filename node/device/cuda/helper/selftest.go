package helper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cpu"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/challenge"
)

// errDiffers means that a GPU computes something else than the processor.
var errDiffers = errors.New("the GPU differs from the processor")

// plan is the content of a test.
type plan struct {
	shapes []challenge.Shape // compared whole
	walks  []challenge.Walk  // compared whole, and by them the cells that they read
	audit  challenge.Shape   // as large as real challenges: some tiles are compared, and it is timed; zero: neither
	side   uint32            // rows, columns and depth of the product by which kernels are measured one by one
	times  int               // that each of them runs
	walk   challenge.Walk    // measured, over a dataset of all memory that is free but spare bytes
	spare  uint64
	aim    time.Duration // that measured products should take
}

// quickly has sides that blocks divide and that they do not, one depth and several.
var quickly = plan{
	shapes: []challenge.Shape{
		{Rows: 64, Columns: 64, Depth: 64, Products: 1},
		{Rows: 64, Columns: 192, Depth: 128, Products: 2},
		{Rows: 192, Columns: 128, Depth: 320, Products: 1},
	},
	walks: []challenge.Walk{{Cells: 1, Work: 1, Walkers: 1, Steps: 1}, {Cells: 5000, Work: 3, Walkers: 300, Steps: 17}},
}

// fully is the test of real hardware.
var fully = plan{
	shapes: append(slices.Clone(quickly.shapes), []challenge.Shape{
		{Rows: 128, Columns: 128, Depth: 32768, Products: 3},
		{Rows: 1088, Columns: 1216, Depth: 512, Products: 2},
		{Rows: 2048, Columns: 2048, Depth: 4096, Products: 1},
		{Rows: 8192, Columns: 64, Depth: 1024, Products: 1},
		{Rows: 64, Columns: 8192, Depth: 1024, Products: 1},
	}...),
	walks: append(slices.Clone(quickly.walks),
		challenge.Walk{Cells: 1<<22 + 12345, Work: 64, Walkers: 1 << 16, Steps: 64},
		challenge.Walk{Cells: 1 << 24, Work: 1, Walkers: 1 << 20, Steps: 100}),
	audit: challenge.Shape{Rows: 8192, Columns: 8192, Depth: 32768, Products: 1},
	side:  8192,
	times: 10,
	walk:  challenge.Walk{Work: 64, Walkers: challenge.MaxWalkers, Steps: 256},
	spare: 1 << 30,
	aim:   3 * time.Second,
}

// tester compares and measures one GPU.
type tester struct {
	plan   plan
	ctx    context.Context
	out    io.Writer
	gpu    engine.GPU
	engine *engine.Engine
	cpu    *cpu.Device
	err    error // the first error
}

// selfTest opens the GPU, describes it, and compares and measures it.
func selfTest(out io.Writer, open func() (engine.GPU, wire.Description, error), p plan) error {
	gpu, about, err := open()
	if err != nil {
		return err
	}
	t := &tester{
		plan: p, ctx: context.Background(), out: out,
		gpu: gpu, engine: engine.New(gpu), cpu: cpu.New(cpu.Config{Memory: 1 << 30}),
	}
	free, total, err := t.engine.Memory()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, compute capability %d.%d, driver of CUDA %d.%d, %d of %d MiB free; "+
		"compared with %d threads of the processor\n",
		about.Name, about.Capability/10, about.Capability%10, about.Driver/1000, about.Driver%1000/10,
		free>>20, total>>20, runtime.GOMAXPROCS(0))
	t.registers()
	for _, s := range p.shapes {
		t.product(s)
	}
	for _, w := range p.walks {
		t.walk(w)
	}
	if p.audit.Products > 0 && t.err == nil {
		t.sample(p.audit)
		t.kernels()
		t.rates()
	}
	return t.err
}

// seed returns a new random seed.
func seed() (h sign.Hash) {
	_, _ = rand.Read(h[:]) // never fails
	return h
}

// result prints a line, and keeps the first failure.
func (t *tester) result(what string, err error) {
	if err == nil {
		fmt.Fprintf(t.out, "same     %s\n", what)
		return
	}
	fmt.Fprintf(t.out, "FAILED   %s: %v\n", what, err)
	if t.err == nil {
		t.err = fmt.Errorf("%s: %w", what, err)
	}
}

// multiply gives the hashes of all tiles.
func (t *tester) multiply(key sign.Hash, s challenge.Shape) (tiles []sign.Hash, err error) {
	err = t.engine.Multiply(t.ctx, key, s, func(hashes []byte) error {
		tiles = append(tiles, wire.Hashes(hashes)...)
		return nil
	})
	return tiles, err
}

// product compares all tiles of a shape.
func (t *tester) product(s challenge.Shape) {
	key := seed()
	got, err := t.multiply(key, s)
	if err == nil {
		var want []sign.Hash
		if want, err = t.cpu.Multiply(t.ctx, key, s); err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%w: seed %s", errDiffers, key)
		}
	}
	t.result("products "+s.String(), err)
}

// walk compares all ends of a walk over a dataset filled for it, and so all cells that it reads.
func (t *tester) walk(w challenge.Walk) {
	of := device.Of(seed(), w)
	err := t.engine.Fill(t.ctx, of, 0)
	if err == nil {
		err = t.cpu.Fill(t.ctx, of)
	}
	if err == nil {
		key := challenge.WalkKey(seed())
		var got []byte
		var want []sign.Hash
		if got, err = t.engine.Walk(t.ctx, key, of, w); err == nil {
			want, err = t.cpu.Walk(t.ctx, key, of, w)
		}
		if err == nil && !slices.Equal(wire.Hashes(got), want) {
			err = fmt.Errorf("%w: dataset %s, key %x", errDiffers, of.Seed, key)
		}
	}
	t.result(w.String(), errors.Join(err, t.engine.Evict()))
}

// registers prints the compiled kernels' use of registers. Memory for values that do not fit into registers makes a
// kernel slow.
func (t *tester) registers() {
	gpu, ok := t.gpu.(interface {
		Registers(k ptx.Kernel) (count, spilled int, err error)
	})
	if !ok {
		return
	}
	for _, k := range ptx.Kernels() {
		n, spilled, err := gpu.Registers(k)
		if err != nil {
			t.result("registers of "+k.Name, err)
			continue
		}
		fmt.Fprintf(t.out, "kernel   %s: %d registers, %d bytes beside them\n", k.Name, n, spilled)
	}
}

// spread walks over all of a large dataset, and compares groups drawn at random with the definition: their walkers read
// all over it, beyond 4 GiB and in every stretch.
func (t *tester) spread(of device.Dataset, w challenge.Walk) (took time.Duration) {
	key := challenge.WalkKey(seed())
	var hashes []sign.Hash
	took = t.time(func() error {
		raw, err := t.engine.Walk(t.ctx, key, of, w)
		if err != nil {
			return err
		}
		hashes = wire.Hashes(raw) // the engine reuses its memory
		arrivals, err := challenge.NewArrivals(w, hashes, device.Split)
		if err == nil {
			arrivals.Root()
		}
		return err
	})
	if t.err != nil {
		return took
	}
	groups := min(16, w.Groups())
	set := challenge.NewDataset(of.Seed, of.Work)
	for _, group := range challenge.Draw(seed(), w.Groups(), groups) {
		raw, err := t.engine.Ends(t.ctx, key, of, w, group)
		if err != nil {
			t.result(fmt.Sprintf("group %d of %s", group, w), err)
			return took
		}
		ends := wire.States(raw)
		first, n := w.Members(group)
		want := make([]uint64, n)
		for i := range want {
			want[i] = challenge.Go(w, key, first+uint32(i), set.Cell)
		}
		if !slices.Equal(ends, want) || hashes[group] != challenge.GroupHash(want) {
			t.result(fmt.Sprintf("group %d of %s", group, w),
				fmt.Errorf("%w: dataset %s, key %x", errDiffers, of.Seed, key))
			return took
		}
	}
	t.result(fmt.Sprintf("%d groups of %s", groups, w), nil)
	return took
}

// sample compares some tiles of a large shape with tiles computed by definition.
func (t *tester) sample(s challenge.Shape) {
	tiles := min(32, s.Tiles())
	key := seed()
	got, err := t.multiply(key, s)
	if err == nil {
		g := challenge.ProductGenerator(key)
		for _, i := range challenge.Draw(seed(), s.Tiles(), tiles) {
			if challenge.NewTile(&g, s, s.Place(int(i))).Hash() != got[i] {
				err = fmt.Errorf("%w: tile %d of seed %s", errDiffers, i, key)
			}
		}
	}
	t.result(fmt.Sprintf("%d tiles of %s", tiles, s), err)
}

// kernels measures the kernels of a product one by one.
func (t *tester) kernels() {
	n := uint64(t.plan.side)
	times := t.plan.times
	blocks, tiles := n/ptx.BlockSide, n/challenge.TileSide
	var at [4]uint64 // A, B, C and hashes
	defer func() {
		for _, p := range at {
			if p != 0 {
				t.result("freeing", t.gpu.Free(p))
			}
		}
	}()
	for i, size := range []uint64{n * n, n * n, 4 * n * n, tiles * tiles * sign.HashSize} {
		var err error
		if at[i], err = t.gpu.Alloc(size); err != nil {
			t.result("measuring kernels", err)
			return
		}
	}
	lines := func(to uint64) []uint64 {
		return append(append([]uint64{to}, make([]uint64, 8)...), 0, 0, n/challenge.BlockSize, n*n/challenge.BlockSize)
	}
	for _, k := range []struct {
		kernel ptx.Kernel
		blocks uint64
		args   []uint64
		amount float64
		unit   string
	}{
		{ptx.Rows, (n*n/challenge.BlockSize + 255) / 256, lines(at[0]), float64(n*n) / 1e9, "GB"},
		{ptx.Rows, (n*n/challenge.BlockSize + 255) / 256, lines(at[1]), float64(n*n) / 1e9, "GB"},
		{ptx.Gemm, blocks * blocks, []uint64{at[0], at[1], at[2], n, blocks, blocks},
			2 * float64(n*n*n) / 1e12, "10¹² operations"},
		{ptx.Tiles, (tiles*tiles + ptx.BlockTiles - 1) / ptx.BlockTiles,
			[]uint64{at[2], at[3], n, tiles, tiles * tiles}, float64(tiles*tiles) / 1e6, "10⁶ tiles"},
	} {
		run := func(times int) func() error {
			return func() error {
				for range times {
					if err := t.gpu.Launch(k.kernel, int(k.blocks), k.args...); err != nil {
						return err
					}
				}
				return t.gpu.Wait()
			}
		}
		t.time(run(1)) // the clocks rise
		t.rate(fmt.Sprintf("kernel %s, %d times, side %d", k.kernel.Name, times, n),
			float64(times)*k.amount, k.unit, t.time(run(times)))
	}
}

// rates measures whole challenges, as an audit times them: generators, products and hashes together.
func (t *tester) rates() {
	s := t.plan.audit
	took := t.time(func() error { return t.commit(s) })
	s.Products = uint32(min(max(t.plan.aim/max(took, time.Millisecond), 1), 64))
	took = t.time(func() error { return t.commit(s) })
	t.rate("products and their tree "+s.String(), float64(s.Operations())/1e12, "10¹² operations", took)
	free, _, err := t.engine.Memory()
	if err != nil {
		t.result("measuring", err)
		return
	}
	w := t.plan.walk
	if w.Cells = (free - min(free, t.plan.spare)) / challenge.CellSize; w.Cells == 0 {
		return
	}
	of := device.Of(seed(), w)
	took = t.time(func() error { return t.engine.Fill(t.ctx, of, 0) })
	t.rate(fmt.Sprintf("fill of %d MiB, work %d", w.Bytes()>>20, w.Work), float64(w.Bytes())/1e9, "GB", took)
	took = t.spread(of, w)
	t.rate(w.String(), float64(w.Reads())/1e9, "10⁹ reads", took)
	t.result("evict", t.engine.Evict())
}

// commit computes products and builds the tree over their tiles meanwhile, as an audit does.
func (t *tester) commit(s challenge.Shape) error {
	c, err := challenge.NewCommitter(s, device.Split)
	if err != nil {
		return err
	}
	add := func(hashes []byte) error { return c.Add(wire.Hashes(hashes)) }
	if err := t.engine.Multiply(t.ctx, seed(), s, add); err != nil {
		return err
	}
	_, err = c.Commit()
	return err
}

// time is how long something takes.
func (t *tester) time(f func() error) time.Duration {
	begin := time.Now()
	if err := f(); err != nil {
		t.result("measuring", err)
	}
	return time.Since(begin)
}

func (t *tester) rate(what string, amount float64, unit string, took time.Duration) {
	if t.err == nil {
		fmt.Fprintf(t.out, "measured %s: %.3f s, %.2f %s/s\n", what, took.Seconds(), amount/took.Seconds(), unit)
	}
}
