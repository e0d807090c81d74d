package engine_test

import (
	"fmt"
	"testing"

	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// ledger is a GPU that only keeps account of its memory.
type ledger struct {
	total, used uint64
	sizes       map[uint64]uint64
	widest      int // blocks of one multiplication
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

func (l *ledger) Launch(k ptx.Kernel, blocks int, _ ...uint64) error {
	if k.Name == ptx.Gemm.Name {
		l.widest = max(l.widest, blocks)
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
			_, err := e.Multiply(t.Context(), seed(2), shape)
			return g, err
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
