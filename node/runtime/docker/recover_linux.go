package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// adoptPatience is how long a guard has to find the new peer; it looks for one ten times a second.
const adoptPatience = 10 * time.Second

// Recover takes the execution's owner lock and lets its guard connect. One that was paused runs again.
func (r *Runtime) Recover(ctx context.Context, h runtime.Handle) error {
	if _, err := r.find(h); !errors.Is(err, runtime.ErrNotFound) {
		return err
	}
	s, err := readState(h.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.ID != h.ID {
		return fmt.Errorf("%w: %s", runtime.ErrNotFound, h.ID)
	}
	if err != nil {
		return fmt.Errorf("recovering execution: %w", err)
	}
	owner, err := os.OpenFile(filepath.Join(h.Dir, ownerFile), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("recovering execution: %w", err)
	}
	if err := lock(owner); err != nil {
		_ = owner.Close()
		return fmt.Errorf("recovering execution: another process of this peer has it: %w", err)
	}
	e := r.newExecution(h.ID, h.Dir, owner)
	e.state, e.container = s, s.Container
	if s.Sidecar == "" {
		err = r.adopt(ctx, e)
	} else {
		err = r.adoptBoth(ctx, e)
	}
	if err != nil {
		e.disown()
		return fmt.Errorf("recovering execution: %w", err)
	}
	if err := r.add(e); err != nil {
		e.disown()
		if errors.Is(err, runtime.ErrExists) { // another Recover was faster
			return nil
		}
		return err
	}
	return nil
}

// adopt connects to the guard, or finds that it has ended: then e has no connection, and watch settles it.
func (r *Runtime) adopt(ctx context.Context, e *execution) error {
	if _, err := readReport(e.dir); err == nil {
		return nil
	}
	l, err := listen(filepath.Join(e.dir, controlDir))
	if err != nil {
		return err
	}
	defer l.Close()
	switch err := r.thaw(ctx, e); {
	case errors.Is(err, errNotRunning):
		return nil
	case errors.Is(err, runtime.ErrEngine): // the container may run all the same
		r.cfg.Logger.Warn("recovering without the engine", "id", e.id, "error", err)
	case err != nil:
		return err
	}
	conn, _, err := r.accept(ctx, l, e.container, e.state.Token, min(adoptPatience, r.cfg.Grace))
	if err == nil {
		_ = os.Remove(filepath.Join(e.dir, controlDir, guard.SocketFile))
		e.conn = conn
		_, err = greet(ctx, conn, guard.Request{Op: guard.OpAdopt})
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, runtime.ErrEngine) {
		return err
	}
	if e.conn != nil {
		_ = e.conn.Close()
		e.conn = nil
	}
	if errors.Is(err, errNotRunning) {
		return nil
	}
	if _, reported := readReport(e.dir); reported == nil {
		return nil // it ended just now
	}
	// A container without its guard's word cannot be held to anything.
	r.cfg.Logger.Warn("ending a container that cannot be recovered", "id", e.id, "error", err)
	return r.end(ctx, e.container)
}

// adoptBoth connects to the guard and to the sidecar, which look for their new peer at the same time. A sidecar that has ended is none:
// watchNet ends the execution.
func (r *Runtime) adoptBoth(ctx context.Context, e *execution) error {
	l, err := listen(filepath.Join(e.dir, netDir))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := r.adopt(ctx, e); err != nil || e.conn == nil {
		return err
	}
	conn, _, err := r.accept(ctx, l, e.state.Sidecar, e.state.Token, min(adoptPatience, r.cfg.Grace))
	if err == nil {
		_ = os.Remove(filepath.Join(e.dir, netDir, guard.SocketFile))
		if _, err = greet(ctx, conn, guard.NetRequest{Op: guard.NetAdopt}); err == nil {
			e.net = newSidecar(e.state.Sidecar, conn)
			return nil
		}
		_ = conn.Close()
	}
	if ctx.Err() != nil {
		return err
	}
	r.cfg.Logger.Warn("the sidecar of an execution cannot be recovered", "id", e.id, "error", err)
	return nil
}

// thaw lets a paused container go on; errNotRunning if it does not run.
func (r *Runtime) thaw(ctx context.Context, e *execution) error {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	info, err := r.engine.ContainerInspect(ctx, e.container)
	switch {
	case absent(err):
		return errNotRunning
	case err != nil:
		return r.engine.explain(err)
	case info.State == nil || !info.State.Running:
		return errNotRunning
	case info.State.Paused:
		return r.engine.explain(r.engine.ContainerUnpause(ctx, e.container))
	}
	return nil
}

// orphan is a container that an earlier process of this peer left running.
type orphan struct{ container, dir string }

// sweep removes this peer's containers that have ended, and returns those that have not.
func (r *Runtime) sweep(ctx context.Context) (running []orphan, err error) {
	ctx, cancel := context.WithTimeout(ctx, enginePatience)
	defer cancel()
	found, err := r.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelPeer+"="+r.cfg.Peer))})
	if err != nil {
		return nil, r.engine.explain(err)
	}
	for _, c := range found {
		// An image can carry any label. This runtime gave the name, which does not occur by chance.
		if len(c.Names) != 1 || !ownName(strings.TrimPrefix(c.Names[0], "/"), c.Labels[labelDir]) || r.taken(c.Labels[labelDir]) {
			continue
		}
		if c.State == container.StateRunning || c.State == container.StatePaused || c.State == container.StateRestarting {
			running = append(running, orphan{c.ID, c.Labels[labelDir]})
			continue
		}
		r.tasks.Go(func() { _ = r.remove(r.ctx, c.ID) }) // the next New tries again
	}
	return running, nil
}

// ownName reports whether this runtime names a container of this directory so.
func ownName(name, dir string) bool { return name == containerName(dir) || name == sidecarName(dir) }

// taken reports whether a living process owns the execution of this directory.
func (r *Runtime) taken(dir string) bool {
	if r.mine.Has(dir) {
		return true
	}
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return lock(f) != nil
}

// sweepLater ends containers that nobody has recovered when the grace is over. Their guards end them themselves, unless
// they are frozen or the peer died before it sent them an order. It lists anew: the engine may have finished one
// meanwhile that the last process of this peer requested in its last moment.
func (r *Runtime) sweepLater() {
	select {
	case <-time.After(r.cfg.Grace):
	case <-r.ctx.Done():
		return
	}
	left, err := r.sweep(r.ctx)
	if err != nil && r.ctx.Err() == nil {
		r.cfg.Logger.Warn("cannot look for containers that nobody recovered", "error", err)
	}
	for _, o := range left {
		if r.taken(o.dir) {
			continue
		}
		if err := r.end(r.ctx, o.container); err != nil {
			r.cfg.Logger.Warn("cannot remove a container that nobody recovered", "container", o.container, "error", err)
		}
	}
}
