package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/stream"
)

// resizeLocked makes room for the state of n ranks. The supervisor's mu is held.
func (d *driver) resizeLocked(n int) {
	s := d.s
	for len(d.bases) < n {
		d.bases, d.reasons = append(d.bases, base{}), append(d.reasons, "")
	}
	for len(d.execs.following) < n {
		d.execs.following = append(d.execs.following, nil)
	}
	for len(s.leases) < n {
		s.leases = append(s.leases, nil)
	}
	s.plans.grow(n)
}

// poll asks the provider of an execution whether it is there, until it has answered.
func (x *execs) poll(fx jobs.PollProvider) {
	x.s.mu.Lock()
	f := x.following[fx.Rank]
	x.s.mu.Unlock()
	if f == nil || f.exec != fx.Exec {
		return // it has ended, and the machine is told
	}
	x.b.wg.Go(func() {
		l := x.chains.chain(fx.Lease)
		for l != nil && f.ctx.Err() == nil {
			if _, err := x.b.executions.Status(f.ctx, on(l, fx.Seq)); err == nil {
				x.post(jobs.ProviderHeard(fx))
				return
			}
			x.post(jobs.ProviderSilent(fx))
			_ = pause(f.ctx, executions.Redial)
		}
	})
}

// watchUse reports whether anybody uses the cluster, until ctx ends.
func (d *driver) watchUse(ctx context.Context, most time.Duration) {
	every := min(max(most/6, time.Second), time.Minute)
	for pause(ctx, every) == nil {
		d.post(jobs.ClusterUse{Busy: !d.s.use(ctx).Idle()})
	}
}

// watchUseLocked begins or ends the watch as the cluster's state wants it. The supervisor's mu is held.
func (d *driver) watchUseLocked(st jobs.State) {
	c := st.Params.Cluster
	wanted := c != nil && c.Autostop > 0 && st.Phase == jobs.Working
	switch {
	case wanted && d.idling == nil:
		ctx, cancel := context.WithCancel(d.b.desk.ctx)
		d.idling = cancel
		d.b.wg.Go(func() { d.watchUse(ctx, c.Autostop) })
	case !wanted && d.idling != nil:
		d.idling()
		d.idling = nil
	}
}

// scale brings the cluster to n members. It returns when it has them, or has kept its own.
func (d *driver) scale(n int, budget market.Amount) error {
	j := d.s.snapshot()
	format, from := d.b.cfg.Genesis.FormatAmount, len(j.Ranks)
	switch has := j.Spec.Payment.Budget; {
	case j.State != Running || j.Stopping:
		return fmt.Errorf("%w: the cluster is %s", ErrNotRunning, j.State)
	case n == from && budget == 0:
		return nil
	case n < from && budget > 0:
		return fmt.Errorf("%w: a smaller cluster needs no more money; leave the budget out", ErrRefused)
	case budget > 0 && budget < has:
		return fmt.Errorf("%w: a budget of %s is less than the cluster has, %s", ErrRefused, format(budget),
			format(has))
	}
	if err := j.Engine().CheckScale(j.Spec.Cluster.Options, j.Cluster.Begun, uint32(n)); err != nil && n != from {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	spec, err := j.Resized(n)
	if err == nil && budget > 0 {
		spec, err = spec.With(job.Changes{Budget: &budget})
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if n >= from {
		if err := d.affordScale(spec, n); err != nil {
			return err
		}
	}
	err = d.scaleTo(spec, n >= from)
	switch {
	case errors.Is(err, jobs.ErrBusy):
		return fmt.Errorf("%w: the cluster is being scaled, or its job made longer; try again when that is done",
			ErrRefused)
	case errors.Is(err, jobs.ErrNotRunning):
		return fmt.Errorf("%w: the cluster is %s", ErrNotRunning, d.s.snapshot().State)
	case errors.Is(err, jobs.ErrBudget):
		err = fmt.Errorf("%w: more members cost more; scale it with a higher budget (--budget)", err)
		return fmt.Errorf("%w: the cluster keeps its %d members: %w", ErrRefused, from, err)
	case errors.Is(err, jobs.ErrScale):
		return fmt.Errorf("%w: the cluster keeps its %d members: %w", ErrRefused, from, err)
	}
	return err
}

// affordScale refuses a size that the wallet cannot pay, and makes room for the new members.
func (d *driver) affordScale(spec job.Job, n int) error {
	need, err := mostCost(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	// The peer stops no sooner than its chain has answered.
	if err := d.b.pay.Afford(d.b.desk.ctx, d.s.trace.Job, need, spec.Count); err != nil {
		return err
	}
	return d.s.makeRoom(n)
}

// scaleTo asks the machine for another size, and waits until it has it.
func (d *driver) scaleTo(spec job.Job, more bool) error {
	run := d.b.desk.ctx
	return d.request(run, func(req jobs.Req) (err error) {
		d.b.mu.Lock() // no other job is taken in between on the same limits
		defer d.b.mu.Unlock()
		if more {
			err = d.b.withinMore(d.s, spec, time.Now())
		}
		if err == nil {
			ev := jobs.ScaleRequested{Req: req, Count: spec.Count, Budget: spec.Payment.Budget}
			_, err = d.ask(run, event{ev: ev})
		}
		return err
	})
}

// goneLocked cancels the executions of ranks that the job no longer has. The supervisor's mu is held.
func (x *execs) goneLocked(n int) {
	for i := n; i < len(x.following); i++ {
		if f := x.following[i]; f != nil {
			f.cancel()
		}
	}
	x.following = slices.Clip(x.following[:min(n, len(x.following))])
}

// use returns the cluster's use as seen now.
func (s *supervisor) use(ctx context.Context) mesh.Use {
	j := s.snapshot()
	seen := mesh.Use{Streams: s.streams.Load() > 0, Members: uint64(len(j.Ranks))}
	s.mu.Lock()
	var leases []*leases.Lease
	for _, l := range s.leases {
		if l != nil {
			leases = append(leases, l)
		}
	}
	s.mu.Unlock()
	for _, l := range leases {
		seen.MilliCPU += l.MilliCPU()
	}
	if !seen.Idle() || j.Spec.Cluster.Engine != "ray" {
		return seen
	}
	seen.Jobs = !s.rayIdle(ctx)
	return seen
}

// rayIdle reports whether Ray itself has nothing to do.
func (s *supervisor) rayIdle(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, tellTime)
	defer done()
	token := s.b.secrets.Token(s.trace.Job)
	return !mesh.RayBusy(ctx, token, func(ctx context.Context) (*stream.Conn, error) {
		l, seq, err := s.running(0)
		if err != nil {
			return nil, err
		}
		return s.b.executions.Forward(ctx, on(l, seq), cluster.PortRayDashboard)
	})
}
