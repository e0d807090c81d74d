package docker

import (
	"context"
	"errors"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// watchDisk ends the program when its measured mounts hold more than they may.
func (e *execution) watchDisk() {
	if e.growth.Watch(e.state.Measured, e.state.DiskBytes, e.state.Guard, e.pause) {
		e.overDisk("over its limit")
	}
}

// overDisk ends the program for its writes.
func (e *execution) overDisk(why string) {
	e.logger.Warn("ending an execution because of its files", "id", e.id, "why", why)
	e.mu.Lock()
	e.full = true
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), engine.EndPatience)
	defer cancel()
	err := e.resume(ctx)
	if err == nil {
		e.line.Send(guard.Request{Op: guard.OpKill, Reason: runtime.ReasonDisk})
		err = e.force(ctx)
	}
	if err != nil && !errors.Is(err, runtime.ErrEnded) {
		e.logger.Warn("cannot end an execution at its disk limit", "id", e.id, "error", err)
	}
}
