package programs

import (
	"context"
	"time"

	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/run"
)

// Halt requests the end of a program, until its provider answers or the machine waits no longer. It first follows a
// program of an earlier process.
func (x *Programs) Halt(fx jobs.StopExecution) {
	f, already := x.followed(fx.Exec)
	if !already {
		x.cfg.Tasks.Go(func() { x.follow(f, false, nil) })
	}
	x.cfg.Tasks.Go(func() {
		l := x.Chain(fx.Lease)
		if l == nil {
			return
		}
		ctx, cancel := context.WithTimeout(f.ctx, fx.Grace+stopSlack)
		defer cancel()
		for {
			err := x.cfg.Executions.Stop(ctx, run.On(l, fx.Seq), fx.Grace)
			if err == nil || executions.Final(err) != nil {
				return
			}
			if run.Pause(ctx, executions.Redial) != nil {
				x.cfg.Log.Debug("stopping an execution", "lease", l.ID, "err", err)
				return
			}
		}
	})
}

// Reclaim requests the program's result from the provider of an ended lease.
func (x *Programs) Reclaim(fx jobs.ReclaimExecution) {
	f, _ := x.followed(fx.Exec)
	x.cfg.Tasks.Go(func() {
		l, j := x.Chain(fx.Lease), x.Snapshot()
		if l == nil {
			x.Post(jobs.ExecutionLost{Exec: fx.Exec, Cause: jobs.CauseAbsent, Reason: "the lease is unknown"})
			return
		}
		ex, err := x.cfg.Executions.Await(f.ctx, run.On(l, fx.Seq))
		if err == nil && ex.GetState().Ended() {
			ex, err = x.follower(fx.Exec, l, j.Ranks[fx.Rank], false).Follow(f.ctx) // the rest of its log
		}
		switch {
		case f.ctx.Err() != nil:
		case err != nil || !ex.GetState().Ended() || !x.exited(f, l, ex):
			cause, why := run.CauseOf(l)
			x.Post(jobs.ExecutionLost{Exec: fx.Exec, Cause: cause, Reason: why})
		}
	})
}

// stopSlack is how much longer than its grace the end of a stopped program is waited for.
const stopSlack = 2 * time.Second

// Poll polls the provider of an execution until it has answered.
func (x *Programs) Poll(fx jobs.PollProvider) {
	f := x.known(fx.Exec)
	if f == nil {
		return // it has ended, and its end is posted
	}
	x.cfg.Tasks.Go(func() {
		l := x.Chain(fx.Lease)
		for l != nil && f.ctx.Err() == nil {
			if _, err := x.cfg.Executions.Status(f.ctx, run.On(l, fx.Seq)); err == nil {
				x.Post(jobs.ProviderHeard(fx))
				return
			}
			x.Post(jobs.ProviderSilent(fx))
			_ = run.Pause(f.ctx, executions.Redial)
		}
	})
}
