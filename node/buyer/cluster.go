package buyer

import (
	"context"
	"fmt"
	"sync"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
)

// plans keeps the providers of a cluster at the plan in force.
type plans struct {
	s *supervisor

	mu       sync.Mutex      // taken after the supervisor's
	observed []observedPlan  // of each rank: which plan its provider goes by
	bell     chan struct{}   // closes when something of the cluster changes; nil: nobody waits
	paths    *[]cluster.Path // between its members, as the journal has them; nil: it was not read yet
}

// grow makes room for n ranks.
func (p *plans) grow(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.observed) < n {
		p.observed = append(p.observed, observedPlan{})
	}
}

// trim drops all ranks but n.
func (p *plans) trim(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.observed = p.observed[:n:n]
}

// observedPlan is the plan that a rank follows, by its provider's word.
type observedPlan struct {
	lease market.LeaseID
	seq   uint64
	plan  uint64 // version; 0: it has said nothing
}

// Paths returns the measured paths between the ranks of a cluster, by rank, and none for another job.
func (b *Buyer) Paths(ctx context.Context, job string) ([]cluster.Path, error) {
	return mesh.Paths(ctx, b.cfg.Store, job)
}

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

// of returns the plan in force, as sent to one rank.
func (p *plans) of(ctx context.Context, rank int) (cluster.Plan, error) {
	j := p.s.snapshot() // before the paths: what is between members is there when they are
	paths, err := p.pathsNow(ctx)
	if err != nil {
		return cluster.Plan{}, err
	}
	return planFor(j, rank, p.s.b.leases.Get, paths)
}

// attached keeps a member's provider at the plan in force, and knows its ways to the others, until the caller calls
// back.
func (p *plans) attached(ctx context.Context, i int) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.tell(ctx, i) })
	wg.Go(func() { p.look(ctx, i) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// heard takes in which plan a rank's execution goes by.
func (p *plans) heard(i int, ex *nodepb.Execution) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.job.Cluster == nil || i >= len(p.s.leases) || p.s.leases[i] == nil {
		return
	}
	p.mu.Lock()
	p.observed[i] = observedPlan{p.s.leases[i].First, ex.Seq, ex.PlanVersion}
	p.mu.Unlock()
	p.ring()
}

// ring wakes who waits for a change of the cluster.
func (p *plans) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell != nil {
		close(p.bell)
		p.bell = nil
	}
}

// rung closes when something of the cluster changes after this call.
func (p *plans) rung() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell == nil {
		p.bell = make(chan struct{})
	}
	return p.bell
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
func (p *plans) tell(ctx context.Context, i int) {
	wait := tellFirst
	for ctx.Err() == nil {
		bell := p.rung()
		l, seq, due := p.behind(i)
		if !due {
			wait = tellFirst
			select {
			case <-ctx.Done():
			case <-bell:
			}
			continue
		}
		version, err := p.tellOne(ctx, i, l, seq)
		if err == nil {
			p.mu.Lock()
			if i < len(p.observed) && p.observed[i].lease == l.First && p.observed[i].seq == seq {
				p.observed[i].plan = max(p.observed[i].plan, version)
			}
			p.mu.Unlock()
			wait = tellFirst
			continue
		}
		if ctx.Err() == nil {
			p.s.b.cfg.Log.Debug("a member of a cluster was not told of the others", "job", p.s.trace.Job, "rank", i,
				"err", err)
		}
		if pause(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, tellMost)
	}
}

// behind reports whether a rank's provider goes by an older plan than the one in force.
func (p *plans) behind(i int) (*leases.Lease, uint64, bool) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if i >= len(p.observed) || i >= len(s.leases) || i >= len(s.job.Ranks) {
		return nil, 0, false
	}
	l, r, t := s.leases[i], s.job.Ranks[i], p.observed[i]
	if l == nil || r.State != RankRunning || t.lease != l.First || t.seq != r.Seq || t.plan == 0 {
		return nil, 0, false // it starts with the plan in force, or has not answered yet
	}
	return l, r.Seq, t.plan < s.job.Cluster.Version
}

// tellOne tells one provider the plan in force, and returns its version.
func (p *plans) tellOne(ctx context.Context, i int, l *leases.Lease, seq uint64) (uint64, error) {
	plan, err := p.of(ctx, i)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return plan.Version, p.s.b.executions.Join(ctx, on(l, seq), plan.Proto())
}

// lookEvery is how often a member is asked how it reaches the others: its provider tells of its program, not of that.
const lookEvery = 3 * time.Second

// look updates a member's paths to the others until ctx ends.
func (p *plans) look(ctx context.Context, i int) {
	for pause(ctx, jitter(lookEvery)) == nil {
		l, seq, err := p.s.running(i)
		if err != nil {
			continue
		}
		ex, err := p.s.b.executions.Status(ctx, on(l, seq))
		if err != nil || ex.Seq != seq || ex.State.Ended() { // its end is for who watches it
			continue
		}
		if again, now, err := p.s.running(i); err == nil && again == l && now == seq {
			p.s.see(i, ex)
			p.heard(i, ex)
		}
	}
}

// pathsNow are the paths between the members of the job's cluster, none for another one.
func (p *plans) pathsNow(ctx context.Context) ([]cluster.Path, error) {
	p.mu.Lock()
	known := p.paths
	p.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	// A job that is being stopped does not fail for it.
	read, err := p.s.b.Paths(context.WithoutCancel(ctx), p.s.trace.Job)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paths == nil { // else a gang formed meanwhile
		p.paths = &read
	}
	return *p.paths, nil
}

// setPaths sets them; nil: they are to be read again.
func (p *plans) setPaths(paths *[]cluster.Path) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paths = paths
}
