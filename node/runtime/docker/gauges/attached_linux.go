package gauges

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/attached"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/link"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/verify/challenge"
)

// Gauges makes the gauges of a machine's executions.
type Gauges struct {
	open    func(ctx context.Context, uuid string) (device.Device, error)
	fastest gauge.Fastest // of GPUs that were gauged
}

// New returns the gauges of a machine. open opens a device by its UUID; if nil, NVIDIA's.
func New(open func(ctx context.Context, uuid string) (device.Device, error)) *Gauges {
	if open == nil {
		open = openGPU
	}
	return &Gauges{open: open}
}

// Execution is an execution to gauge.
type Execution struct {
	Line  *link.Line      // to its guard
	Over  <-chan struct{} // closed when it has ended
	GPUs  int
	UUIDs []string // of the GPUs
}

func (e Execution) ended() bool {
	select {
	case <-e.Over:
		return true
	default:
		return false
	}
}

// Gauge attaches the guard's own binary as a further program under the container's limits, with one thread per
// processor of its quota. While it computes, the guard keeps all other processes stopped. An execution with GPUs is
// gauged on them: see gaugeGPUs. It returns runtime.ErrEnded if the execution has ended.
func (g *Gauges) Gauge(ctx context.Context, e Execution) (runtime.Gauge, error) {
	if e.ended() {
		return nil, runtime.ErrEnded
	}
	if e.GPUs > 0 {
		return g.gaugeGPUs(ctx, e)
	}
	return attach(ctx, e)
}

func attach(ctx context.Context, e Execution) (runtime.Gauge, error) {
	// The computing program ends with the Gauge, not with the context of its start.
	life, end := context.WithCancel(context.Background())
	in, ask := io.Pipe()
	answer, out := io.Pipe()
	var err error
	g := &attachedGauge{line: e.Line, end: end, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		computing := runtime.Process{
			Args: []string{guard.Path, gauge.Subcommand, "0"}, WorkDir: "/", Stdin: in, Stdout: out,
		}
		_, err := attached.Run(life, e.Line, computing, true)
		if err == nil {
			err = io.EOF
		}
		_ = in.CloseWithError(err)
		_ = out.CloseWithError(err)
	}()
	stop := context.AfterFunc(ctx, end)
	defer stop()
	if g.Client, err = gauge.NewClient(ask, answer); err != nil {
		_ = g.Close()
		if e.ended() {
			err = runtime.ErrEnded
		}
		return nil, errors.Join(ctx.Err(), err)
	}
	return g, nil
}

// attachedGauge is a gauge among the processes of a container.
type attachedGauge struct {
	*gauge.Client
	line *link.Line
	end  context.CancelFunc
	done chan struct{}
}

// Multiply stops all other processes, computes, and resumes them.
func (g *attachedGauge) Multiply(
	ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error,
) error {
	one := func(seed sign.Hash) ([]sign.Hash, error) { return g.multiply(ctx, seed, s) }
	return runtime.One(seeds, each, one)
}

func (g *attachedGauge) multiply(
	ctx context.Context, seed sign.Hash, s challenge.Shape,
) (tiles []sign.Hash, err error) {
	stop := context.AfterFunc(ctx, g.end)
	defer stop()
	answers, _, end, err := g.line.Begin(guard.Request{Op: guard.OpStill})
	if err != nil {
		return nil, err
	}
	defer end()
	defer g.line.Send(guard.Request{Op: guard.OpGoOn})
	if _, err := g.line.Next(ctx, answers); err != nil {
		return nil, fmt.Errorf("stopping the program for a moment: %w", err)
	}
	if tiles, err = g.Client.Multiply(seed, s); err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return tiles, err
}

// Close ends the process.
func (g *attachedGauge) Close() error {
	g.end()
	<-g.done
	return nil
}
