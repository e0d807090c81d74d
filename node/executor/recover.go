package executor

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/volume"
)

// Restore takes over the executions of an earlier process, and allows new ones. They end with ctx. A running program is
// taken over, an unstarted one starts again in a new directory, and a missing one ends as lost.
func (x *Executor) Restore(ctx context.Context) error {
	x.ctx = ctx
	err := table.List(ctx, x.cfg.Store, "", func(k Key, rec record) error {
		e, err := x.decode(k, rec)
		if err == nil {
			err = x.hooks.restore(e)
		}
		if err != nil {
			return fmt.Errorf("execution %d of lease %s: %w", k.Seq, k.Lease.Short(), err)
		}
		x.mu.Lock()
		x.all[k] = e
		x.mu.Unlock()
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range x.All() {
		if err := x.takeOver(ctx, e); err != nil {
			return err
		}
	}
	return releaseVolumes(x)
}

// Wait returns when all executions have ended, or the context of Restore has and their programs are left alone.
func (x *Executor) Wait() { x.wg.Wait() }

// takeOver continues an execution of an earlier process.
func (x *Executor) takeOver(ctx context.Context, e *Execution) error {
	e.Update(func(*nodepb.Execution) { e.grantLocked() })
	rt := e.Runtime()
	if e.Ended() {
		x.hooks.stop(e, x.cfg.Log) // a crash may have come between its end and this
	}
	switch {
	case rt == nil:
		x.cfg.Log.Warn("an execution's runtime is no longer offered", "lease", e.Lease, "runtime", e.Work.Runtime)
		if !e.Ended() {
			x.finish(e, lost(notOffered))
		}
	case e.handle != nil:
		err := rt.Recover(ctx, *e.handle)
		switch {
		case e.Ended():
		case err != nil:
			x.cfg.Log.Warn("an execution was lost while the peer was down", "lease", e.Lease, "seq", e.Seq, "err", err)
			x.finish(e, lost(BuyersText(err, endedOutside)))
		default:
			x.spawn(e)
		}
	case !e.Ended():
		x.hooks.stop(e, x.cfg.Log) // of the abandoned attempt
		e.mu.Lock()
		e.rec.Attempt++
		e.mu.Unlock()
		if err := e.Persist(ctx); err != nil {
			return err
		}
		x.spawn(e)
	}
	return nil
}

// releaseVolumes releases all volumes except those of running executions, after any end of the earlier process.
func releaseVolumes(x *Executor) error {
	mounted, err := volume.Mounted(x.cfg.Dir)
	if err != nil || len(mounted) == 0 {
		return err
	}
	needed := map[string]bool{}
	for _, e := range x.All() {
		if s, _, _ := e.Snapshot(); s.State.Ended() || s.State == nodepb.ExecState_EXEC_STATE_UNSPECIFIED {
			continue
		}
		own, err := volume.Mounted(e.Stage().Dir)
		if err != nil {
			return err
		}
		for _, m := range own {
			needed[m] = true
		}
	}
	for _, m := range mounted {
		if needed[m] {
			continue
		}
		x.cfg.Log.Info("a volume that nothing needs is released", "dir", m)
		if err := volume.Release(m); err != nil {
			return err
		}
	}
	return nil
}

// decode returns the execution of a record.
func (x *Executor) decode(k Key, rec record) (*Execution, error) {
	w, state := &nodepb.Workload{}, &nodepb.Execution{}
	if err := protojson.Unmarshal(rec.Workload, w); err != nil {
		return nil, fmt.Errorf("reading the workload of an execution: %w", err)
	}
	if err := protojson.Unmarshal(rec.State, state); err != nil {
		return nil, fmt.Errorf("reading the state of an execution: %w", err)
	}
	e := x.make(k, w, rec, state)
	if len(rec.Handle) > 0 {
		h, err := runtime.UnmarshalHandle(rec.Handle)
		if err != nil {
			return nil, fmt.Errorf("reading the handle of an execution: %w", err)
		}
		e.handle = &h
	}
	return e, nil
}
