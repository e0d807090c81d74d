package docker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
)

// An engine gives up freezing after a fraction of a second. If the kernel freezes process by process (cgroup v1), a
// process that waits for a busy processor all that time cannot be frozen. The request is repeated every freezePause for
// freezePatience.
const (
	freezePatience = 5 * time.Second
	freezePause    = 100 * time.Millisecond
)

// Pause has the engine freeze the container, its guard too.
func (r *Runtime) Pause(ctx context.Context, h runtime.Handle) error {
	e, err := r.keeper.find(h)
	if err != nil {
		return err
	}
	if _, err := e.stats(ctx); err != nil { // the guard cannot say it while it is frozen
		return err
	}
	return e.freezer.change(ctx, e, true, e.freeze)
}

// freezer changes whether an execution is paused, one change at a time.
type freezer struct{ mu sync.Mutex }

// change calls do if the execution's state differs, and notes the new state if it succeeds.
func (f *freezer) change(ctx context.Context, e *execution, paused bool, do func(context.Context) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.ended() {
		return runtime.ErrEnded
	}
	e.mu.Lock()
	was := e.paused
	e.mu.Unlock()
	if was == paused {
		return nil
	}
	if err := do(ctx); err != nil {
		return e.pauseError(ctx, map[bool]string{true: "pausing", false: "resuming"}[paused], err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = paused
	return nil
}

func (e *execution) freeze(ctx context.Context) error {
	began := time.Now()
	for {
		err := e.engine.ContainerPause(ctx, e.container)
		switch {
		case err == nil || strings.Contains(err.Error(), "already paused"):
			return nil
		case !strings.Contains(err.Error(), "freeze") || time.Since(began) > freezePatience ||
			e.within(ctx, freezePause) || ctx.Err() != nil:
			return err
		}
	}
}

// Resume has the engine thaw it.
func (r *Runtime) Resume(ctx context.Context, h runtime.Handle) error {
	e, err := r.keeper.find(h)
	if err != nil {
		return err
	}
	return e.resume(ctx)
}

func (e *execution) resume(ctx context.Context) error {
	return e.freezer.change(ctx, e, false, func(ctx context.Context) error {
		err := e.engine.ContainerUnpause(ctx, e.container)
		if err != nil && strings.Contains(err.Error(), "is not paused") {
			return nil
		}
		return err
	})
}

// pauseError distinguishes an execution that has just ended from a failure.
func (e *execution) pauseError(ctx context.Context, doing string, err error) error {
	if e.ended() {
		return runtime.ErrEnded
	}
	if engine.Stopped(err) || engine.Absent(err) {
		if e.within(ctx, engine.EndPatience) {
			return runtime.ErrEnded
		}
	}
	return fmt.Errorf("%s: %w", doing, e.engine.Explain(err))
}
