// Package ledger drives a provider's lease book: it journals each step before the step's effects leave.
//
// The book decides about holds and leases and has no clock, disk or network. [Ledger] gives it the time, keeps its
// records, and hands its effects to a [Carrier] in their order.
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/journal"
)

// Clock returns the current slot. slots.Clock implements it.
type Clock interface {
	Now(at time.Time) (market.Slot, error)
}

// Carrier carries out the effects of steps. It is called by one goroutine at a time, and must not wait or call Step.
type Carrier interface {
	// Unpaid adds the records of units that were not paid for to the batch of their step. done, which may be nil, is
	// called after the commit.
	Unpaid(e lease.Unpaid, b *journal.Batch) (done func())
	// Stepped is called after each step that is journalled, before its effects.
	Stepped(before lease.Book, ev lease.Event, effects []lease.Effect)
	// Activate begins the metering of a lease.
	Activate(r lease.Record)
	// End ends the work of a lease.
	End(r lease.Record, reason string)
	// Changed is called when the free units have changed.
	Changed()
}

// table has the holds and leases of the book: a lease.Record each, which package lease encodes and checks.
var table = journal.Define[market.HoldID, json.RawMessage]("hold")

// Ledger is a lease book with its journal.
type Ledger struct {
	store   journal.Store
	clock   Clock
	carrier Carrier

	mu   sync.Mutex // of steps
	book atomic.Pointer[lease.Book]
}

// New returns the ledger of a book, with the records of an earlier process.
func New(ctx context.Context, s journal.Store, clock Clock, book lease.Book, carrier Carrier) (*Ledger, error) {
	var recs []lease.Record
	err := table.List(ctx, s, "", func(id market.HoldID, b json.RawMessage) error {
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
		return nil, fmt.Errorf("reading the holds: %w", err)
	}
	if book, err = book.Restore(recs); err != nil {
		return nil, fmt.Errorf("restoring the holds: %w", err)
	}
	l := &Ledger{store: s, clock: clock, carrier: carrier}
	l.book.Store(&book)
	return l, nil
}

// Book returns the book as it stands. It does not change.
func (l *Ledger) Book() lease.Book { return *l.book.Load() }

// Change replaces the book by one with other settings. Holds and leases must stay.
func (l *Ledger) Change(f func(lease.Book) (lease.Book, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, err := f(l.Book())
	if err == nil {
		l.book.Store(&next)
	}
	return err
}

// Resume carries out the effects that an earlier process may not have carried out.
func (l *Ledger) Resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carry(l.Book().Resume())
}

// Step takes the book one event further, journals the step and carries out its effects. It returns the answer for the
// caller. After an error the book is as before, and nothing was promised.
func (l *Ledger) Step(ctx context.Context, ev lease.Event) (lease.Effect, error) {
	slot, err := l.clock.Now(time.Now())
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.Book()
	next, effects, err := before.Step(lease.Now{Time: time.Now(), Slot: slot}, ev)
	if err != nil {
		return nil, err
	}
	if err := l.record(ctx, effects); err != nil {
		return nil, fmt.Errorf("journalling a hold: %w", err)
	}
	l.book.Store(&next)
	l.carrier.Stepped(before, ev, effects)
	return l.carry(effects), nil
}

// record writes all records of a step at once, before any of its answers.
func (l *Ledger) record(ctx context.Context, effects []lease.Effect) error {
	var b journal.Batch
	var unpaid []func()
	for _, e := range effects {
		switch e := e.(type) {
		case lease.Persist:
			raw, err := e.Record.Marshal()
			if err != nil {
				return err
			}
			table.Put(&b, e.Record.ID, raw)
		case lease.Forget:
			table.Delete(&b, e.Hold)
		case lease.Unpaid:
			if done := l.carrier.Unpaid(e, &b); done != nil {
				unpaid = append(unpaid, done)
			}
		}
	}
	if b.Len() == 0 {
		return nil
	}
	if err := b.Commit(ctx, l.store); err != nil {
		return err
	}
	for _, done := range unpaid {
		done()
	}
	return nil
}

// carry carries out effects in order, and returns the answer to the caller.
func (l *Ledger) carry(effects []lease.Effect) (answer lease.Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case lease.Persist, lease.Forget, lease.Unpaid: // journalled
		case lease.Activate:
			l.carrier.Activate(e.Record)
		case lease.EndLease:
			if r, ok := l.Book().Lease(e.Lease); ok {
				l.carrier.End(r, e.Reason)
			}
		case lease.UnitsFreed:
			l.carrier.Changed()
		case lease.AnswerHeld:
			l.carrier.Changed()
			answer = e
		default:
			answer = e
		}
	}
	return answer
}
