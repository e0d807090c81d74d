package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// An engine gives up freezing after a fraction of a second. Where the kernel freezes process by process (cgroup v1), one that waits for
// its share of a busy processor all that while cannot be frozen; it is asked again every freezePause until freezePatience is over.
const (
	freezePatience = 5 * time.Second
	freezePause    = 100 * time.Millisecond
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
	if err := e.freeze(ctx); err != nil {
		return e.pauseError(ctx, "pausing", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = true
	return nil
}

func (e *execution) freeze(ctx context.Context) error {
	began := time.Now()
	for {
		err := e.engine.ContainerPause(ctx, e.container)
		switch {
		case err == nil || strings.Contains(err.Error(), "already paused"):
			return nil
		case !strings.Contains(err.Error(), "freeze") || time.Since(began) > freezePatience || e.within(ctx, freezePause) || ctx.Err() != nil:
			return err
		}
	}
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

// pauseError distinguishes an execution that has just ended from a failure.
func (e *execution) pauseError(ctx context.Context, doing string, err error) error {
	if e.ended() {
		return runtime.ErrEnded
	}
	if stopped(err) || absent(err) {
		if e.within(ctx, endPatience) {
			return runtime.ErrEnded
		}
	}
	return fmt.Errorf("%s: %w", doing, e.engine.explain(err))
}
