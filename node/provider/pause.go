package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
)

// setPaused freezes or continues an execution. It is journalled first: after a crash in between, the next process
// follows the journal. Its units stay held and metered while it is frozen.
func (x *executor) setPaused(ctx context.Context, e *execution, paused bool) error {
	e.pausing.Lock()
	defer e.pausing.Unlock()
	s, h, _ := e.snapshot()
	switch {
	case s.State.Ended():
		return stream.Refuse("execution", "the execution has ended")
	case h == nil:
		return stream.Refuse(stream.CodeBusy, "the program is not running yet; ask again when it does")
	case s.Paused == paused:
		return nil
	}
	p, ok := x.runtimes[e.work.Runtime].(runtime.Pauser)
	if !ok {
		return stream.Refuse("runtime", fmt.Sprintf("the %s runtime cannot pause a program", e.work.Runtime))
	}
	if err := x.notePaused(ctx, e, paused); err != nil {
		return err
	}
	if err := freeze(ctx, p, *h, paused); err != nil {
		if noted := x.notePaused(ctx, e, !paused); noted != nil {
			x.log.Error("a pause that failed is still in the journal", "lease", e.rec.Lease, "err", noted)
		}
		if errors.Is(err, runtime.ErrEngine) {
			x.log.Warn("an execution cannot be paused or resumed", "lease", e.rec.Lease, "err", err)
			return stream.Refuse("engine", noEngine+"; ask again later")
		}
		return fmt.Errorf("pausing or resuming: %w", err)
	}
	x.log.Info("execution was paused or resumed", "lease", e.rec.Lease, "seq", s.Seq, "paused", paused)
	return nil
}

func (x *executor) notePaused(ctx context.Context, e *execution, paused bool) error {
	e.mu.Lock()
	before := e.state.Paused
	e.state.Paused = paused && !e.state.State.Ended()
	e.mu.Unlock()
	if err := x.persist(ctx, e); err != nil {
		e.mu.Lock()
		e.state.Paused = before
		e.mu.Unlock()
		return err
	}
	e.changed()
	return nil
}

func freeze(ctx context.Context, p runtime.Pauser, h runtime.Handle, paused bool) error {
	if paused {
		return p.Pause(ctx, h)
	}
	return p.Resume(ctx, h)
}

// freezeAgain brings an execution of an earlier process to the journal's state.
func (x *executor) freezeAgain(e *execution, rt runtime.Runtime) {
	p, ok := rt.(runtime.Pauser)
	if !ok {
		return
	}
	e.pausing.Lock()
	defer e.pausing.Unlock()
	s, h, _ := e.snapshot()
	if s.State != nodepb.ExecState_EXEC_STATE_RUNNING || h == nil {
		return
	}
	if err := freeze(x.ctx, p, *h, s.Paused); err != nil && x.ctx.Err() == nil {
		x.log.Warn("an execution cannot be brought to where it was", "lease", e.rec.Lease, "paused", s.Paused, "err", err)
	}
}
