package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
)

// watchNet ends the execution when its network is gone: the program would wait for its fellows without end.
func (e *execution) watchNet() {
	if e.net != nil {
		e.net.Watch()
	}
	select {
	case <-e.over:
		return
	case <-e.gone:
		return
	default:
	}
	e.logger.Warn("the network of an execution is gone", "id", e.id)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.resume(ctx); err != nil && !errors.Is(err, runtime.ErrEnded) {
		e.logger.Warn("cannot resume an execution whose network is gone", "id", e.id, "error", err)
	}
	e.line.Send(guard.Request{Op: guard.OpKill, Reason: runtime.ReasonLost})
	if err := e.force(ctx); err != nil {
		e.logger.Warn("cannot end an execution whose network is gone", "id", e.id, "error", err)
	}
}

// network finds an execution that runs and has an overlay.
func (r *Runtime) network(h runtime.Handle) (*execution, error) {
	e, err := r.keeper.find(h)
	switch {
	case err != nil:
		return nil, err
	case e.state.Sidecar == "":
		return nil, runtime.ErrNoOverlay
	case e.ended() || e.net == nil:
		return nil, runtime.ErrEnded
	}
	return e, nil
}

// CanOverlay makes a sidecar and removes it, once: hardly anything else shows whether an engine, and a machine's other
// protections, allow one.
func (r *Runtime) CanOverlay(ctx context.Context) error { return r.sidecars.CanOverlay(ctx) }

// Tun requests the device from the sidecar.
func (r *Runtime) Tun(ctx context.Context, h runtime.Handle) (*os.File, error) {
	e, err := r.network(h)
	if err != nil {
		return nil, err
	}
	a, err := e.net.Ask(ctx, guard.NetRequest{Op: guard.NetTun})
	if err != nil {
		return nil, fmt.Errorf("asking for the device of %s: %w", h.ID, err)
	}
	if len(a.Files) != 1 {
		guard.CloseFiles(a.Files)
		return nil, fmt.Errorf("asking for the device of %s: the sidecar gave %d", h.ID, len(a.Files))
	}
	return a.Files[0], nil
}

// SetMTU requests the change from the sidecar, since only the sidecar can make it.
func (r *Runtime) SetMTU(ctx context.Context, h runtime.Handle, mtu int) error {
	if err := runtime.CheckMTU(mtu); err != nil {
		return err
	}
	e, err := r.network(h)
	if err != nil {
		return err
	}
	if _, err := e.net.Ask(ctx, guard.NetRequest{Op: guard.NetMTU, MTU: mtu}); err != nil {
		return fmt.Errorf("changing the MTU of %s: %w", h.ID, err)
	}
	return nil
}

// SetFiles writes the files into the container's mounted directory.
func (r *Runtime) SetFiles(_ context.Context, h runtime.Handle, files map[string][]byte) error {
	if err := runtime.CheckOverlayFiles(files); err != nil {
		return err
	}
	e, err := r.network(h)
	if err != nil {
		return err
	}
	return e.files.write(e.dir, files)
}

// overlayFiles writes the files of an execution's overlay, one change at a time.
type overlayFiles struct{ mu sync.Mutex }

func (o *overlayFiles) write(dir string, files map[string][]byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return rundir.WriteOverlay(dir, files)
}
