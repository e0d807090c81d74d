package plans

import (
	"context"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/p2p/stream"
)

// watchUse reports whether the cluster is in use, until ctx ends.
func (p *Plans) watchUse(ctx context.Context, most time.Duration) {
	every := min(max(most/6, time.Second), time.Minute)
	for run.Pause(ctx, every) == nil {
		p.Post(jobs.ClusterUse{Busy: !p.use(ctx).Idle()})
	}
}

// watch begins or ends the watch as the cluster's state requires.
func (p *Plans) watch(st jobs.State) {
	c := st.Params.Cluster
	wanted := c != nil && c.Autostop > 0 && st.Phase == jobs.Working
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case wanted && p.idling == nil:
		ctx, cancel := context.WithCancel(p.Context())
		p.idling = cancel
		p.cfg.Tasks.Go(func() { p.watchUse(ctx, c.Autostop) })
	case !wanted && p.idling != nil:
		p.idling()
		p.idling = nil
	}
}

// use returns the cluster's use as seen now.
func (p *Plans) use(ctx context.Context) mesh.Use {
	j := p.Snapshot()
	seen := mesh.Use{Streams: p.Streams.Load() > 0, Members: uint64(len(j.Ranks))}
	for _, l := range p.Seats() {
		seen.MilliCPU += l.MilliCPU()
	}
	if !seen.Idle() || j.Spec.Cluster.Engine != "ray" {
		return seen
	}
	seen.Jobs = !p.rayIdle(ctx)
	return seen
}

// rayIdle reports whether Ray itself has nothing to do.
func (p *Plans) rayIdle(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, tellTime)
	defer done()
	token := p.cfg.Tokens.Token(p.ID)
	return !mesh.RayBusy(ctx, token, func(ctx context.Context) (*stream.Conn, error) {
		l, seq, err := p.Running(0)
		if err != nil {
			return nil, err
		}
		return p.cfg.Executions.Forward(ctx, run.On(l, seq), cluster.PortRayDashboard)
	})
}
