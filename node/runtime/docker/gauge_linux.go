package docker

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/verify/challenge"
)

// Gauge attaches the guard's own binary as one more program, under the container's limits: as many threads as its quota has
// processors. While it computes, the guard keeps the others stopped. An execution that has GPUs is gauged by those: see gaugeGPUs.
func (r *Runtime) Gauge(ctx context.Context, h runtime.Handle) (runtime.Gauge, error) {
	e, err := r.find(h)
	if err != nil {
		return nil, err
	}
	if e.ended() {
		return nil, runtime.ErrEnded
	}
	if e.state.GPUs > 0 {
		return r.gaugeGPUs(ctx, e)
	}
	// The computing program lives as long as the Gauge, not as the context of its start.
	life, end := context.WithCancel(context.Background())
	in, ask := io.Pipe()
	answer, out := io.Pipe()
	g := &attachedGauge{e: e, end: end, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		_, err := r.attach(life, e, runtime.Process{Args: []string{guard.Path, gauge.Subcommand, "0"}, WorkDir: "/", Stdin: in, Stdout: out}, true)
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
	e    *execution
	end  context.CancelFunc
	done chan struct{}
}

// Multiply has the guard stop everything else, computes, and has it go on.
func (g *attachedGauge) Multiply(ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error) error {
	return runtime.One(seeds, each, func(seed sign.Hash) ([]sign.Hash, error) { return g.multiply(ctx, seed, s) })
}

func (g *attachedGauge) multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) (tiles []sign.Hash, err error) {
	stop := context.AfterFunc(ctx, g.end)
	defer stop()
	answers, _, end, err := g.e.begin(guard.Request{Op: guard.OpStill})
	if err != nil {
		return nil, err
	}
	defer end()
	defer g.e.send(guard.Request{Op: guard.OpGoOn})
	if _, err := g.e.next(ctx, answers); err != nil {
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
