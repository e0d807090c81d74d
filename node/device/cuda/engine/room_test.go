package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// ledger is a GPU that only keeps account of its memory.
type ledger struct {
	total, used uint64
	sizes       map[uint64]uint64
	widest      int // blocks of one multiplication
	walks       [][]uint64
}

func (l *ledger) Memory() (free, total uint64, err error) { return l.total - l.used, l.total, nil }

func (l *ledger) Alloc(size uint64) (uint64, error) {
	if size > l.total-l.used {
		return 0, fmt.Errorf("%w: %d bytes", device.ErrMemory, size)
	}
	at := uint64(len(l.sizes)+1) << 40
	l.sizes[at] = size
	l.used += size
	return at, nil
}

func (l *ledger) Free(at uint64) error {
	l.used -= l.sizes[at]
	delete(l.sizes, at)
	return nil
}

func (l *ledger) Launch(k ptx.Kernel, blocks int, args ...uint64) error {
	if k.Name == ptx.Gemm.Name {
		l.widest = max(l.widest, blocks)
	}
	if k.Name == ptx.Walk.Name {
		l.walks = append(l.walks, slices.Clone(args))
	}
	return nil
}

func (l *ledger) Wait() error               { return nil }
func (l *ledger) Read([]byte, uint64) error { return nil }

// An audit of each class fits beside a desktop: what NVML counts and CUDA does not give is a 64th here, a context 512 MiB, and the
// other program has a 32nd of the card. The dataset lies there whole, and products have their widest band beside it.
func TestAnAuditFitsBesideADesktop(t *testing.T) {
	t.Parallel()
	for _, c := range sim.GPUs {
		shape, walk, err := audit.Plan(c.Market, c.Resources)
		if err != nil {
			t.Fatal(err)
		}
		run := func(total, other uint64) (*ledger, error) {
			g := &ledger{total: total, used: other, sizes: map[uint64]uint64{}}
			e := engine.New(g)
			if err := e.Fill(t.Context(), device.Of(seed(1), walk), 0); err != nil {
				return g, fmt.Errorf("dataset: %w", err)
			}
			return g, e.Multiply(t.Context(), seed(2), shape, func([]byte) error { return nil })
		}
		alone, err := run(1<<40, 0)
		if err != nil {
			t.Fatal(err)
		}
		vram := uint64(c.Resources.VRAMMiB) << 20
		beside, err := run(vram-vram/64, vram/32+512<<20)
		if err != nil || beside.widest != alone.widest {
			t.Errorf("%s: bands of %d blocks, %d where there is room, %v", c.Name, beside.widest, alone.widest, err)
		}
		if _, err := run(vram-vram/64, vram/8+512<<20); err == nil {
			t.Errorf("%s: another program has an eighth of it, and all is proven", c.Name)
		}
	}
}

// A walk over more than 64 GiB goes through its stretches in turn, all walkers together, each as far as the definition says.
func TestWalkOverStretches(t *testing.T) {
	t.Parallel()
	g := &ledger{total: 1 << 50, sizes: map[uint64]uint64{}}
	e := engine.New(g)
	w := challenge.Walk{Cells: 2*challenge.Stretch + 12345, Work: 64, Walkers: 1 << 20, Steps: 256}
	of := device.Of(seed(1), w)
	if err := e.Fill(t.Context(), of, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Walk(t.Context(), 7, of, w); err != nil {
		t.Fatal(err)
	}
	data := g.walks[0][0]
	step, begun := uint32(0), uint64(1)
	for j := range w.Stretches() {
		first, cells, _, to := w.Stretch(j)
		for step < to && len(g.walks) > 0 {
			a := g.walks[0]
			g.walks = g.walks[1:]
			if a[0] != data+first*challenge.CellSize || a[2] != 7 || a[3] != cells || a[4] != 0 || a[5] != uint64(w.Walkers) || a[7] != begun {
				t.Fatalf("step %d in stretch %d: %d", step, j, a)
			}
			step, begun = step+uint32(a[6]), 0
		}
		if step != to {
			t.Fatalf("stretch %d ends with step %d, want %d", j, step, to)
		}
	}
	if len(g.walks) != 0 {
		t.Errorf("%d launches are left", len(g.walks))
	}
}
