package helper

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/device/cuda/cudatest"
	"github.com/starling-network/starling/node/device/cuda/engine"
	"github.com/starling-network/starling/node/device/cuda/ptx"
	"github.com/starling-network/starling/node/device/cuda/wire"
	"github.com/starling-network/starling/verify/challenge"
)

// All that the full test does, on a simulated GPU and in small; and each of its parts says it when the GPU fails.
func TestSelfTest(t *testing.T) {
	t.Parallel()
	p := plan{
		shapes: []challenge.Shape{{Rows: 64, Columns: 64, Depth: 64, Products: 1}},
		walks:  []challenge.Walk{{Cells: 500, Work: 3, Walkers: 30, Steps: 7}},
		audit:  challenge.Shape{Rows: 64, Columns: 128, Depth: 128, Products: 1},
		side:   128,
		times:  1,
		walk:   challenge.Walk{Work: 1, Walkers: 20, Steps: 5},
		spare:  1<<20 - 64<<10,
		aim:    time.Nanosecond,
	}
	run := func(broken string, after int) (string, error) {
		var out strings.Builder
		err := selfTest(&out, func() (engine.GPU, wire.Description, error) {
			g, err := cudatest.New(86, 1<<20)
			if err != nil {
				return nil, wire.Description{}, err
			}
			g.Launched = func(k ptx.Kernel) error {
				if k.Name == broken {
					if after--; after < 0 {
						return errors.New("broken")
					}
				}
				return nil
			}
			return g, wire.Description{Name: "Simulated", Capability: 86, Driver: 12040}, nil
		}, p)
		return out.String(), err
	}
	out, err := run("", 0)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		"Simulated, compute capability 8.6, driver of CUDA 12.4, 1 of 1 MiB free",
		"same     products 1 × 64×64×64\n", "same     30 walkers of 7 steps over 500 cells of work 3\n", "same     2 tiles of 1 × 64×128×128\n",
		"measured kernel rows", "measured kernel gemm", "measured kernel tiles", "measured products and their tree 1 × 64×128×128", "measured fill of 0 MiB, work 1",
		"same     1 groups of 20 walkers of 5 steps over 2048 cells of work 1\n",
		"measured 20 walkers of 5 steps over 2048 cells of work 1", "same     evict\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, c := range []struct {
		kernel string
		after  int
	}{{"gemm", 0}, {"tiles", 2}, {"fill", 1}, {"walk", 1}} {
		if out, err := run(c.kernel, c.after); err == nil || !strings.Contains(out, "FAILED ") {
			t.Errorf("%s broke after %d launches: %v\n%s", c.kernel, c.after, err, out)
		}
	}
}
