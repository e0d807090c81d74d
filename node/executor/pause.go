package executor

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p/stream"
)

// SetPaused freezes or continues an execution. It is journalled first: after a crash in between, the next process
// follows the journal. The units stay held and metered while the program is frozen.
func SetPaused(ctx context.Context, e *Execution, paused bool) error {
	give, err := e.Take(ctx)
	if err != nil {
		return err
	}
	defer give()
	s, h, _ := e.Snapshot()
	switch {
	case s.State.Ended():
		return stream.Refuse("execution", "the execution has ended")
	case h == nil:
		return stream.Refuse(stream.CodeBusy, "the program is not running yet; retry when it runs")
	case s.Paused == paused:
		return nil
	}
	p, ok := e.Runtime().(runtime.Pauser)
	if !ok {
		return stream.Refuse("runtime", fmt.Sprintf("the %s runtime cannot pause a program", e.Work.Runtime))
	}
	if err := notePaused(ctx, e, paused); err != nil {
		return err
	}
	if err := Freeze(ctx, p, *h, paused); err != nil {
		if noted := notePaused(ctx, e, !paused); noted != nil {
			e.x.cfg.Log.Error("a pause that failed is still in the journal", "lease", e.Lease, "err", noted)
		}
		if errors.Is(err, runtime.ErrEngine) {
			e.x.cfg.Log.Warn("an execution cannot be paused or resumed", "lease", e.Lease, "err", err)
			return stream.Refuse("engine", NoEngine+"; try again later")
		}
		return fmt.Errorf("pausing or resuming: %w", err)
	}
	e.x.cfg.Log.Info("execution was paused or resumed", "lease", e.Lease, "seq", s.Seq, "paused", paused)
	return nil
}

func notePaused(ctx context.Context, e *Execution, paused bool) error {
	var before bool
	e.Update(func(s *nodepb.Execution) {
		before = s.Paused
		s.Paused = paused && !s.State.Ended()
	})
	if err := e.Persist(ctx); err != nil {
		e.Update(func(s *nodepb.Execution) { s.Paused = before })
		return err
	}
	e.Changed()
	return nil
}

// Freeze pauses or resumes a program.
func Freeze(ctx context.Context, p runtime.Pauser, h runtime.Handle, paused bool) error {
	if paused {
		return p.Pause(ctx, h)
	}
	return p.Resume(ctx, h)
}
