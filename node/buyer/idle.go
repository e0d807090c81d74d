package buyer

import (
	"context"

	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/p2p/stream"
)

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
