// Package run holds the jobs of a peer, and runs their machines.
//
// A Job is this peer's state of one job: the record that its user sees, the trace, logs and leases. Its machine,
// node/buyer/jobs, decides what happens to it. A Runner journals each step of a machine together with the job as its
// user sees it, before any effect of the step leaves. Parts are the rooms that carry the effects out, and report events
// with Post.
//
//	Ask, Post ──▸ machine ──▸ journal: record, trace, further records ──▸ Parts.Changed, Parts.Carry
//
// A job changes in three ways. Events change the state of its machine. Save changes the part of the record outside the
// machine, and journals it. Show changes it in memory; the journal has it with the next step.
package run

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/store"
)

// Voice is the identity that buys a job's leases.
type Voice interface {
	leases.Principal
	// Keys sign the vouchers.
	Keys() market.KeySet
	// Terms returns the name of the job in its leases. It is salted where it must not be guessed; guardians name the
	// job otherwise.
	Terms(spec job.Job, salt []byte) (sign.Hash, error)
}

// Parts are the rooms that carry out the effects of one job's machine. None of their methods may wait.
type Parts interface {
	// Changed is called with each state of the machine that is in the journal, before the effects of its step.
	Changed(st jobs.State)
	// Carry carries out an effect.
	Carry(f jobs.Effect)
	// Ended is called when the job has ended and nothing remains to be done for it.
	Ended()
}

// Job is one job as this peer keeps it.
type Job struct {
	Holdings
	Logbook
	Requests

	ID    string
	Mine  bool // this peer is the job's owner
	Trace *trace.Trace
	// Streams counts the open streams into the job's programs.
	Streams atomic.Int64

	runner  *Runner
	parts   Parts
	loaded  *jobs.State // as the journal has it, until the machine is made
	resumed bool        // an earlier process began the job
	done    chan struct{}
	closing sync.Once

	mu     sync.Mutex
	frozen bool // the job has left memory, or is about to: nothing of it changes
	job    record.Job
	as     Voice
	shown  projection
	// mandate is of work under the present command of a job with guardians; made with the first.
	mandate context.Context
	revoke  context.CancelFunc
}

// Open opens the logs of a job, and an empty trace. Serve comes before its machine.
func (r *Runner) Open(rec record.Job, mine bool, as Voice) (*Job, error) {
	j := &Job{ID: rec.ID, Mine: mine, Trace: trace.New(r.cfg.Store, rec.ID), runner: r,
		job: rec, as: as, done: make(chan struct{})}
	j.Holdings = Holdings{mu: &j.mu, seats: make([]*leases.Lease, len(rec.Ranks))}
	j.Logbook = Logbook{mu: &j.mu, dir: r.Dir(rec.ID)}
	j.Requests = Requests{done: j.done, waiting: map[jobs.Req]chan<- error{}}
	j.shown = newProjection(j, rec.Ranks)
	for i := range rec.Ranks {
		l, err := ranklog.Open(j.path(i))
		if err != nil {
			return nil, err
		}
		if rec.State.Ended() {
			l.End()
		}
		// A power cut may have lost the end of the log: it is sent again from the start of the execution.
		j.job.Ranks[i].LogBase = min(j.job.Ranks[i].LogBase, l.Len())
		j.shown.bases[i].at = j.job.Ranks[i].LogBase
		j.logs = append(j.logs, l)
	}
	return j, nil
}

// Dir returns the directory of a job's files.
func (r *Runner) Dir(id string) string { return filepath.Join(r.cfg.Dir, "jobs", id) }

// Serve sets the rooms that carry out the effects of the job's machine. It is called once, before the machine is made.
func (j *Job) Serve(p Parts) { j.parts = p }

// Load reads the state of the job's machine as an earlier process left it.
func (j *Job) Load(work []byte) error {
	st, err := jobs.Decode(work)
	j.loaded, j.resumed = &st, true
	return err
}

// Resumed reports whether an earlier process began the job.
func (j *Job) Resumed() bool { return j.resumed }

// String returns the id of the job.
func (j *Job) String() string { return j.ID }

// Snapshot returns the job as it stands.
func (j *Job) Snapshot() record.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.job.Clone()
}

// Peek is Snapshot without copies of slices and maps, for reads of the job's own fields.
func (j *Job) Peek() record.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.job
}

// Show changes the job in memory, and reports the result of change. The change reaches the journal with the job's next
// one. Slices and maps of the job are shared, so that change replaces them.
func (j *Job) Show(change func(*record.Job) bool) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return change(&j.job)
}

// See keeps a provider's report of a running program, to show it. It reaches the journal with the job's next change.
func (j *Job) See(rank int, ex *nodepb.Execution) {
	if j.Show(func(of *record.Job) bool {
		live := record.LiveOf(ex)
		if rank >= len(of.Ranks) || live.Equal(of.Ranks[rank].Live) {
			return false
		}
		of.Ranks = slices.Clone(of.Ranks)
		of.Ranks[rank].Live = live
		return true
	}) {
		j.Trace.Poke()
	}
}

// Save changes the job's state beside its machine's, and journals it with more.
func (j *Job) Save(ctx context.Context, change func(*record.Job), more ...store.Put) error {
	_, err := j.Ask(ctx, Event{Puts: more, Amend: Amend(change)})
	return err
}

// As returns the identity that buys the job's leases.
func (j *Job) As() Voice {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.as
}

// SetVoice replaces the identity of a job that has no leases yet.
func (j *Job) SetVoice(v Voice) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.as = v
}

// Running returns the lease and execution of a rank that runs. It returns ErrNoJob for a rank that the job does not
// have, and ErrNotRunning.
func (j *Job) Running(rank int) (*leases.Lease, uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.job
	if rank < 0 || rank >= len(of.Ranks) {
		return nil, 0, fmt.Errorf("%w: job %s has ranks 0 to %d, not %d", record.ErrNoJob, of.ID, len(of.Ranks)-1, rank)
	}
	r, l := of.Ranks[rank], j.seats[rank]
	switch {
	case of.State.Ended() || of.State == record.Settling:
		return nil, 0, fmt.Errorf("%w: the job has %s; `starling get` fetches its outputs, `starling logs` its log",
			record.ErrNotRunning, of.State.Past())
	case r.State != record.RankRunning || l == nil:
		return nil, 0, fmt.Errorf("%w: rank %d of the job is %s", record.ErrNotRunning, rank, r.State)
	}
	return l, r.Seq, nil
}

// Project returns the job as its user sees it in a state of its machine, with the place in each rank's log where the
// log of its execution begins.
func (j *Job) Project(st jobs.State) (record.Job, []int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.shown.project(st)
	bases := make([]int64, len(of.Ranks))
	for i := range of.Ranks {
		bases[i] = j.shown.base(st, i)
	}
	return of, bases
}

// Filled notes the contents of the quotes of an order by their leases, and the time that it took to fill the order.
func (j *Job) Filled(of map[market.LeaseID]Offered, took time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.Copy(j.shown.offers, of)
	j.shown.took = took
}

// Commanded returns the context of work under the present command: it ends when another peer supervises the job.
func (j *Job) Commanded() context.Context {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mandate == nil {
		j.mandate, j.revoke = context.WithCancel(j.runner.ctx)
	}
	return j.mandate
}

// Revoke ends the work under the present command.
func (j *Job) Revoke() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mandate != nil {
		j.revoke()
		j.mandate, j.revoke = nil, nil
	}
}

// Done returns a channel that closes when the job has ended, or the peer stops.
func (j *Job) Done() <-chan struct{} { return j.done }

// Close wakes all waiters for the end of the job's run in this process.
func (j *Job) Close() { j.closing.Do(func() { close(j.done) }) }

// Freeze refuses changes of the job until Thaw, and returns it as it stands.
func (j *Job) Freeze() record.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frozen = true
	return j.job.Clone()
}

// Thaw is the reverse of Freeze: the job stays in memory after all.
func (j *Job) Thaw() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.frozen = false
}

// Context returns the context of the peer's run.
func (j *Job) Context() context.Context { return j.runner.ctx }
