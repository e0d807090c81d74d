package gauges

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/device/cuda"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/link"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/verify/challenge"
)

const (
	// maxStill is how long a program stands still at most until its buyer asks, and again while its GPUs compute.
	maxStill = 3 * time.Second
)

// openGPU opens a GPU of NVIDIA's.
func openGPU(ctx context.Context, uuid string) (device.Device, error) {
	return cuda.Open(ctx, cuda.Config{UUID: uuid, Reserve: gauge.GPUReserve})
}

// gaugeGPUs readies the execution's own GPUs, in helpers of this machine outside the container: an image need not have
// the files that the driver's library needs. The guard stops the program before this returns, since a GPU finishes its
// queued work first. The program goes on after the first products, when the Gauge is closed, or by itself.
func (g *Gauges) gaugeGPUs(ctx context.Context, e Execution) (runtime.Gauge, error) {
	if len(e.UUIDs) != e.GPUs {
		return nil, fmt.Errorf("%w: which GPUs it has was not written down when it began", runtime.ErrDevice)
	}
	gpus, err := gauge.OpenGPUs(ctx, e.UUIDs, g.open)
	switch {
	case errors.Is(err, cuda.ErrNoHelper) || errors.Is(err, cuda.ErrNoLibrary) ||
		errors.Is(err, cuda.ErrUUID) || errors.Is(err, gauge.ErrAnswer):
		return nil, fmt.Errorf("%w: %w", runtime.ErrDevice, err)
	case err != nil:
		return nil, err
	}
	still := &gpuGauge{GPUs: gpus, line: e.Line, fastest: &g.fastest}
	if err := still.still(ctx); err != nil {
		return nil, errors.Join(err, still.Close())
	}
	return still, nil
}

// gpuGauge is the GPUs of a container with a stopped program.
type gpuGauge struct {
	*gauge.GPUs
	line    *link.Line
	fastest *gauge.Fastest

	mu    sync.Mutex
	timer *time.Timer // lets it go on; nil: it goes
}

// still stops the program and waits until the GPUs have nothing of it left to do.
func (g *gpuGauge) still(ctx context.Context) error {
	answers, _, end, err := g.line.Begin(guard.Request{Op: guard.OpStill})
	if err != nil {
		return err
	}
	defer end()
	g.mu.Lock()
	g.timer = time.AfterFunc(maxStill, func() { g.goOn() })
	g.mu.Unlock()
	if _, err := g.line.Next(ctx, answers); err != nil {
		return fmt.Errorf("stopping the program for a moment: %w", err)
	}
	sctx, cancel := context.WithTimeout(ctx, maxStill)
	defer cancel()
	return g.Settle(sctx, g.fastest)
}

// goOn lets the program go on, once, and reports whether it stood still until now.
func (g *gpuGauge) goOn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil {
		return false
	}
	g.timer.Stop()
	g.timer = nil
	g.line.Send(guard.Request{Op: guard.OpGoOn})
	return true
}

// ErrLate reports that a program went on before a question came.
var ErrLate = fmt.Errorf("the question came more than %v after the program was stopped, which goes on", maxStill)

// Multiply computes and lets the program go on.
func (g *gpuGauge) Multiply(
	ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error,
) error {
	g.mu.Lock()
	stands := g.timer != nil && g.timer.Reset(maxStill)
	g.mu.Unlock()
	if !stands {
		return ErrLate
	}
	ctx, cancel := context.WithTimeout(ctx, maxStill)
	defer cancel()
	err := g.GPUs.Multiply(ctx, seeds, s, each)
	if !g.goOn() && err == nil {
		err = ErrLate
	}
	return err
}

// Close lets the program go on and closes the devices.
func (g *gpuGauge) Close() error {
	g.goOn()
	return g.GPUs.Close()
}
