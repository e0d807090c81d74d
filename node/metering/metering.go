package metering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// Machine is one side of a lease: meter.Payer or meter.Seller.
type Machine[M any] interface {
	Step(now market.Slot, ev meter.Event) (M, []meter.Effect, error)
	Resume(now market.Slot) (M, []meter.Effect, error)
	// Settled reports whether the lease is settled for this side.
	Settled() bool
}

// Lease is one lease of this peer. Its String names it in logs.
type Lease[M any] interface {
	comparable
	fmt.Stringer
	// Complete adds the journal records of a step, and removes the effects that need nothing else. An error refuses the
	// event. It may sign with a local key, and must not block otherwise.
	Complete(s *Step[M]) error
	// Stepped is called with each step that is durable, in order and one at a time. It must not wait for a disk, the
	// network, or a lock held over either. It may return a function that does, to run in a separate goroutine.
	Stepped(s Step[M]) (later func(context.Context))
}

// Step is the result of one event.
type Step[M any] struct {
	Now      machine.Now
	Meter    M                // after the event
	Effects  []meter.Effect   // in order
	Receipts []verify.Receipt // complete with this step
	Records  []store.Put      // for the journal
}

// Clock returns the chain's slot. slots.Clock is one.
type Clock interface {
	Now(at time.Time) (market.Slot, error)
}

// Config is the configuration of Meters. All of it is required.
type Config struct {
	Name  string // of the side, for errors and logs
	Store journal.Store
	Clock Clock
	Log   *slog.Logger
}

// Meters runs one side of this peer's leases. All of its methods may be called from many goroutines at once.
type Meters[K Lease[M], M Machine[M]] struct {
	log    *slog.Logger
	runner *machine.Runner[K, metered[K, M], event, Step[M]]
}

// event is an event for a machine.
type event struct {
	meter meter.Event   // if nil, the machine resumes
	puts  []store.Put   // of the caller, in the same write
	every time.Duration // period of ticks from now on; 0 leaves it
}

// metered is the machine of a lease.
type metered[K Lease[M], M Machine[M]] struct {
	lease K
	m     M
	every time.Duration // between ticks; 0 means none
	begun bool          // it took an event
}

// Step implements machine.Machine.
func (x metered[K, M]) Step(now machine.Now, ev event) (metered[K, M], []Step[M], error) {
	s := Step[M]{Now: now}
	var err error
	if ev.meter == nil {
		s.Meter, s.Effects, err = x.m.Resume(now.Slot)
	} else {
		s.Meter, s.Effects, err = x.m.Step(now.Slot, ev.meter)
	}
	if err == nil {
		err = x.lease.Complete(&s)
	}
	if err != nil {
		return x, nil, err
	}
	s.Records = slices.Concat(ev.puts, s.Records)
	x.m, x.begun = s.Meter, true
	if ev.every > 0 {
		x.every = ev.every
	}
	return x, []Step[M]{s}, nil
}

// Next implements machine.Machine.
func (x metered[K, M]) Next(now machine.Now) time.Time {
	if x.every == 0 || x.Done() {
		return time.Time{}
	}
	return now.Time.Add(x.every)
}

// Done implements machine.Machine.
func (x metered[K, M]) Done() bool { return !x.begun || x.m.Settled() }

// shell connects the machines with the journal and their leases.
type shell[K Lease[M], M Machine[M]] struct{}

// Load implements machine.Shell. Leases are added one by one: other records decide which of them go on.
func (shell[K, M]) Load(context.Context, func(K, metered[K, M])) error { return nil }

// Record implements machine.Shell.
func (shell[K, M]) Record(b *journal.Batch, _ K, _, _ metered[K, M], steps []Step[M]) {
	for _, s := range steps {
		b.Add(s.Records...)
	}
}

// Carry implements machine.Shell.
func (shell[K, M]) Carry(k K, s Step[M]) func(context.Context) []event {
	later := k.Stepped(s)
	if later == nil {
		return nil
	}
	return func(ctx context.Context) []event {
		later(ctx)
		return nil
	}
}

// New returns Meters without leases. It starts nothing.
func New[K Lease[M], M Machine[M]](cfg Config) *Meters[K, M] {
	r, err := machine.New(context.Background(), shell[K, M]{}, machine.Config[event]{
		Name: cfg.Name, Store: cfg.Store, Tick: event{meter: meter.Ticked{}}, Log: cfg.Log,
		Clock: func() (machine.Now, error) {
			now := time.Now()
			slot, err := cfg.Clock.Now(now)
			return machine.Now{Time: now, Slot: slot}, err
		},
	})
	if err != nil {
		panic(err) // nothing is loaded
	}
	return &Meters[K, M]{log: cfg.Log, runner: r}
}

// Run runs the machines until ctx ends, and returns after all that it started. Events before Run wait for it.
func (s *Meters[K, M]) Run(ctx context.Context) {
	err := s.runner.Run(ctx)
	switch {
	case errors.Is(err, machine.ErrPanic): // a fault of the program: no work may continue unmetered
		panic(err)
	case err != nil:
		s.log.Error("metering ends until the peer is started again", "err", err)
	}
}

// Add adds the machine of a lease, unless there is one.
func (s *Meters[K, M]) Add(k K, m M) { s.runner.Add(k, metered[K, M]{lease: k, m: m}) }

// Step sends an event to the machine of a lease. Once the step and the caller's records are durable, it returns the
// effects that remain. It returns the errors of the machine and of the runner.
func (s *Meters[K, M]) Step(ctx context.Context, k K, ev meter.Event, puts ...store.Put) ([]meter.Effect, error) {
	return s.ask(ctx, k, event{meter: ev, puts: puts})
}

// Resume is Step for a machine that was restored from the journal: it returns all effects that may be outstanding.
func (s *Meters[K, M]) Resume(ctx context.Context, k K) ([]meter.Effect, error) {
	return s.ask(ctx, k, event{})
}

func (s *Meters[K, M]) ask(ctx context.Context, k K, ev event) ([]meter.Effect, error) {
	steps, err := s.runner.Ask(ctx, k, ev)
	if err != nil {
		return nil, err
	}
	return steps[0].Effects, nil
}

// Watch resumes a machine, and ticks it from then on until its lease is settled: after each period without an event.
// It does not wait, and returns machine.ErrUnknown or machine.ErrStopped.
func (s *Meters[K, M]) Watch(k K, every time.Duration) error {
	return s.runner.Post(k, event{every: every})
}

// Remove removes a machine that has nothing to do because it took no event or its lease is settled. It reports whether
// it did.
func (s *Meters[K, M]) Remove(k K) bool {
	_, ok := s.runner.Remove(k)
	return ok
}

// Drop removes the machine of a lease, which must not be added again: events under way are still taken, and no others.
func (s *Meters[K, M]) Drop(k K) { s.runner.Drop(k) }
