package docker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/link"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
	"github.com/starling-network/starling/node/runtime/docker/sidecar"
)

// adoptPatience is the time within which a guard must connect to the new peer; it tries ten times a second.
const adoptPatience = 10 * time.Second

// recoverer connects to the guards and sidecars that an earlier process of the peer left.
type recoverer struct {
	engine   *engine.Engine
	sidecars *sidecar.Maker
	grace    time.Duration
	log      *slog.Logger
}

// adopt connects to the guard, or finds that it has ended: then e has no connection, and watch settles it.
func (v *recoverer) adopt(ctx context.Context, e *execution) error {
	if _, err := rundir.ReadReport(e.dir); err == nil {
		return nil
	}
	l, err := link.Listen(filepath.Join(e.dir, rundir.ControlDir))
	if err != nil {
		return err
	}
	defer l.Close()
	switch err := v.engine.Thaw(ctx, e.container); {
	case errors.Is(err, engine.ErrNotRunning):
		return nil
	case errors.Is(err, runtime.ErrEngine): // the container may still run
		v.log.Warn("recovering without the engine", "id", e.id, "error", err)
	case err != nil:
		return err
	}
	conn, _, err := link.Accept(ctx, l, v.engine, e.container, e.state.Token, min(adoptPatience, v.grace))
	if err == nil {
		_ = os.Remove(filepath.Join(e.dir, rundir.ControlDir, guard.SocketFile))
		e.line.Connect(conn)
		_, err = e.line.Greet(ctx, guard.Request{Op: guard.OpAdopt})
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, runtime.ErrEngine) {
		return err
	}
	e.line.Disconnect()
	if errors.Is(err, engine.ErrNotRunning) {
		return nil
	}
	if _, reported := rundir.ReadReport(e.dir); reported == nil {
		return nil // it ended just now
	}
	// A container without its guard's word cannot be held to anything.
	v.log.Warn("ending a container that cannot be recovered", "id", e.id, "error", err)
	return v.engine.End(ctx, e.container)
}

// adoptBoth connects to the guard and to the sidecar, which both search for their new peer at the same time. An ended
// sidecar is no error: watchNet ends the execution.
func (v *recoverer) adoptBoth(ctx context.Context, e *execution) error {
	l, err := link.Listen(filepath.Join(e.dir, rundir.NetDir))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := v.adopt(ctx, e); err != nil || !e.line.Connected() {
		return err
	}
	patience := min(adoptPatience, v.grace)
	made, err := v.sidecars.Adopt(ctx, l, e.dir, e.state.Sidecar, e.state.Token, patience)
	if err == nil {
		e.net = made
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	v.log.Warn("the sidecar of an execution cannot be recovered", "id", e.id, "error", err)
	return nil
}
