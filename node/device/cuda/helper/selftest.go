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
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/challenge"
)

// errDiffers says that a GPU computes something else than the processor.
var errDiffers = errors.New("the GPU differs from the processor")

// small are the shapes that are compared whole in every test: sides that blocks divide and that they do not, one depth and several.
var small = []challenge.Shape{
	{Rows: 64, Columns: 64, Depth: 64, Products: 1},
	{Rows: 64, Columns: 192, Depth: 128, Products: 2},
	{Rows: 192, Columns: 128, Depth: 320, Products: 1},
}

// large are compared whole on real hardware.
var large = []challenge.Shape{
	{Rows: 128, Columns: 128, Depth: 32768, Products: 3},
	{Rows: 1088, Columns: 1216, Depth: 512, Products: 2},
	{Rows: 2048, Columns: 2048, Depth: 4096, Products: 1},
	{Rows: 8192, Columns: 64, Depth: 1024, Products: 1},
	{Rows: 64, Columns: 8192, Depth: 1024, Products: 1},
}

// audit is as large as real challenges are; of it some tiles are compared.
var audit = challenge.Shape{Rows: 8192, Columns: 8192, Depth: 32768, Products: 1}

// tester compares and measures one GPU.
type tester struct {
	ctx    context.Context
	out    io.Writer
	engine *engine.Engine
	cpu    *cpu.Device
	err    error // that of what failed first
}

// selfTest opens the GPU, says what it is, and compares and measures it.
func selfTest(out io.Writer, open func() (engine.GPU, wire.Description, error), quick bool) error {
	gpu, about, err := open()
	if err != nil {
		return err
	}
	t := &tester{ctx: context.Background(), out: out, engine: engine.New(gpu), cpu: cpu.New(cpu.Config{Memory: 1 << 30})}
	free, total, err := t.engine.Memory()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, compute capability %d.%d, driver of CUDA %d.%d, %d of %d MiB free; compared with %d threads of the processor\n",
		about.Name, about.Capability/10, about.Capability%10, about.Driver/1000, about.Driver%1000/10, free>>20, total>>20, runtime.GOMAXPROCS(0))
	shapes := small
	walks := []challenge.Walk{{Cells: 1, Work: 1, Walkers: 1, Steps: 1}, {Cells: 5000, Work: 3, Walkers: 300, Steps: 17}}
	if !quick {
		shapes = append(slices.Clone(small), large...)
		walks = append(walks, challenge.Walk{Cells: 1<<22 + 12345, Work: 64, Walkers: 1 << 16, Steps: 64}, challenge.Walk{Cells: 1 << 24, Work: 1, Walkers: 1 << 20, Steps: 100})
	}
	for _, s := range shapes {
		t.product(s)
	}
	for _, w := range walks {
		t.walk(w)
	}
	if !quick && t.err == nil {
		t.sample(audit)
		t.rates(free)
	}
	return t.err
}

// seed is one that no run had before.
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

// product compares all tiles of a shape.
func (t *tester) product(s challenge.Shape) {
	key := seed()
	got, err := t.engine.Multiply(t.ctx, key, s)
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
		var got, want []uint64
		if got, err = t.engine.Walk(t.ctx, key, of, w); err == nil {
			want, err = t.cpu.Walk(t.ctx, key, of, w)
		}
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("%w: dataset %s, key %x", errDiffers, of.Seed, key)
		}
	}
	t.result(w.String(), errors.Join(err, t.engine.Evict()))
}

// sample compares some tiles of a large shape with those that the definition gives.
func (t *tester) sample(s challenge.Shape) {
	const tiles = 32
	key := seed()
	got, err := t.engine.Multiply(t.ctx, key, s)
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

// rates measures whole challenges, as an audit times them: generators, products and hashes together.
func (t *tester) rates(free uint64) {
	const aim = 3 * time.Second
	s := audit
	took := t.time(func() error { _, err := t.engine.Multiply(t.ctx, seed(), s); return err })
	s.Products = uint32(min(max(aim/max(took, time.Millisecond), 1), 64))
	took = t.time(func() error { _, err := t.engine.Multiply(t.ctx, seed(), s); return err })
	t.rate("products "+s.String(), float64(s.Operations())/1e12, "10¹² operations", took)
	const spare = 1 << 30
	w := challenge.Walk{Cells: (free - min(free, spare)) / challenge.CellSize, Work: 64, Walkers: 1 << 20, Steps: 256}
	if w.Cells == 0 {
		return
	}
	of := device.Of(seed(), w)
	took = t.time(func() error { return t.engine.Fill(t.ctx, of, 0) })
	t.rate(fmt.Sprintf("fill of %d MiB, work %d", w.Bytes()>>20, w.Work), float64(w.Bytes())/1e9, "GB", took)
	took = t.time(func() error { _, err := t.engine.Walk(t.ctx, challenge.WalkKey(seed()), of, w); return err })
	t.rate(w.String(), float64(w.Reads())/1e9, "10⁹ reads", took)
	t.result("evict", t.engine.Evict())
}

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
