package docker

import (
	"context"
	"fmt"
	"strings"

	"github.com/starling-network/starling/node/runtime"
)

// Pause has the engine freeze the container, its guard too.
func (r *Runtime) Pause(ctx context.Context, h runtime.Handle) error {
	e, err := r.find(h)
	if err != nil {
		return err
	}
	if _, err := e.stats(ctx); err != nil { // the guard cannot say it while it is frozen
		return err
	}
	e.pausing.Lock()
	defer e.pausing.Unlock()
	if e.ended() {
		return runtime.ErrEnded
	}
	e.mu.Lock()
	paused := e.paused
	e.mu.Unlock()
	if paused {
		return nil
	}
	if err := e.engine.ContainerPause(ctx, e.container); err != nil && !strings.Contains(err.Error(), "already paused") {
		return e.pauseError(ctx, "pausing", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = true
	return nil
}

// Resume has the engine thaw it.
func (r *Runtime) Resume(ctx context.Context, h runtime.Handle) error {
	e, err := r.find(h)
	if err != nil {
		return err
	}
	return e.resume(ctx)
}

func (e *execution) resume(ctx context.Context) error {
	e.pausing.Lock()
	defer e.pausing.Unlock()
	if e.ended() {
		return runtime.ErrEnded
	}
	e.mu.Lock()
	paused := e.paused
	e.mu.Unlock()
	if !paused {
		return nil
	}
	if err := e.engine.ContainerUnpause(ctx, e.container); err != nil && !strings.Contains(err.Error(), "is not paused") {
		return e.pauseError(ctx, "resuming", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = false
	return nil
}

// pauseError tells an execution that has just ended from a failure.
func (e *execution) pauseError(ctx context.Context, doing string, err error) error {
	if stopped(err) || absent(err) {
		if e.within(ctx, endPatience) {
			return runtime.ErrEnded
		}
	}
	return fmt.Errorf("%s: %w", doing, e.engine.explain(err))
}
