package hooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/challenge"
)

// probeRest is how long after a probe of an execution the next may begin: preparing a probe takes a process that no
// lease pays for.
const probeRest = time.Second

// probeTime bounds one probe: its sandbox may have little of a processor.
const probeTime = 30 * time.Second

// Accept accepts a stream; refusals must come before.
type Accept = func(*nodepb.LiveReply) (*stream.Conn, error)

// Probes lets a buyer measure the hardware of a running program, one probe after the other. Answers are signed in the
// name of this peer.
type Probes struct {
	Domain sign.Domain
	Key    sign.Signer
	Log    *slog.Logger
}

var (
	_ executor.Poststart = Probes{}
	_ executor.Recovery  = Probes{}
)

// gate is an execution's state of probes.
type gate struct {
	mu    sync.Mutex
	busy  bool
	ended time.Time // the last one
}

type gateKey struct{}

// Poststart lets probes begin.
func (Probes) Poststart(_ context.Context, e *executor.Execution) error {
	e.SetValue(gateKey{}, &gate{})
	return nil
}

// Recover lets probes begin.
func (Probes) Recover(e *executor.Execution) { e.SetValue(gateKey{}, &gate{}) }

// Serve answers a buyer's measurement of its execution's hardware.
func (s Probes) Serve(
	ctx context.Context, buyer sign.Key, e *executor.Execution, h runtime.Handle, take Accept,
) error {
	rt, ok := e.Runtime().(runtime.Gauger)
	if !ok {
		return stream.Refuse("runtime",
			fmt.Sprintf("the %s runtime cannot compute in a program's place", e.Work.Runtime))
	}
	done, err := s.begin(e)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	g, err := rt.Gauge(ctx, h)
	switch {
	case errors.Is(err, device.ErrMemory):
		return stream.Refuse(exclusive.CodeMemory, err.Error())
	case errors.Is(err, runtime.ErrDevice):
		return stream.Refuse("device", err.Error())
	case err != nil:
		s.Log.Debug("a probe could not be prepared", "lease", e.Lease, "err", err)
		return stream.Refuse(stream.CodeBusy, "the program that computes a probe could not be started")
	}
	defer g.Close()
	conn, err := take(&nodepb.LiveReply{Gauge: uint32(exclusive.KindOf(g)), Devices: uint32(g.Devices())})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, conn.Abort)()
	prover := exclusive.Seller{
		Domain: s.Domain, Key: s.Key, Buyer: buyer, Lease: e.Lease, Execution: e.Seq,
		Gauge: unpaused{g, e},
	}
	if err := prover.Serve(ctx, conn); err != nil {
		s.Log.Info("a probe of a buyer was not answered", "lease", e.Lease, "err", err)
		return err
	}
	return nil
}

// begin lets one probe begin, or refuses it for its buyer; done must be called.
func (Probes) begin(e *executor.Execution) (done func(), err error) {
	if e.Paused() {
		return nil, stream.Refuse("paused", "the job is paused; resume it first")
	}
	g, ok := e.Value(gateKey{}).(*gate)
	if !ok {
		return nil, stream.Refuse(stream.CodeBusy, "the program is not running yet")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.busy || time.Since(g.ended) < probeRest {
		return nil, stream.Refuse(stream.CodeBusy, "one probe after the other, with a rest between")
	}
	g.busy = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.busy, g.ended = false, time.Now()
	}, nil
}

// unpaused is a gauge that computes only while the program is neither paused nor resumed.
type unpaused struct {
	runtime.Gauge
	execution *executor.Execution
}

var errPaused = errors.New("the execution is paused")

// Multiply computes, unless the program is paused.
func (u unpaused) Multiply(
	ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error,
) error {
	give, err := u.execution.Take(ctx)
	if err != nil {
		return err
	}
	defer give()
	if u.execution.Paused() {
		return errPaused
	}
	return u.Gauge.Multiply(ctx, seeds, s, each)
}
