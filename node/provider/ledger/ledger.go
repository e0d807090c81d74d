// Package ledger runs a provider's lease book: its steps are durable before their effects leave.
//
// The book decides about holds and leases and has no clock, disk or network. [Ledger] is its runner: one machine of
// package machine, so that the steps of many buyers share a write. The lapses of buyers are part of the machine, as a
// lapse is journalled with the step that shows it.
//
//	Step, Change, Paid ──▶ inbox ──▶ Book.Step, Lapses ──▶ one write a turn ──▶ Carrier, answers
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/provider/lapses"
)

// Clock returns the current slot. slots.Clock implements it.
type Clock interface {
	Now(at time.Time) (market.Slot, error)
}

// Carrier carries out the effects of steps, in order and one at a time. It must not wait or use the Ledger's Step,
// Change and Paid.
type Carrier interface {
	// Stepped is called after each step of the book that is durable, before its effects.
	Stepped(before lease.Book, ev lease.Event, effects []lease.Effect)
	// Activate begins the metering of a lease.
	Activate(r lease.Record)
	// End ends the work of a lease.
	End(r lease.Record, reason string)
	// Changed is called when the book's offer has changed: free units, prices, or units for sale.
	Changed()
}

// Config is the configuration of a Ledger.
type Config struct {
	Store   journal.Store
	Clock   Clock
	Book    lease.Book // without records
	Carrier Carrier
	Every   time.Duration // between ticks of the book while it has records
	Lapses  bool          // units that were not paid for are counted
	Log     *slog.Logger
}

// table has the holds and leases of the book: a lease.Record each, which package lease encodes and checks.
var table = journal.Define[market.HoldID, json.RawMessage]("hold")

// ErrBusy means that too many steps wait. The event was not taken.
var ErrBusy = machine.ErrBusy

// name is the key of the only machine.
const name = "book"

// Ledger is a lease book with its journal. New starts nothing; Run does.
type Ledger struct {
	clock  Clock
	runner *machine.Runner[string, books, event, effect]
	begun  atomic.Bool // Run was called
}

// New returns the ledger of a book, with the records of an earlier process.
func New(ctx context.Context, cfg Config) (*Ledger, error) {
	l := &Ledger{clock: cfg.Clock}
	var err error
	l.runner, err = machine.New(ctx, shell{cfg}, machine.Config[event]{
		Name: "lease book", Store: cfg.Store, Log: cfg.Log, Resume: resumed{}, Tick: stepped{ev: lease.Ticked{}},
		Clock: func() (machine.Now, error) {
			now := machine.Now{Time: time.Now()}
			if slot, err := cfg.Clock.Now(now.Time); err == nil {
				now.Slot = slot // else 0: a tick does nothing then
			}
			return now, nil
		},
	})
	return l, err
}

// Run serves the book until ctx ends. It first carries out the effects that an earlier process may not have carried
// out. It returns an error if the journal is broken.
func (l *Ledger) Run(ctx context.Context) error {
	l.begun.Store(true)
	return l.runner.Run(ctx)
}

// Resumed waits until Run has carried out the effects of an earlier process.
func (l *Ledger) Resumed(ctx context.Context) error { return l.ask(ctx, resumed{waits: true}) }

// state returns the machine as journalled. The runner has it from New on.
func (l *Ledger) state() books {
	b, _, _ := l.runner.Get(name)
	return b
}

// Book returns the book as it stands. It does not change.
func (l *Ledger) Book() lease.Book { return l.state().book }

// Lapses returns the lapses of buyers as they stand.
func (l *Ledger) Lapses() lapses.Lapses { return l.state().lapses }

// Step takes the book one event further. Its step is durable and its effects are carried out when it returns the answer
// for the caller. It returns slots.ErrUnknown if the slot is unknown, the book's error for an event that is none of
// its state, and errors of package machine. After an error that is not machine.ErrStopped the book is as before.
func (l *Ledger) Step(ctx context.Context, ev lease.Event) (lease.Effect, error) {
	slot, err := l.clock.Now(time.Now())
	if err != nil {
		return nil, err
	}
	effects, err := l.runner.Ask(ctx, name, stepped{ev, slot})
	if err != nil {
		return nil, fmt.Errorf("lease book: %w", err)
	}
	for _, e := range effects {
		if a, ok := e.(answer); ok {
			return a.Effect, nil
		}
	}
	return nil, nil
}

// Change replaces the book by one with other settings. Holds and leases must stay. Before Run the change is only
// queued.
func (l *Ledger) Change(f func(lease.Book) (lease.Book, error)) error {
	return l.set(context.Background(), changed{f})
}

// Paid forgets the lapses of a peer that paid. Before Run this is only queued.
func (l *Ledger) Paid(ctx context.Context, peer sign.Key) error {
	return l.set(ctx, paid{peer})
}

// set sends an event, and waits for its step unless Run has not begun.
func (l *Ledger) set(ctx context.Context, ev event) error {
	if !l.begun.Load() {
		return l.runner.Post(name, ev)
	}
	return l.ask(ctx, ev)
}

func (l *Ledger) ask(ctx context.Context, ev event) error {
	_, err := l.runner.Ask(ctx, name, ev)
	return err
}

// shell connects the book with the journal and the provider.
type shell struct{ cfg Config }

// Load implements machine.Shell.
func (s shell) Load(ctx context.Context, add func(string, books)) error {
	var recs []lease.Record
	err := table.List(ctx, s.cfg.Store, "", func(id market.HoldID, b json.RawMessage) error {
		r, err := lease.UnmarshalRecord(b)
		if err == nil && r.ID != id {
			err = errors.New("record of another hold")
		}
		if err != nil {
			return fmt.Errorf("hold %s: %w", id, err)
		}
		recs = append(recs, r)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the holds: %w", err)
	}
	b := books{every: s.cfg.Every, counts: s.cfg.Lapses}
	if b.book, err = s.cfg.Book.Restore(recs); err != nil {
		return fmt.Errorf("restoring the holds: %w", err)
	}
	if b.lapses, err = lapses.Load(ctx, s.cfg.Store, time.Now()); err != nil {
		return fmt.Errorf("reading the lapses: %w", err)
	}
	add(name, b)
	return nil
}

// Record implements machine.Shell.
func (s shell) Record(b *journal.Batch, _ string, _, _ books, effects []effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case put:
			table.Put(b, e.hold, e.record)
		case forget:
			table.Delete(b, e.Hold)
		case lapse:
			e.Put(b)
		}
	}
}

// Carry implements machine.Shell.
func (s shell) Carry(_ string, e effect) func(context.Context) []event {
	switch e := e.(type) {
	case noted:
		s.cfg.Carrier.Stepped(e.before, e.ev, e.effects)
	case activate:
		s.cfg.Carrier.Activate(e.Record)
	case end:
		s.cfg.Carrier.End(e.record, e.reason)
	case offered:
		s.cfg.Carrier.Changed()
	}
	return nil
}
