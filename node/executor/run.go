package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
)

// spawn runs e in a goroutine that Wait waits for.
func (x *Executor) spawn(e *Execution) {
	ctx, cancel := context.WithCancel(x.ctx)
	e.drop = cancel
	e.alive, e.die = context.WithCancel(x.ctx)
	x.wg.Go(func() {
		defer cancel()
		defer e.die()
		x.run(ctx, e)
	})
}

// run runs e to its end. When the peer is stopped it returns early, and the program runs on for the next process.
func (x *Executor) run(ctx context.Context, e *Execution) {
	if _, h, _ := e.Snapshot(); h != nil {
		x.hooks.recover(e)
	} else if err := x.launch(ctx, e); err != nil {
		e.end()
		if x.ctx.Err() == nil {
			x.cfg.Log.Warn("an execution was not started", "lease", e.Lease, "seq", e.Seq, "err", err)
			x.finish(e, unstarted(err, e.Stopping()))
		}
		return
	}
	exit, err := e.Runtime().Wait(x.ctx, *e.handle)
	e.end() // before the outputs are read
	if x.ctx.Err() != nil {
		return
	}
	if err != nil {
		x.cfg.Log.Warn("an execution was lost", "lease", e.Lease, "seq", e.Seq, "err", err)
		x.finish(e, lost(BuyersText(err, endedOutside)))
		return
	}
	if st, err := e.Runtime().Stats(x.ctx, *e.handle); err == nil {
		e.Update(func(s *nodepb.Execution) { s.CpuMillis = st.CPUMillis })
	}
	e.Update(func(s *nodepb.Execution) {
		s.WallMillis = uint64(max(exit.Ended.Sub(exit.Started), 0) / time.Millisecond)
	})
	r := Result{State: nodepb.ExecState_EXEC_STATE_EXITED, Code: exit.Code, Reason: string(exit.Reason), Exit: &exit}
	if r.Lost() {
		r.Message = endedOutside
	}
	x.finish(e, r)
}

// launch calls the hooks before the start, starts the program, and calls the hooks after it.
func (x *Executor) launch(ctx context.Context, e *Execution) error {
	l, err := x.prepare(ctx, e)
	if err != nil {
		return err
	}
	h, err := l.Runtime.Start(ctx, l.Spec)
	if err != nil {
		return fmt.Errorf("starting the program: %w", err)
	}
	e.mu.Lock()
	e.handle = &h
	e.state.State, e.state.Message = nodepb.ExecState_EXEC_STATE_RUNNING, ""
	e.state.StartedMillis = uint64(time.Now().UnixMilli())
	if e.Work.Health != nil {
		e.state.Health = nodepb.Health_HEALTH_STARTING
	}
	stop, grace := e.stop, e.grace
	e.grantLocked()
	e.mu.Unlock()
	err = e.Persist(x.ctx)
	if err == nil {
		err = x.hooks.poststart(ctx, e)
	}
	if err != nil {
		_ = l.Runtime.Destroy(context.WithoutCancel(ctx), h) // a program outside the journal must not run
		return err
	}
	e.Changed()
	if stop {
		return l.Runtime.Stop(x.ctx, h, grace)
	}
	return nil
}

// prepare calls the hooks before the start, within the time that the workload gives them.
func (x *Executor) prepare(ctx context.Context, e *Execution) (*Launch, error) {
	fetching, limit := ctx, time.Duration(e.Work.PullMillis)*time.Millisecond
	if limit > 0 {
		var cancel context.CancelFunc
		fetching, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	w := e.Work
	l := &Launch{Runtime: e.Runtime(), Spec: runtime.Spec{
		ID:   fmt.Sprintf("%s-%d", e.Lease.String()[:16], e.Seq),
		Args: w.Args, Env: w.Env, Limits: e.Limits, Dir: e.Stage().Run(), Seed: w.Seed, User: e.rec.User,
		Entrypoint: w.Entrypoint, WorkDir: w.WorkDir,
	}}
	l.Spec.Limits.WallTime = time.Duration(w.WallMillis) * time.Millisecond
	l.Spec.Limits.MemoryMiB = cmp.Or(w.MemoryMib, l.Spec.Limits.MemoryMiB)
	l.Spec.Limits.ShmMiB = w.ShmMib
	l.Spec.Limits.DiskMiB = uint32(e.Disk() >> 20)
	err := x.hooks.prestart(fetching, e, l)
	if err != nil && limit > 0 && ctx.Err() == nil && errors.Is(fetching.Err(), context.DeadlineExceeded) {
		advice := fmt.Sprintf("time limit of %v exceeded", limit)
		return nil, &runtime.Failure{Class: errLate, Advice: advice, Cause: err}
	}
	return l, err
}

// finish calls the hooks of the end, journals the end and notifies the execution's followers.
func (x *Executor) finish(e *Execution, r Result) {
	r = x.hooks.exited(x.ctx, e, r, x.cfg.Log)
	e.mu.Lock() // a reader that sees the end sees all of it, and may fetch the named files
	s := e.state
	s.State, s.ExitCode, s.Reason, s.Message, s.Outputs = r.State, int32(r.Code), r.Reason, r.Message, r.Outputs
	s.Paused, s.Health, s.HealthMessage = false, nodepb.Health_HEALTH_UNSPECIFIED, ""
	e.grantLocked()
	e.mu.Unlock()
	x.mu.Lock()
	x.ends[r.outcome()]++
	x.mu.Unlock()
	if err := e.Persist(x.ctx); err != nil {
		// The end is reported nevertheless: after a restart the runtime answers the same again.
		x.cfg.Log.Error("journalling the end of an execution failed", "lease", e.Lease, "err", err)
	} else {
		x.hooks.stop(e, x.cfg.Log)
	}
	x.cfg.Log.Info("execution ended", "lease", e.Lease, "seq", e.Seq, "state", r.State, "code", r.Code,
		"reason", r.Reason, "message", r.Message)
	e.Changed()
}

// outcome is the key of a result in the counts of Ends.
func (r *Result) outcome() string {
	switch {
	case r.Reason != "":
		return r.Reason
	case r.State == nodepb.ExecState_EXEC_STATE_FAILED:
		return "failed"
	case r.Code != 0:
		return "exit"
	}
	return "ok"
}
