package wasm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/gauge"
	"github.com/starling-network/starling/node/runtime/wasm/confine"
	"github.com/starling-network/starling/node/runtime/wasm/process"
	"github.com/starling-network/starling/verify/challenge"
)

// GaugeSubcommand is the hidden command of the peer's binary that computes in the place of a guest: PROGRAM wasm-gauge
// MILLICPU.
const GaugeSubcommand = "wasm-gauge"

// gaugeMain is that process, with a guest's resources: one thread at nice 10 and the same share of a core. err is the
// reason why it could not be confined.
func gaugeMain(milliCPU string, err error) {
	goruntime.GOMAXPROCS(2)
	process.Yield()
	var m uint64
	if err == nil {
		m, err = strconv.ParseUint(milliCPU, 10, 32)
	}
	c := &child{}
	if err == nil {
		c.stopper, err = process.NewStopper()
	}
	if err == nil {
		c.limitTo(uint32(m))
		err = gauge.Serve(os.Stdin, os.Stdout, 1)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Gauge starts a process beside the child, under the same limits, since a guest in machine code can share its process
// with nothing. The child is stopped while it computes.
func (r *Runtime) Gauge(ctx context.Context, h runtime.Handle) (runtime.Gauge, error) {
	e, err := r.find(h)
	if err != nil {
		return nil, err
	}
	if e.ended() {
		return nil, runtime.ErrEnded
	}
	spec, err := readSpec(e.dir)
	if err != nil {
		return nil, fmt.Errorf("gauging: %w", err)
	}
	cmd := exec.Command(r.cfg.Command[0], GaugeSubcommand, strconv.FormatUint(uint64(spec.Spec.Limits.MilliCPU), 10))
	cmd.Env = []string{"GOMAXPROCS=2", confine.Box{}.Env()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals to the peer's terminal are not for it
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("gauging: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gauging: %w", err), in.Close())
	}
	g := &beside{r: r, h: h, cmd: cmd}
	stop := context.AfterFunc(ctx, g.kill)
	defer stop()
	if g.Client, err = gauge.NewClient(in, out); err != nil {
		return nil, errors.Join(ctx.Err(), err, g.Close())
	}
	return g, nil
}

// beside is the process that computes in a guest's place.
type beside struct {
	*gauge.Client
	r   *Runtime
	h   runtime.Handle
	cmd *exec.Cmd
}

func (g *beside) kill() {
	_ = g.cmd.Process.Kill()
}

// Multiply stops the child, computes, and resumes the child.
func (g *beside) Multiply(
	ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error,
) error {
	return runtime.One(seeds, each, func(seed sign.Hash) ([]sign.Hash, error) { return g.multiply(ctx, seed, s) })
}

func (g *beside) multiply(ctx context.Context, seed sign.Hash, s challenge.Shape) (tiles []sign.Hash, err error) {
	stop := context.AfterFunc(ctx, g.kill)
	defer stop()
	if err := g.r.Pause(ctx, g.h); err != nil {
		return nil, err
	}
	tiles, err = g.Client.Multiply(seed, s)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if again := g.r.Resume(context.WithoutCancel(ctx), g.h); again != nil && !errors.Is(again, runtime.ErrEnded) {
		err = errors.Join(err, again)
	}
	return tiles, err
}

// Close ends the process.
func (g *beside) Close() error {
	g.kill()
	_ = g.cmd.Wait() // it was killed
	return nil
}
