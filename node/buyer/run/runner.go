package run

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/node/webhook"
	work "github.com/starling-network/starling/node/workload"
)

// Clock returns the chain's slot.
type Clock interface {
	Now(t time.Time) (market.Slot, error)
}

// News reports the states of jobs to their users.
type News interface {
	// Of returns the reports of a job's new state, and their records.
	Of(j record.Job) ([]webhook.Delivery, []store.Put)
	// Added sends reports whose records are in the journal.
	Added(reports ...webhook.Delivery)
}

// Config is the surroundings of a Runner. All of it is required.
type Config struct {
	Genesis market.Genesis
	Store   store.Store
	Clock   Clock
	News    News
	Dir     string // of the peer's files
	Log     *slog.Logger
}

// Runner runs the machines of jobs. It takes no mutex of its callers.
type Runner struct {
	cfg      Config
	machines *machine.Runner[*Job, task, Event, any]
	slot     atomic.Uint64   // last known
	ctx      context.Context // of Run
}

// New makes a runner. Its jobs are opened before Restore.
func New(cfg Config) *Runner { return &Runner{cfg: cfg} }

// Restore makes the machines of the jobs that were loaded.
func (r *Runner) Restore(ctx context.Context, all []*Job) (err error) {
	if r.machines, err = machine.New(ctx, shell{r, all}, machine.Config[Event]{
		Name: "job", Store: r.cfg.Store, Clock: r.Now, Resume: Event{resume: true}, Tick: Event{Ev: jobs.Ticked{}},
		Log: r.cfg.Log,
	}); err != nil {
		return err
	}
	for _, j := range all {
		for _, l := range j.all {
			if j.resumed && j.job.Detached == nil && l.First == l.ID && l.Alive() {
				j.Watch(l) // which reports to a machine, at once if its line is over
			}
		}
	}
	return nil
}

// Start sets the context of the jobs' work. It comes before Run.
func (r *Runner) Start(ctx context.Context) { r.ctx = ctx }

// Context returns the context of the jobs' work, or nil before Start.
func (r *Runner) Context() context.Context { return r.ctx }

// Run serves the jobs until the context of Start ends.
func (r *Runner) Run() {
	if err := r.machines.Run(r.ctx); err != nil {
		r.cfg.Log.Error("jobs are not gone on with; start the peer again", "err", err)
	}
	for _, j := range r.machines.Keys() {
		j.Close()
	}
}

// Now returns the time and the slot. If the chain's slot is unknown, jobs continue with the last known slot.
func (r *Runner) Now() (machine.Now, error) {
	now := time.Now()
	if slot, err := r.cfg.Clock.Now(now); err == nil {
		r.slot.Store(uint64(slot))
	}
	return machine.Now{Time: now, Slot: market.Slot(r.slot.Load())}, nil
}

// DiskUse returns the bytes of a job's files.
func (r *Runner) DiskUse(id string) int64 { return work.DiskUse(r.Dir(id)) }

// Remove removes the machine of a job that has ended.
func (r *Runner) Remove(j *Job) { r.machines.Remove(j) }

// Post reports events to the job's machine. A stopping runner drops them: the next process posts them again.
func (j *Job) Post(events ...jobs.Event) {
	for _, ev := range events {
		j.Report(Event{Ev: ev})
	}
}

// Report is Post for an event with records.
func (j *Job) Report(ev Event) { _ = j.runner.machines.Post(j, ev) }

// Ask sends an event to the job's machine, and returns the effects, a Changed first, once they are journalled. It
// returns the machine's refusal, or ErrNotRunning for a job that is frozen.
func (j *Job) Ask(ctx context.Context, ev Event) ([]any, error) {
	j.mu.Lock()
	frozen := j.frozen
	j.mu.Unlock()
	if frozen {
		return nil, fmt.Errorf("journalling job %s: %w: it has ended", j.ID, record.ErrNotRunning)
	}
	return j.runner.machines.Ask(ctx, j, ev)
}

// State returns the state of the job's machine.
func (j *Job) State() (jobs.State, error) {
	w, _, err := j.runner.machines.Get(j)
	return w.State, err
}

// Until waits until the state of the job's machine is as wanted, and returns it.
func (j *Job) Until(ctx context.Context, wanted func(jobs.State) bool) (jobs.State, error) {
	w, err := j.runner.machines.Until(ctx, j, func(w task) bool { return wanted(w.State) })
	return w.State, err
}

// Redial is the pause before a provider that broke off is called again.
const Redial = executions.Redial

// Retry is how often a journal that fails is tried again.
const Retry = time.Second

// Pause returns after d, or with the error of a context that ends before.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
