package buyer

import (
	"context"
	"fmt"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
)

// planFor returns a job's plan in force, as sent to one rank. lease returns the lease with an id, paths are the
// measured ones between any of its members.
func planFor(
	j Job, rank int, lease func(market.LeaseID) *leases.Lease, paths []cluster.Path,
) (cluster.Plan, error) {
	c := j.Cluster
	p := cluster.Plan{ID: j.ID, Rank: uint32(rank), Size: c.Size, Version: c.Version, MTU: cluster.MaxMTU,
		Engine: j.Spec.Cluster.Engine}
	for _, seat := range c.Members {
		l := lease(seat.Lease)
		if l == nil {
			return p, fmt.Errorf("lease %s of rank %d is not known", seat.Lease.Short(), seat.Rank)
		}
		rec := l.Record()
		if rec.Member == nil {
			return p, fmt.Errorf("lease %s of rank %d names no overlay key", seat.Lease.Short(), seat.Rank)
		}
		signed, err := market.UnmarshalLease(rec.Member.Lease)
		if err != nil {
			return p, fmt.Errorf("lease %s of rank %d: %w", seat.Lease.Short(), seat.Rank, err)
		}
		t := j.Task(int(seat.Rank))
		m := cluster.Member{
			Rank: seat.Rank, Epoch: seat.Epoch, Lease: signed, Hold: rec.Member.Hold, Key: rec.Member.Key, GPUs: t.GPUs,
			Slots: j.Engine().Slots(t), MilliCPU: record.Times(rec.PerUnit.MilliCPU, uint32(signed.Core.Units)),
			MemoryMiB: record.Times(rec.PerUnit.MemoryMiB, uint32(signed.Core.Units)),
		}
		for _, text := range rec.Addrs {
			if a, err := ma.NewMultiaddr(text); err == nil && len(a.String()) <= cluster.MaxAddrSize &&
				len(m.Addrs) < cluster.MaxAddrs {
				m.Addrs = append(m.Addrs, a)
			}
		}
		p.Members = append(p.Members, m)
	}
	p = p.WithPaths(paths)
	return p, p.Validate()
}

// planOf is the plan in force as one rank is told it.
func (s *supervisor) planOf(ctx context.Context, rank int) (cluster.Plan, error) {
	j := s.snapshot() // before the paths: what is between members is there when they are
	paths, err := s.pathsNow(ctx)
	if err != nil {
		return cluster.Plan{}, err
	}
	return planFor(j, rank, s.b.leases.Get, paths)
}

// told is the plan that a rank follows, by its provider's word.
type told struct {
	lease market.LeaseID
	seq   uint64
	plan  uint64 // version; 0: it has said nothing
}

// heard takes in which plan a rank's execution goes by.
func (s *supervisor) heard(i int, ex *nodepb.Execution) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job.Cluster == nil || i >= len(s.told) || s.leases[i] == nil {
		return
	}
	s.told[i] = told{s.leases[i].First, ex.Seq, ex.PlanVersion}
	s.ringLocked()
}

// ringLocked wakes who waits for a change of the cluster.
func (s *supervisor) ringLocked() {
	if s.bell != nil {
		close(s.bell)
		s.bell = nil
	}
}

// rung closes when something of the cluster changes after this call.
func (s *supervisor) rung() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bell == nil {
		s.bell = make(chan struct{})
	}
	return s.bell
}

const (
	// tellFirst and tellMost are how long is waited until a provider that did not take a plan is told again.
	tellFirst = 200 * time.Millisecond
	tellMost  = 5 * time.Second
	// tellTime bounds telling one provider once.
	tellTime = 10 * time.Second
)

// tell sends one rank's provider the plan in force until ctx ends: each version until the provider has accepted it, and
// again if it returns with an older one. A program that starts has the plan with its workload.
func (s *supervisor) tell(ctx context.Context, i int) {
	wait := tellFirst
	for ctx.Err() == nil {
		bell := s.rung()
		l, seq, due := s.behind(i)
		if !due {
			wait = tellFirst
			select {
			case <-ctx.Done():
			case <-bell:
			}
			continue
		}
		version, err := s.tellOne(ctx, i, l, seq)
		if err == nil {
			s.mu.Lock()
			if i < len(s.told) && s.told[i].lease == l.First && s.told[i].seq == seq {
				s.told[i].plan = max(s.told[i].plan, version)
			}
			s.mu.Unlock()
			wait = tellFirst
			continue
		}
		if ctx.Err() == nil {
			s.b.cfg.Log.Debug("a member of a cluster was not told of the others", "job", s.trace.Job, "rank", i,
				"err", err)
		}
		if pause(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, tellMost)
	}
}

// behind reports whether a rank's provider goes by an older plan than the one in force.
func (s *supervisor) behind(i int) (*leases.Lease, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(s.told) || i >= len(s.job.Ranks) {
		return nil, 0, false
	}
	l, r, t := s.leases[i], s.job.Ranks[i], s.told[i]
	if l == nil || r.State != RankRunning || t.lease != l.First || t.seq != r.Seq || t.plan == 0 {
		return nil, 0, false // it starts with the plan in force, or has not answered yet
	}
	return l, r.Seq, t.plan < s.job.Cluster.Version
}

// tellOne tells one provider the plan in force, and returns its version.
func (s *supervisor) tellOne(ctx context.Context, i int, l *leases.Lease, seq uint64) (uint64, error) {
	p, err := s.planOf(ctx, i)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return p.Version, s.b.executions.Join(ctx, on(l, seq), p.Proto())
}
