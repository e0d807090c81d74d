package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/engine"
	"github.com/starling-network/starling/node/runtime/docker/rundir"
)

// Start creates the directory and the container and returns when the program runs.
func (r *Runtime) Start(ctx context.Context, s runtime.Spec) (runtime.Handle, error) {
	h := runtime.Handle{Runtime: Name, ID: s.ID, Dir: s.Dir}
	if err := s.Check(); err != nil {
		return h, err
	}
	if s.Image == "" {
		return h, &runtime.SpecError{Field: "Image", Reason: "is missing: this runtime runs container images"}
	}
	img, err := r.images.Config(ctx, s.Image)
	if err != nil {
		return h, err
	}
	r.images.Use(ctx, img)
	order, err := r.starter.order(s, img)
	if err != nil {
		return h, err
	}
	if err := r.keeper.mine.Open(); err != nil {
		return h, err
	}
	owner, err := rundir.Prepare(s)
	if err != nil {
		return h, err
	}
	e := r.keeper.newExecution(s.ID, s.Dir, owner)
	e.state.GPUs, e.state.UUIDs, e.state.Token = len(s.GPUs), s.GPUs, order.Token
	if err = r.starter.launch(ctx, e, s, img, order); err == nil {
		err = r.keeper.add(e)
	}
	if err != nil {
		e.disown()
		patient, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.EndPatience)
		defer cancel()
		left := []string{e.container}
		if s.Overlay != nil {
			left = append(left, engine.SidecarName(s.Dir))
		}
		for _, c := range left {
			if removal := r.engine.End(patient, c); removal != nil {
				r.cfg.Logger.Warn("cannot remove the container of a failed start; the next start of this peer will",
					"container", c, "error", removal)
			}
		}
		_ = os.RemoveAll(s.Dir)
		if r.sandbox.Layered(s) {
			_ = os.RemoveAll(s.Layer)
		}
		return h, fmt.Errorf("starting %s: %w", s.ID, err)
	}
	return h, nil
}

// Recover takes the execution's owner lock and lets its guard connect. A paused execution is resumed.
func (r *Runtime) Recover(ctx context.Context, h runtime.Handle) error {
	if _, err := r.keeper.find(h); !errors.Is(err, runtime.ErrNotFound) {
		return err
	}
	s, err := rundir.ReadState(h.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && s.ID != h.ID {
		return fmt.Errorf("%w: %s", runtime.ErrNotFound, h.ID)
	}
	if err != nil {
		return fmt.Errorf("recovering execution: %w", err)
	}
	owner, err := os.OpenFile(filepath.Join(h.Dir, rundir.OwnerFile), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("recovering execution: %w", err)
	}
	if err := rundir.Lock(owner); err != nil {
		_ = owner.Close()
		return fmt.Errorf("recovering execution: held by another process of this peer: %w", err)
	}
	e := r.keeper.newExecution(h.ID, h.Dir, owner)
	e.state, e.container = s, s.Container
	if s.Sidecar == "" {
		err = r.recoverer.adopt(ctx, e)
	} else {
		err = r.recoverer.adoptBoth(ctx, e)
	}
	if err != nil {
		e.disown()
		return fmt.Errorf("recovering execution: %w", err)
	}
	if err := r.keeper.add(e); err != nil {
		e.disown()
		if errors.Is(err, runtime.ErrExists) { // another Recover was faster
			return nil
		}
		return err
	}
	return nil
}
