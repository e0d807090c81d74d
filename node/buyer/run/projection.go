package run

import (
	"strings"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/webhook"
)

// projection derives the job as its user sees it from the states of its machine. It is under the job's mu.
type projection struct {
	job *Job

	phase     jobs.Phase
	bases     []base   // by rank
	reasons   []string // by rank: why its last lease was lost
	offers    map[market.LeaseID]Offered
	took      time.Duration // to fill the order that was filled last
	noted     int           // lines of the machine that are in the trace
	candidate [32]byte      // digest of the newest state, and of the journalled state
	written   [32]byte
	upTo      int // lines of the trace that the journal has with the machine's last write
	// deliveries are the reports that the journal has with it.
	deliveries map[record.State][]webhook.Delivery
}

// Offered is the content of a lease's quote.
type Offered struct {
	Route string
	Units record.Units
}

// base is where the log of an execution begins in its rank's log.
type base struct {
	exec jobs.Exec
	at   int64
}

func newProjection(j *Job, ranks []record.Rank) projection {
	p := projection{
		job: j, bases: make([]base, len(ranks)), reasons: make([]string, len(ranks)),
		offers: map[market.LeaseID]Offered{}, deliveries: map[record.State][]webhook.Delivery{},
	}
	for i, r := range ranks {
		p.bases[i] = base{jobs.Exec{Rank: uint32(i), Lease: r.Lease, Seq: r.Seq}, r.LogBase}
	}
	return p
}

// base returns where the log of rank i's execution in a state begins in the rank's log, also if it is not followed yet.
func (p *projection) base(st jobs.State, i int) int64 {
	r := &st.Ranks[i]
	if b := p.bases[i]; b.exec == (jobs.Exec{Rank: uint32(i), Lease: r.Lease, Seq: r.Seq}) {
		return b.at
	}
	return p.job.logs[i].Len()
}

// grow makes room for n ranks.
func (p *projection) grow(n int) {
	for len(p.bases) < n {
		p.bases, p.reasons = append(p.bases, base{}), append(p.reasons, "")
	}
	p.job.growLocked(n)
}

// project returns the job as its user sees it in a state of its machine. The values that the machine does not have
// stay.
func (p *projection) project(st jobs.State) record.Job {
	p.grow(len(st.Ranks))
	was := p.job.job.Ranks
	j := p.job.job.Clone()
	j.Follow(p.job.runner.cfg.Genesis, st, p.reasons)
	for i := range j.Ranks {
		k, before := &j.Ranks[i], record.Rank{}
		if i < len(was) {
			before = was[i]
		}
		if o, ok := p.offers[k.Lease]; ok && k.Lease != before.Lease {
			k.Route, k.Units = o.Route, o.Units
		}
		if k.State != record.RankRunning {
			continue
		}
		x := jobs.Exec{Rank: uint32(i), Lease: st.Ranks[i].Lease, Seq: k.Seq}
		if fresh := p.bases[i].exec != x; fresh || before.State != record.RankRunning || before.Seq != k.Seq {
			if k.Live = (record.Live{}); fresh {
				p.bases[i] = base{x, p.job.logs[i].Len()}
			}
		}
		k.LogBase = p.bases[i].at
	}
	return j
}

// note adds a line of the job's machine to its trace.
func (p *projection) note(st jobs.State, n jobs.Note) {
	step := trace.Step{At: time.Now(), Kind: trace.Kind(n.Kind), Detail: strings.TrimSuffix(n.Detail, ": ")}
	if i := n.Rank; i >= 0 && i < len(st.Ranks) {
		step.Rank, step.Provider = &i, st.Ranks[i].Provider.String()
		if n.Kind == jobs.NoteLost {
			p.reasons[i] = n.Detail
		}
	}
	if n.Kind == jobs.NoteLeased {
		step.Took = p.took
	}
	p.job.Trace.Add(step)
}

// Phase returns the phase of the job's machine.
func (j *Job) Phase() jobs.Phase {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.shown.phase
}
