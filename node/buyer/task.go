package buyer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
)

// task is a job as a machine of the buyer's runner. The zero value is a job that was not accepted yet.
type task struct {
	jobs.State
	notes  int          // lines of the trace that the machine has made in this process
	before []jobs.Lease // the job's leases as an earlier process left them
}

// event is an event of a job, and records that are journalled with it.
type event struct {
	ev     jobs.Event // nil: there are only records
	begin  *beginning // the job is accepted
	resume bool       // the process was restarted
	puts   []store.Put
	amend  *amendment // of state beside the machine's; nil: none
}

// beginning is a job that this peer accepts: its own, or one that it supervises for another peer.
type beginning struct {
	params  jobs.Params
	owner   bool
	created time.Time
}

// state is the new job's, with its first effects.
func (g beginning) state(now machine.Now) (jobs.State, []jobs.Effect) {
	st, fx := jobs.New(g.params, g.owner, now)
	st.Created = g.created.Round(0).UTC() // as guardians know it
	return st, fx
}

// amendment is a change of the part of a job that its machine does not know. It is made once, as its event is noted for
// the journal: if the write fails, memory is ahead, and the next write has it.
type amendment struct {
	change func(*Job)
	made   bool
}

// Effects of a task beside those of package jobs.
type (
	// changed is the first effect of each step.
	changed struct{ state jobs.State }
	// records are journalled with the step.
	records []store.Put
)

// Step implements machine.Machine.
func (w task) Step(now machine.Now, ev event) (task, []any, error) {
	var fx []jobs.Effect
	var err error
	switch {
	case ev.begin != nil:
		w.State, fx = ev.begin.state(now)
	case ev.resume:
		w.State, fx, err = w.State.Step(now, jobs.Recovered{Leases: w.before})
		w.before = nil
	case ev.ev != nil:
		w.State, fx, err = w.State.Step(now, ev.ev)
	}
	if err != nil {
		return w, nil, err
	}
	out := []any{changed{w.State}, records(ev.puts)}
	if ev.amend != nil {
		out = append(out, ev.amend)
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

// String returns the id of the job.
func (s *supervisor) String() string { return s.trace.Job }

// desk is the shell of the machines of jobs. Nothing of it takes the buyer's mutex.
type desk struct {
	b      *Buyer
	runner *machine.Runner[*supervisor, task, event, any]
	slot   atomic.Uint64   // last known
	ctx    context.Context // of Run; set before the runner runs
}

func newDesk(ctx context.Context, b *Buyer) (d *desk, err error) {
	d = &desk{b: b}
	d.runner, err = machine.New(ctx, d, machine.Config[event]{
		Name: "job", Store: b.cfg.Store, Clock: d.now, Resume: event{resume: true}, Tick: event{ev: jobs.Ticked{}},
		Log: b.cfg.Log,
	})
	return d, err
}

// now is the time. Jobs go on while the chain's slot is not known, by the last one that was.
func (d *desk) now() (machine.Now, error) {
	now := time.Now()
	if slot, err := d.b.cfg.Slots.Now(now); err == nil {
		d.slot.Store(uint64(slot))
	}
	return machine.Now{Time: now, Slot: market.Slot(d.slot.Load())}, nil
}

// Load implements machine.Shell. The jobs and their leases were read before.
func (d *desk) Load(_ context.Context, add func(*supervisor, task)) error {
	for _, s := range d.b.jobs {
		d := s.driver
		if d.loaded == nil {
			continue
		}
		w := task{State: *d.loaded}
		if !s.mine { // it waits to be appointed again
			w.Command.Lost = true
		}
		for _, l := range s.paid {
			if !l.Alive() {
				l.Expire(leases.LostAway) // but its work may have ended well before
			}
			w.before = append(w.before, factOf(l))
			if s.guard == nil && l.First == l.ID && l.Alive() {
				d.chains.watch(l)
			}
		}
		d.loaded = nil
		add(s, w)
	}
	return nil
}

// run serves the jobs until ctx ends.
func (d *desk) run(ctx context.Context) {
	if err := d.runner.Run(ctx); err != nil {
		d.b.cfg.Log.Error("jobs are not gone on with; start the peer again", "err", err)
	}
	for _, s := range d.runner.Keys() {
		s.close()
	}
}

// Record implements machine.Shell.
func (d *desk) Record(b *journal.Batch, s *supervisor, old, next task, effects []any) {
	s.driver.record(b, old, next, effects)
}

// Carry implements machine.Shell.
func (d *desk) Carry(s *supervisor, f any) func(context.Context) []event {
	switch f := f.(type) {
	case changed:
		s.driver.changed(f.state)
	case jobs.Answer:
		s.driver.answer(f)
	case jobs.PollProvider:
		s.driver.execs.poll(f)
	case jobs.CheckResults:
		d.b.wg.Go(func() { d.b.checks.Check(d.ctx, checked{s}) })
	case jobs.OrderGang:
		s.driver.orders.place(f)
	case jobs.CancelGang:
		s.driver.orders.cancel(f)
	case jobs.StartExecution:
		s.driver.execs.begin(f)
	case jobs.StopExecution:
		s.driver.execs.halt(f)
	case jobs.GatherOutputs:
		s.driver.execs.gather(f)
	case jobs.ReclaimExecution:
		s.driver.execs.reclaim(f)
	case jobs.EndLease:
		s.driver.chains.end(f)
	case jobs.RenewLease:
		s.driver.chains.renew(f)
	case jobs.ReportFault:
		s.driver.chains.fault(f)
	case jobs.Reduce:
		s.driver.reduceRound(f)
	case jobs.CloseAccount:
		s.driver.closeAccount()
	case jobs.EngageGuardians:
		s.driver.guards.engage()
	case jobs.LeaveLeases:
		s.driver.guards.leave()
	case jobs.AcquireCommand:
		s.driver.guards.acquire()
	case jobs.DismissGuardians:
		s.driver.guards.dismiss()
	}
	return nil
}
