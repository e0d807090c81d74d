package buyer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
)

// Cluster is the state of a job whose ranks form one cluster. Members and Version are the plan that every member gets.
// They change together, in one write of the journal with the cause, so that no version has two contents.
//
//	leases of all ranks ─▶ version 1 ─▶ each rank starts with it
//	a rank is lost ─▶ version n+1 without it ─▶ a new lease, a higher epoch ─▶ version n+2 ─▶ sent to each member until it has it
//	scale up: new ranks are ordered, all or none ─▶ version n+1     scale down: the highest end ─▶ version n+1 without them
type Cluster struct {
	Version uint64 `json:"version"` // of the plan; 0: there is none yet
	Size    uint32 `json:"size"`    // ranks 0 to Size-1
	Members []Seat `json:"members,omitempty"`
	// Terms is its name in all its leases, however its job is changed later: members with the same one are of one
	// cluster.
	Terms sign.Hash `json:"terms"`
	// Begun is the size that its engine was told when it began, Generation how often it has begun again since.
	Begun      uint32 `json:"begun"`
	Generation int    `json:"generation,omitempty"`
	// Ready is when its head's engine answered first in this generation; zero: not yet.
	Ready time.Time `json:"ready,omitzero"`
	// Target is a smaller size that it is being brought to; 0: none.
	Target uint32 `json:"target,omitempty"`
	// Before is the budget that the job had before it was last made larger, and has again if the new members do not
	// join.
	Before market.Amount `json:"before,omitempty"`
	// Epochs are those of ranks that were scaled away, by rank: whoever has such a rank again gets a higher one.
	Epochs []uint32 `json:"epochs,omitempty"`
	// Idle is since when nothing was asked of it; zero: it is in use, or nobody wants to know.
	Idle time.Time `json:"idle,omitzero"`
}

// Seat is one member of a cluster's plan.
type Seat struct {
	Rank  uint32         `json:"rank"`
	Epoch uint32         `json:"epoch"`
	Lease market.LeaseID `json:"lease"` // the first of its line
}

func (c *Cluster) clone() *Cluster {
	if c == nil {
		return nil
	}
	out := *c
	out.Members, out.Epochs = slices.Clone(c.Members), slices.Clone(c.Epochs)
	return &out
}

// newCluster is the state of a job that is a cluster; nil for another one.
func newCluster(id string, spec job.Job) (*Cluster, error) {
	if spec.Cluster == nil {
		return nil, nil
	}
	terms, err := termsOf(spec, []byte(id))
	if err != nil {
		return nil, err
	}
	return &Cluster{Size: spec.Count, Begun: spec.Count, Terms: terms}, nil
}

// engine is the software that runs on a cluster.
func (j Job) engine() cluster.Engine {
	e, err := cluster.LookUp(j.Spec.Cluster.Engine)
	if err != nil {
		return cluster.Engine{} // the job was checked
	}
	return e.With(j.Spec.Cluster.Options)
}

// task is what the template of its engine makes rank's program of.
func (j Job) task(rank int) cluster.Task {
	per, units, c := j.Spec.Resources.PerUnit, j.Spec.Resources.Units, j.Spec.Cluster
	t := cluster.Task{
		ID: j.ID, Rank: uint32(rank), Size: j.Cluster.Size, Begun: j.Cluster.Begun, Class: c.Network, Options: c.Options, Command: c.Command,
		MilliCPU: times(per.MilliCPU, units), MemoryMiB: times(per.MemoryMiB, units),
	}
	if j.Network != nil {
		t.RTT = time.Duration(j.Network.RTTMicros) * time.Microsecond
	}
	if cls := string(j.Spec.Resources.Class); cls == "gpu" || strings.HasPrefix(cls, "gpu/") {
		t.GPUs = units
	}
	return t
}

// times multiplies, up to the highest number there is.
func times(a, b uint32) uint32 { return uint32(min(uint64(a)*uint64(b), 1<<32-1)) }

// readyEvery is how often the head is asked whether it does its work.
const readyEvery = job.Span(time.Second)

// clustered makes a workload that of a cluster's rank.
func (j Job) clustered(rank int, w *nodepb.Workload) (token bool) {
	p := j.engine().Program(j.task(rank))
	w.Entrypoint, w.Args = p.Entrypoint, p.Args
	for k, v := range p.Env {
		if _, own := w.Env[k]; !own { // who says so himself knows better
			w.Env[k] = v
		}
	}
	if r := p.Ready; r != nil {
		// An image that is slow to begin is not ill: for so long its checks only say whether it is ready.
		h := &job.Health{Interval: readyEvery, Timeout: job.Span(5 * time.Second), Retries: 30, StartPeriod: job.Span(10 * time.Minute)}
		if h.TCP = r.Port; r.Path != "" {
			h.TCP, h.HTTP = 0, &job.HTTPGet{Port: r.Port, Path: r.Path}
		}
		w.Health = pbHealth(h)
	}
	return p.Token
}

// planFor returns a job's plan in force, as sent to one rank. lease returns the lease with an id, paths are the measured
// ones between any of its members.
func (j Job) planFor(
	rank int, lease func(market.LeaseID) *leases.Lease, paths []cluster.Path,
) (cluster.Plan, error) {
	c := j.Cluster
	p := cluster.Plan{ID: j.ID, Rank: uint32(rank), Size: c.Size, Version: c.Version, MTU: cluster.MaxMTU, Engine: j.Spec.Cluster.Engine}
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
		t := j.task(int(seat.Rank))
		m := cluster.Member{
			Rank: seat.Rank, Epoch: seat.Epoch, Lease: signed, Hold: rec.Member.Hold, Key: rec.Member.Key, GPUs: t.GPUs, Slots: j.engine().Slots(t),
			MilliCPU: times(rec.PerUnit.MilliCPU, uint32(signed.Core.Units)), MemoryMiB: times(rec.PerUnit.MemoryMiB, uint32(signed.Core.Units)),
		}
		for _, text := range rec.Addrs {
			if a, err := ma.NewMultiaddr(text); err == nil && len(a.String()) <= cluster.MaxAddrSize && len(m.Addrs) < cluster.MaxAddrs {
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
	return j.planFor(rank, s.b.leases.Get, paths)
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
			s.b.cfg.Log.Debug("a member of a cluster was not told of the others", "job", s.trace.Job, "rank", i, "err", err)
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
