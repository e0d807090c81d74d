package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/volume"
	"github.com/starling-network/starling/node/workload"
)

// restore reads the executions of an earlier process and takes them over: a
// running one is re-adopted, one that was still pulling starts again in a fresh
// directory, one that is gone has ended as lost.
func (x *executor) restore(ctx context.Context) error {
	if err := x.takeOver(ctx); err != nil {
		return err
	}
	return x.releaseVolumes()
}

// releaseVolumes takes away the volumes that no execution has which goes on, whatever an earlier process of this peer was doing when it
// ended.
func (x *executor) releaseVolumes() error {
	mounted, err := volume.Mounted(x.dir)
	if err != nil || len(mounted) == 0 {
		return err
	}
	x.mu.Lock()
	all := slices.Collect(maps.Values(x.exec))
	x.mu.Unlock()
	needed := map[string]bool{}
	for _, e := range all {
		if s, _, _ := e.snapshot(); s.State.Ended() {
			continue
		}
		own, err := volume.Mounted(x.stage(e).Dir)
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
		x.log.Info("a volume that nothing needs is released", "dir", m)
		if err := volume.Release(m); err != nil {
			return err
		}
	}
	return nil
}

// takeOver is restore, except for files of no execution.
func (x *executor) takeOver(ctx context.Context) error {
	return x.store.List(ctx, kindExecution, "", func(key string, value []byte) error {
		var rec execRecord
		e := &execution{wake: make(chan struct{}), work: &nodepb.Workload{}, state: &nodepb.Execution{}}
		if err := errors.Join(json.Unmarshal(value, &rec), protojson.Unmarshal(rec.Workload, e.work), protojson.Unmarshal(rec.State, e.state)); err != nil {
			return fmt.Errorf("reading execution %s: %w", key, err)
		}
		e.rec = rec
		if err := e.restorePlan(); err != nil {
			return fmt.Errorf("reading execution %s: %w", key, err)
		}
		e.dir = filepath.Join(x.dir, rec.Lease.String()[:16], fmt.Sprint(e.state.Seq))
		if len(rec.Handle) > 0 {
			h, err := runtime.UnmarshalHandle(rec.Handle)
			if err != nil {
				return fmt.Errorf("reading execution %s: %w", key, err)
			}
			e.handle = &h
		}
		x.exec[key] = e
		x.grantOutputs(e)
		if e.state.State.Ended() {
			x.clear(e) // a crash may have come between its end and this
		}
		rt := x.runtimes[e.work.Runtime]
		switch {
		case rt == nil:
			x.log.Warn("an execution's runtime is no longer offered", "key", key, "runtime", e.work.Runtime)
			if !e.state.State.Ended() {
				x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, 0, reasonLost, "its runtime is no longer offered here", nil)
			}
		case e.handle != nil:
			if err := rt.Recover(ctx, *e.handle); err != nil && !e.state.State.Ended() {
				x.log.Warn("an execution was lost while the peer was down", "key", key, "err", err)
				x.finish(e, nodepb.ExecState_EXEC_STATE_FAILED, 0, reasonLost, told(err, endedOutside), nil)
			} else if !e.state.State.Ended() {
				x.spawn(e)
			}
		case !e.state.State.Ended():
			x.clear(e) // of the attempt that is given up
			e.rec.Attempt++
			if err := x.persist(ctx, e); err != nil {
				return err
			}
			x.spawn(e)
		}
		return nil
	})
}

// digest is the output of a lease's final receipt: the result of its last execution.
func (x *executor) digest(l market.LeaseID) sign.Hash {
	var last *nodepb.Execution
	var work *nodepb.Workload
	for _, e := range x.of(l) {
		if s, _, _ := e.snapshot(); s.State == nodepb.ExecState_EXEC_STATE_EXITED && (last == nil || s.Seq > last.Seq) {
			last, work = s, e.work
		}
	}
	if last == nil {
		return sign.Hash{}
	}
	return workload.Digest(work, last)
}

// idle waits until nothing runs under a lease.
func (x *executor) idle(ctx context.Context, l market.LeaseID) error {
	for {
		var wake <-chan struct{}
		if !slices.ContainsFunc(x.of(l), func(e *execution) bool {
			s, _, w := e.snapshot()
			wake = w
			return !s.State.Ended()
		}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}
