package run

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
)

// task is a job as a machine of the runner. The zero value is a job that was not accepted yet.
type task struct {
	jobs.State
	notes  int          // lines of the trace that the machine has made in this process
	before []jobs.Lease // the job's leases as an earlier process left them
}

// Event is an event of a job, and records that are journalled with it.
type Event struct {
	Ev    jobs.Event // optional; if nil, there are only records
	Puts  []store.Put
	Amend *Amendment // of state beside the machine's; optional

	begin  *Beginning // the job is accepted
	resume bool       // the process was restarted
}

// Beginning is a job that this peer accepts: its own, or one that it supervises for another peer.
type Beginning struct {
	Params  jobs.Params
	Owner   bool
	Created time.Time
}

// State returns the new job's state, with its first effects.
func (g Beginning) State(now machine.Now) (jobs.State, []jobs.Effect) {
	st, fx := jobs.New(g.Params, g.Owner, now)
	st.Created = g.Created.Round(0).UTC() // as guardians know it
	return st, fx
}

// Amendment is a change of the part of a job outside its machine. It is applied once, when its event is prepared for
// the journal. If the write fails, memory is ahead, and the next write contains it.
type Amendment struct {
	change func(*record.Job)
	made   bool
}

// Amend returns an amendment.
func Amend(change func(*record.Job)) *Amendment { return &Amendment{change: change} }

// Effects of a task beside those of package jobs.
type (
	// Changed is the first effect of each step.
	Changed struct{ State jobs.State }
	// records are journalled with the step.
	records []store.Put
)

// Step implements machine.Machine.
func (w task) Step(now machine.Now, ev Event) (task, []any, error) {
	var fx []jobs.Effect
	var err error
	switch {
	case ev.begin != nil:
		w.State, fx = ev.begin.State(now)
	case ev.resume:
		w.State, fx, err = w.State.Step(now, jobs.Recovered{Leases: w.before})
		w.before = nil
	case ev.Ev != nil:
		w.State, fx, err = w.State.Step(now, ev.Ev)
	}
	if err != nil {
		return w, nil, err
	}
	out := []any{Changed{w.State}, records(ev.Puts)}
	if ev.Amend != nil {
		out = append(out, ev.Amend)
	}
	for _, f := range fx {
		if _, ok := f.(jobs.Note); ok {
			w.notes++
		}
		out = append(out, f)
	}
	return w, out, nil
}

// Next implements machine.Machine.
func (w task) Next(machine.Now) time.Time { return w.State.Next() }

// Done implements machine.Machine.
func (w task) Done() bool { return w.Phase == 0 || w.State.Done() }

// Begin journals a new job with more, and starts its machine.
func (r *Runner) Begin(ctx context.Context, j *Job, b Beginning, more []store.Put) error {
	r.machines.Add(j, task{})
	// The job is refused or begun, whether its submitter waits or not.
	if _, err := r.machines.Ask(context.WithoutCancel(ctx), j, Event{begin: &b, Puts: more}); err != nil {
		r.machines.Remove(j)
		return fmt.Errorf("journalling job %s: %w", j.ID, err)
	}
	return nil
}

// shell is the shell of the jobs' machines.
type shell struct {
	*Runner
	loaded []*Job
}

// Load implements machine.Shell. The jobs and their leases were read before.
func (r shell) Load(_ context.Context, add func(*Job, task)) error {
	for _, j := range r.loaded {
		if j.loaded == nil {
			continue
		}
		w := task{State: *j.loaded}
		if !j.Mine { // it waits to be appointed again
			w.Command.Lost = true
		}
		for _, l := range j.all {
			if !l.Alive() {
				l.Expire(leases.LostAway) // but its work may have ended well before
			}
			w.before = append(w.before, FactOf(l))
		}
		j.loaded = nil
		add(j, w)
	}
	return nil
}

// Record implements machine.Shell.
func (shell) Record(b *journal.Batch, j *Job, old, next task, effects []any) {
	j.shown.record(b, old, next, effects)
}

// Carry implements machine.Shell.
func (shell) Carry(j *Job, f any) func(context.Context) []Event {
	switch f := f.(type) {
	case Changed:
		j.shown.changed(f.State)
	case jobs.Answer:
		j.answer(f)
	case jobs.Effect:
		j.parts.Carry(f)
	}
	return nil
}

// record notes a step for the journal: the job as its user sees it, the machine's state, and new lines of the trace.
func (p *projection) record(b *journal.Batch, old, next task, effects []any) {
	j := p.job
	j.mu.Lock()
	defer j.mu.Unlock()
	at, more := old.notes, false
	for _, f := range effects {
		switch f := f.(type) {
		case records:
			b.Add(f...)
			more = more || len(f) > 0
		case *Amendment:
			if more = true; !f.made { // else the write of it failed, and is repeated
				of := j.job.Clone()
				f.change(&of)
				j.job, f.made = of, true
			}
		case jobs.Note:
			if at >= p.noted { // else the write of it failed, and is repeated
				p.noted = at + 1
				p.note(next.State, f)
			}
			at, more = at+1, true
		}
	}
	state, err := next.State.Encode()
	if err != nil { // a State always encodes
		j.runner.cfg.Log.Error("a job's state cannot be journalled", "job", j.ID, "err", err)
	}
	sum := sha256.Sum256(state)
	news := sum != p.written || sum != p.candidate
	if p.candidate = sum; !news && !more {
		return
	}
	of := p.project(next.State)
	rec := record.Record{Job: of}
	if next.Phase != jobs.Ended {
		rec.Work = state
	}
	record.Records.Put(b, of.ID, rec)
	if of.State != record.StateOf(old.State) {
		reports, puts := j.runner.cfg.News.Of(of)
		p.deliveries[of.State] = reports
		b.Add(puts...)
	}
	var steps []store.Put
	steps, p.upTo = j.Trace.Pending()
	b.Add(steps...)
}

// changed applies a journalled state of the job's machine.
func (p *projection) changed(st jobs.State) {
	j := p.job
	j.mu.Lock()
	before := j.job.State
	j.job, p.phase = p.project(st), st.Phase
	j.seatLocked(st)
	p.written = p.candidate
	of, reports, upTo := j.job, p.deliveries[j.job.State], p.upTo
	delete(p.deliveries, j.job.State)
	j.mu.Unlock()
	j.parts.Changed(st)
	j.Trace.Written(upTo)
	j.runner.cfg.News.Added(reports...)
	j.Trace.Poke()
	if st.Phase < jobs.Settling {
		return
	}
	j.EndLogs() // their followers need not wait until all is paid
	if of.State != before {
		j.runner.cfg.Log.Info("job's work has ended", "job", of.ID, "state", of.State, "outcome", of.Outcome,
			"reason", of.Reason)
	}
	if st.Phase == jobs.Ended {
		j.Trace.Retire()
	}
	if st.Phase == jobs.Ended && !st.Params.Guarded { // its guardians are dismissed first
		j.Close()
		j.parts.Ended()
	}
}
