package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/device"
	"github.com/starling-network/starling/node/exclusive"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/challenge"
)

const (
	// probeTime bounds one probe: its sandbox may have little of a processor.
	probeTime = 30 * time.Second
	// probeRest is how long after a probe of an execution the next may begin: readying one takes a process that no lease pays for.
	probeRest = time.Second
)

// gauged is an execution's state of its buyer's probes; under mu.
type gauged struct {
	probing bool
	probed  time.Time // the last ended
}

// mayProbe lets one probe at a time in; done must be called.
func (e *execution) mayProbe(now time.Time) (done func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.state.Paused:
		return nil, stream.Refuse("paused", "the job is paused; resume it first")
	case e.probing || now.Sub(e.probed) < probeRest:
		return nil, stream.Refuse(stream.CodeBusy, "one probe after the other, with a rest between")
	}
	e.probing = true
	return func() {
		e.mu.Lock()
		e.probing, e.probed = false, time.Now()
		e.mu.Unlock()
	}, nil
}

// seq is the execution's number under its lease.
func (e *execution) seq() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state.Seq
}

// probe answers a buyer's measurement of its execution's hardware.
func (p *Provider) probe(ctx context.Context, from peer.ID, lease []byte, e *execution, h runtime.Handle, take accept) error {
	r, err := p.record(from, lease)
	if err != nil {
		return err
	}
	if p.simulated(r.Units) {
		return stream.Refuse("device", "its devices are simulated, and nothing computes")
	}
	rt, ok := p.exec.runtimes[e.work.Runtime].(runtime.Gauger)
	if !ok {
		return stream.Refuse("runtime", fmt.Sprintf("the %s runtime cannot compute in a program's place", e.work.Runtime))
	}
	done, err := e.mayProbe(time.Now())
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
		p.cfg.Log.Debug("a probe could not be readied", "lease", e.rec.Lease, "err", err)
		return stream.Refuse(stream.CodeBusy, "what computes a probe could not be started")
	}
	defer g.Close()
	conn, err := take(&nodepb.LiveReply{Gauge: uint32(g.Kind()), Devices: uint32(g.Devices())})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, conn.Abort)()
	s := exclusive.Seller{Domain: p.domain, Key: p.cfg.Key, Buyer: r.Core.Buyer, Lease: e.rec.Lease, Execution: e.seq(), Gauge: unpaused{g, e}}
	if err := s.Serve(ctx, conn); err != nil {
		p.cfg.Log.Info("a probe of a buyer was not answered", "lease", e.rec.Lease, "err", err)
		return err
	}
	return nil
}

// simulated reports whether any of a lease's units is no hardware at all.
func (p *Provider) simulated(units []market.UnitID) bool {
	return slices.ContainsFunc(p.cfg.Lots, func(l Lot) bool {
		return l.Simulated && slices.ContainsFunc(l.Units, func(u market.Unit) bool { return slices.Contains(units, u.ID) })
	})
}

// unpaused computes while nobody pauses or resumes the execution for its user.
type unpaused struct {
	runtime.Gauge
	e *execution
}

var errPaused = errors.New("the execution is paused")

// Multiply computes, unless the user has paused the program.
func (u unpaused) Multiply(ctx context.Context, seeds []sign.Hash, s challenge.Shape, each func(int, []sign.Hash) error) error {
	u.e.pausing.Lock()
	defer u.e.pausing.Unlock()
	if u.e.paused() {
		return errPaused
	}
	return u.Gauge.Multiply(ctx, seeds, s, each)
}
