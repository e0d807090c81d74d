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

// phaseRunning is the phase of a provider's report of a program that runs, see record.Live.
const phaseRunning = "running"

// watchUse reports whether the job is in use, until ctx ends.
func (p *Plans) watchUse(ctx context.Context, most time.Duration) {
	every := min(max(most/6, time.Second), time.Minute)
	for run.Pause(ctx, every) == nil {
		p.Post(jobs.JobUse{Busy: !p.use(ctx).Idle()})
	}
}

// watch begins or ends the watch as the job's state requires.
func (p *Plans) watch(st jobs.State) {
	limit := st.Params.IdleLimit()
	wanted := limit > 0 && st.Phase == jobs.Working
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case wanted && p.idling == nil:
		ctx, cancel := context.WithCancel(p.Context())
		p.idling = cancel
		p.cfg.Tasks.Go(func() { p.watchUse(ctx, limit) })
	case !wanted && p.idling != nil:
		p.idling()
		p.idling = nil
	}
}

// use returns the job's use as seen now. Programs that are fetched or started count as used.
func (p *Plans) use(ctx context.Context) mesh.Use {
	j := p.Snapshot()
	seen := mesh.Use{Streams: p.Streams.Load() > 0, Members: uint64(len(j.Ranks))}
	for _, l := range p.Seats() {
		seen.MilliCPU += l.MilliCPU()
	}
	if j.Spec.Cluster == nil {
		for _, r := range j.Ranks {
			seen.Jobs = seen.Jobs || r.Live.Phase != phaseRunning
		}
		return seen
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
