package wasm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm/process"
	"golang.org/x/sys/unix"
)

// pausedFile exists while an execution is paused. A child that is woken sees by it that it must stop.
const pausedFile = "paused"

// wakeAgain are the delays of further wake-ups of a resumed child: it may just have been about to stop itself.
var wakeAgain = []time.Duration{50 * time.Millisecond, 500 * time.Millisecond}

// Pause has the child stop its process.
func (r *Runtime) Pause(ctx context.Context, h runtime.Handle) error {
	e, err := r.find(h)
	if err != nil {
		return err
	}
	e.pausing.Lock()
	defer e.pausing.Unlock()
	if e.ended() {
		return runtime.ErrEnded
	}
	if err := os.WriteFile(filepath.Join(e.dir, pausedFile), nil, 0o600); err != nil {
		return fmt.Errorf("pausing: %w", err)
	}
	if err := e.signal(unix.SIGCONT); err != nil { // it checks the pause and stops itself
		return fmt.Errorf("pausing: %w", err)
	}
	if err := e.awaitStopped(ctx); err != nil {
		return fmt.Errorf("pausing: %w", err)
	}
	s, err := readStatus(e.dir)
	spec, err2 := readSpec(e.dir)
	if limit := spec.Spec.Limits.WallTime; errors.Join(err, err2) == nil && limit > 0 && e.alarm == nil {
		// The child's own timer does not fire while it is stopped; once resumed, the timer is late and fires at once.
		e.alarm = time.AfterFunc(time.Until(s.Exit.Started.Add(limit)), func() {
			if err := e.resume(); err != nil {
				r.cfg.Logger.Warn("cannot end a paused execution at its wall-time limit", "id", e.id, "error", err)
			}
		})
	}
	return nil
}

// awaitStopped returns when no thread of the child runs. On a busy machine some threads get the signal late.
func (e *execution) awaitStopped(ctx context.Context) error {
	for !e.ended() {
		s, err := readStatus(e.dir)
		if err != nil {
			return err
		}
		if s.Phase == phaseEnded || process.Stopped(s.Pid) {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Resume resumes the child's process.
func (r *Runtime) Resume(_ context.Context, h runtime.Handle) error {
	e, err := r.find(h)
	if err != nil {
		return err
	}
	if e.ended() {
		return runtime.ErrEnded
	}
	return e.resume()
}

func (e *execution) ended() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

// resume does nothing if it is not paused.
func (e *execution) resume() error {
	e.pausing.Lock()
	defer e.pausing.Unlock()
	if e.alarm != nil {
		e.alarm.Stop()
		e.alarm = nil
	}
	switch err := os.Remove(filepath.Join(e.dir, pausedFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("resuming: %w", err)
	}
	if err := e.signal(unix.SIGCONT); err != nil {
		return fmt.Errorf("resuming: %w", err)
	}
	for _, d := range wakeAgain {
		time.AfterFunc(d, func() {
			if !e.ended() {
				_ = e.signal(unix.SIGCONT) // the one above has reached it, unless it was too early
			}
		})
	}
	return nil
}
