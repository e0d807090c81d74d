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
	// maxStill is the longest time that a program is stopped until its buyer's request, and again while its GPUs
	// compute.
	maxStill = 3 * time.Second
)

// openGPU opens a GPU of NVIDIA's.
func openGPU(ctx context.Context, uuid string) (device.Device, error) {
	return cuda.Open(ctx, cuda.Config{UUID: uuid, Reserve: gauge.GPUReserve})
}

// gaugeGPUs prepares the execution's GPUs in helper processes outside the container: an image need not have the files
// of the driver's library. The guard stops the program before this returns, since a GPU finishes its queued work first.
// The program resumes after the first products, on Close, or after maxStill.
func (g *Gauges) gaugeGPUs(ctx context.Context, e Execution) (runtime.Gauge, error) {
	if len(e.UUIDs) != e.GPUs {
		return nil, fmt.Errorf("%w: state of the execution: no GPU UUIDs", runtime.ErrDevice)
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
	timer *time.Timer // resumes the program; nil if it runs
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

// goOn resumes the program, once, and reports whether it was stopped until now.
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
var ErrLate = fmt.Errorf("probe: request came more than %v after the stop of the program, which was resumed", maxStill)

// Multiply computes and resumes the program.
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

// Close resumes the program and closes the devices.
func (g *gpuGauge) Close() error {
	g.goOn()
	return g.GPUs.Close()
}
