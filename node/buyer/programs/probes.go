package programs

import (
	"context"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
)

// probed is a rank under one lease as its prober sees it.
type probed struct {
	x *Programs
	i int
	l *leases.Lease
}

// prober returns a prober that measures whether the units of rank i's lease are exclusive.
func (x *Programs) prober(i int, l *leases.Lease) *probe.Prober {
	c, j := x.cfg, x.Snapshot()
	rec := l.Record()
	p := &probe.Prober{
		Rank: probed{x, i, l}, Host: c.Host, Tag: c.Genesis.Tag(), Domain: c.Genesis.Domain(),
		Key: l.As.Key(), Clock: c.Clock,
		Facts: c.Reputation, Log: c.Log.With("job", x.ID, "rank", i, "lease", l.First),
		Lease: l.Chain()[0].Signed, Peer: l.Peer, Units: rec.Units, Proven: rec.Proven,
		GPUs: rec.PerUnit.VRAMMiB > 0 && j.Spec.Image != "",
	}
	if i < len(j.Ranks) {
		p.Class = j.Ranks[i].Units.Class
	}
	return p
}

// probing probes an execution of rank i until the caller calls back.
func (x *Programs) probing(ctx context.Context, i int, l *leases.Lease, seq uint64) (stop func()) {
	if x.Snapshot().Spec.Probes == job.ProbesOff {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := context.AfterFunc(l.Context(), cancel)
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.prober(i, l).Run(ctx, seq)
	}()
	return func() {
		over()
		cancel()
		<-done
	}
}

// examine takes the reports of devices that come with an execution of rank i.
func (x *Programs) examine(i int, l *leases.Lease, ex *nodepb.Execution) {
	if ex.Before == nil && ex.After == nil {
		return
	}
	for _, deliver := range x.prober(i, l).Examine(ex) {
		x.cfg.Tasks.Go(deliver)
	}
}

// begun is the record of a lease without results.
func (p probed) begun() record.Exclusive {
	x := record.Exclusive{Lease: p.l.First}
	x.Budget.Lease = time.Duration(p.l.Core.Slots()*p.x.cfg.Genesis.SlotMillis) * time.Millisecond
	return x
}

// Record returns the rank's record under the lease.
func (p probed) Record() record.Exclusive {
	ranks := p.x.Snapshot().Ranks
	if p.i < len(ranks) && ranks[p.i].Exclusive != nil && ranks[p.i].Exclusive.Lease == p.l.First {
		return *ranks[p.i].Exclusive
	}
	return p.begun()
}

// Update changes the record under the lease and journals it with more.
func (p probed) Update(ctx context.Context, change func(*record.Exclusive), more ...store.Put) error {
	return p.x.Save(ctx, func(j *record.Job) {
		if p.i >= len(j.Ranks) { // a cluster was scaled down
			return
		}
		x := p.begun()
		if was := j.Ranks[p.i].Exclusive; was != nil && was.Lease == p.l.First {
			x = *was
		}
		change(&x)
		j.Ranks[p.i].Exclusive = &x
	}, more...)
}

// Ready reports whether the rank's program runs and may be probed.
func (p probed) Ready() bool {
	j := p.x.Snapshot()
	return p.i < len(j.Ranks) && j.Ranks[p.i].Live.Phase == "running" && (j.Cluster == nil || !j.Cluster.Ready.IsZero())
}

// Note adds a finding to the job's trace.
func (p probed) Note(finding string) {
	provider := p.l.Core.Provider.String()
	p.x.Trace.Add(trace.Step{At: time.Now(), Kind: trace.Probed, Rank: &p.i, Provider: provider, Detail: finding})
	p.x.Trace.Poke()
}

// Fault reports a fault of the provider to its reputation.
func (p probed) Fault() { p.x.cfg.Reputation.Failed(p.l.Core, p.l.Loss(time.Time{})) }

// Shared moves the rank to another provider if the job's specification requests it.
func (p probed) Shared(finding string) {
	if p.x.Snapshot().Spec.Probes == job.ProbesMove {
		p.l.Condemn(finding)
	}
}

// Probe is the record of one probe.
type Probe = probe.Record

// Probes lists the records of a job's probes, by lease and number.
func Probes(ctx context.Context, st store.Store, j *run.Job) ([]Probe, error) {
	var lines []market.LeaseID
	for _, l := range j.Bought() {
		if !slices.Contains(lines, l.First) {
			lines = append(lines, l.First)
		}
	}
	return probe.List(ctx, st, lines...)
}
