package buyer

import (
	"context"
	"errors"
	"time"

	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/p2p/stream"
)

// errIdle says that a cluster was idle for as long as its user said.
var errIdle = errors.New("idle")

// watchIdle ends the job's work when it was idle for so long. A restart of this peer begins to count again.
func (s *supervisor) watchIdle(ctx context.Context, cancel context.CancelCauseFunc, most time.Duration) {
	every := min(max(most/6, time.Second), time.Minute)
	if err := s.noteIdle(ctx, time.Time{}); err != nil && ctx.Err() == nil {
		s.b.cfg.Log.Warn("a cluster's idle time is not journalled", "job", s.trace.Job, "err", err)
	}
	for pause(ctx, every) == nil {
		j := s.snapshot()
		if j.Cluster.Ready.IsZero() || j.Paused { // a cluster that comes up is in use, and one that was frozen does what it was told
			_ = s.noteIdle(ctx, time.Time{})
			continue
		}
		now := time.Now()
		since := mesh.IdleSince(j.Cluster.Idle, now, s.use(ctx))
		if err := s.noteIdle(ctx, since); err != nil {
			continue
		}
		if !since.IsZero() && now.Sub(since) >= most {
			cancel(errIdle)
			return
		}
	}
}

func (s *supervisor) noteIdle(ctx context.Context, since time.Time) error {
	if s.snapshot().Cluster.Idle.Equal(since) {
		return nil
	}
	return s.save(ctx, func(j *Job) { j.Cluster.Idle = since })
}

// use is what is seen of the cluster now.
func (s *supervisor) use(ctx context.Context) mesh.Use {
	j := s.snapshot()
	seen := mesh.Use{Streams: s.streams.Load() > 0, Members: uint64(len(j.Ranks))}
	s.mu.Lock()
	var leases []*bought
	for _, l := range s.leases {
		if l != nil {
			leases = append(leases, l)
		}
	}
	s.mu.Unlock()
	for _, l := range leases {
		seen.MilliCPU += l.milliCPU()
	}
	if !seen.Idle() || j.Spec.Cluster.Engine != "ray" {
		return seen
	}
	seen.Jobs = !s.rayIdle(ctx)
	return seen
}

// milliCPU is how much of a processor the last interval of a lease used, thousandths.
func (l *bought) milliCPU() uint64 {
	last := l.line.end()
	last.mu.Lock()
	r := last.payer.Last()
	last.mu.Unlock()
	millis := uint64(r.To-r.From) * l.b.cfg.Genesis.SlotMillis
	if r.Seq == 0 || millis == 0 {
		return 0
	}
	return r.CPUMillis * 1000 / millis
}

// rayIdle reports whether Ray itself has nothing to do.
func (s *supervisor) rayIdle(ctx context.Context) bool {
	ctx, done := context.WithTimeout(ctx, tellTime)
	defer done()
	token := clusterToken(s.b.secret, s.trace.Job)
	return !mesh.RayBusy(ctx, token, func(ctx context.Context) (*stream.Conn, error) {
		return s.b.forward(ctx, s.trace.Job, 0, cluster.PortRayDashboard)
	})
}
