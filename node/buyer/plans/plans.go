// Package plans keeps the providers of a cluster at the plan in force: its members, and the paths between them.
package plans

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"golang.org/x/sync/semaphore"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
)

// Config is the surroundings of the plans of all clusters. All of it is required.
type Config struct {
	Store      store.Store
	Leases     *leases.Book
	Executions *executions.Client
	Tokens     Tokens
	Tasks      leases.Tasks
	Log        *slog.Logger
}

// Tokens has the secrets of clusters.
type Tokens interface {
	// Token returns the secret that the engine of a job's cluster shares.
	Token(job string) string
}

// Observer observes the programs of a job.
type Observer interface {
	// Seen processes the state of a rank's execution.
	Seen(rank int, ex *nodepb.Execution)
}

// Plans are the plans of one cluster.
type Plans struct {
	*run.Job
	cfg      *Config
	observer Observer

	measuring *semaphore.Weighted // one change of the paths between members at a time
	state
}

// state is the state of a cluster's plans.
type state struct {
	mu       sync.Mutex
	observed []observedPlan     // of each rank: the plan in force at its provider
	bell     chan struct{}      // closes on a change of the cluster; nil if there is no waiter
	paths    *[]cluster.Path    // between its members, as in the journal; nil: not read yet
	idling   context.CancelFunc // ends the watch for an unused cluster; nil if none runs
}

// New returns the plans of a job that may be a cluster.
func New(cfg *Config, j *run.Job, o Observer) *Plans {
	return &Plans{
		Job: j, cfg: cfg, observer: o, measuring: semaphore.NewWeighted(1),
		state: state{observed: make([]observedPlan, len(j.Peek().Ranks))},
	}
}

// Changed applies a state of the job's machine.
func (p *Plans) Changed(st jobs.State) {
	p.resize(len(st.Ranks))
	if p.Peek().Cluster != nil {
		p.ring()
	}
	p.watch(st)
}

// resize keeps the state of n ranks.
func (p *Plans) resize(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.growLocked(n)
	p.observed = p.observed[:n:n]
}

func (p *Plans) growLocked(n int) {
	for len(p.observed) < n {
		p.observed = append(p.observed, observedPlan{})
	}
}

// observedPlan is the plan that a rank follows, by its provider's word.
type observedPlan struct {
	lease market.LeaseID
	seq   uint64
	plan  uint64 // version; 0: not reported
}

// jitter spreads requests: it returns a duration between half of d and one and a half.
func jitter(d time.Duration) time.Duration {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return d/2 + d*time.Duration(uint16(b[0])<<8|uint16(b[1]))/(1<<16)
}

// planFor returns a job's plan in force, as sent to one rank. lease returns the lease with an id, paths are the
// measured ones between any of its members.
func planFor(
	j record.Job, rank int, lease func(market.LeaseID) *leases.Lease, paths []cluster.Path,
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

// For returns the plan in force, as sent to one rank.
func (p *Plans) For(ctx context.Context, rank int) (*nodepb.ClusterPlan, error) {
	plan, err := p.of(ctx, rank)
	if err != nil {
		return nil, err
	}
	return plan.Proto(), nil
}

// of returns the plan in force, as sent to one rank.
func (p *Plans) of(ctx context.Context, rank int) (cluster.Plan, error) {
	j := p.Snapshot() // before the paths: the journal has the paths of all members in it
	paths, err := p.pathsNow(ctx)
	if err != nil {
		return cluster.Plan{}, err
	}
	return planFor(j, rank, p.cfg.Leases.Get, paths)
}

// Attached sends a member's provider each plan in force, and polls its connections to the others, until the caller
// calls end.
func (p *Plans) Attached(ctx context.Context, i int) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { p.tell(ctx, i) })
	wg.Go(func() { p.look(ctx, i) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// Heard records the plan in force in a rank's execution.
func (p *Plans) Heard(i int, ex *nodepb.Execution) {
	l := p.Seat(i)
	if l == nil || p.Peek().Cluster == nil {
		return
	}
	p.mu.Lock()
	p.growLocked(i + 1)
	p.observed[i] = observedPlan{l.First, ex.Seq, ex.PlanVersion}
	p.mu.Unlock()
	p.ring()
}

// ring wakes all waiters for a change of the cluster.
func (p *Plans) ring() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell != nil {
		close(p.bell)
		p.bell = nil
	}
}

// rung closes when something of the cluster changes after this call.
func (p *Plans) rung() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell == nil {
		p.bell = make(chan struct{})
	}
	return p.bell
}

const (
	// tellFirst and tellMost bound the delay before a plan is sent again to a provider that did not accept it.
	tellFirst = 200 * time.Millisecond
	tellMost  = 5 * time.Second
	// tellTime bounds one request to one provider.
	tellTime = 10 * time.Second
)

// tell sends one rank's provider the plan in force until ctx ends. It repeats each version until the provider has
// accepted it, and again if the provider returns with an older one. A starting program has the plan in its workload.
func (p *Plans) tell(ctx context.Context, i int) {
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
			p.cfg.Log.Debug("sending the plan to a member of a cluster failed", "job", p.ID, "rank", i,
				"err", err)
		}
		if run.Pause(ctx, wait) != nil {
			return
		}
		wait = min(2*wait, tellMost)
	}
}

// behind reports whether a rank's provider goes by an older plan than the one in force.
func (p *Plans) behind(i int) (*leases.Lease, uint64, bool) {
	l, j := p.Seat(i), p.Peek()
	p.mu.Lock()
	defer p.mu.Unlock()
	if i >= len(p.observed) || i >= len(j.Ranks) {
		return nil, 0, false
	}
	r, t := j.Ranks[i], p.observed[i]
	if l == nil || r.State != record.RankRunning || t.lease != l.First || t.seq != r.Seq || t.plan == 0 {
		return nil, 0, false // it starts with the plan in force, or has not answered yet
	}
	return l, r.Seq, t.plan < j.Cluster.Version
}

// tellOne sends one provider the plan in force, and returns its version.
func (p *Plans) tellOne(ctx context.Context, i int, l *leases.Lease, seq uint64) (uint64, error) {
	plan, err := p.of(ctx, i)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return plan.Version, p.cfg.Executions.Join(ctx, run.On(l, seq), plan.Proto())
}

// lookEvery is the interval of polls of a member's connections: its provider reports changes of its program, not of
// these.
const lookEvery = 3 * time.Second

// look polls a member's paths to the others until ctx ends.
func (p *Plans) look(ctx context.Context, i int) {
	for run.Pause(ctx, jitter(lookEvery)) == nil {
		l, seq, err := p.Running(i)
		if err != nil {
			continue
		}
		ex, err := p.cfg.Executions.Status(ctx, run.On(l, seq))
		if err != nil || ex.Seq != seq || ex.State.Ended() { // its follower reports its end
			continue
		}
		if again, now, err := p.Running(i); err == nil && again == l && now == seq {
			p.observer.Seen(i, ex)
			p.Heard(i, ex)
		}
	}
}
