package ledger

import (
	"encoding/json"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/provider/lapses"
)

// books is the machine of a Ledger.
type books struct {
	book   lease.Book
	lapses lapses.Lapses
	counts bool          // lapses are counted
	every  time.Duration // between ticks
	ticked time.Time     // the last tick
}

// event is an event of books.
type event interface{ event() }

type (
	// stepped is an event of the book. Its slot is that of its caller; 0 means that of the runner.
	stepped struct {
		ev   lease.Event
		slot market.Slot
	}
	// changed sets the book's settings.
	changed struct {
		to func(lease.Book) (lease.Book, error)
	}
	// paid is a payment by a peer.
	paid struct{ peer sign.Key }
	// resumed begins a process. With waits it does nothing.
	resumed struct{ waits bool }
)

func (stepped) event() {}
func (changed) event() {}
func (paid) event()    {}
func (resumed) event() {}

// effect is an effect of books.
type effect interface{ effect() }

type (
	// put, forget and lapse are records to write.
	put struct {
		hold   market.HoldID
		record json.RawMessage
	}
	forget struct{ lease.Forget }
	lapse  struct{ lapses.Change }
	// noted is a step of the book.
	noted struct {
		before  lease.Book
		ev      lease.Event
		effects []lease.Effect
	}
	activate struct{ lease.Activate }
	end      struct {
		record lease.Record
		reason string
	}
	// offered notifies the offers of a change.
	offered struct{}
	// answer is the book's answer to the caller.
	answer struct{ lease.Effect }
)

func (put) effect()      {}
func (forget) effect()   {}
func (lapse) effect()    {}
func (noted) effect()    {}
func (activate) effect() {}
func (end) effect()      {}
func (offered) effect()  {}
func (answer) effect()   {}

// Step implements machine.Machine.
func (b books) Step(now machine.Now, ev event) (next books, effects []effect, err error) {
	switch ev := ev.(type) {
	case stepped:
		return b.step(machine.Now{Time: now.Time, Slot: max(now.Slot, ev.slot)}, ev.ev)
	case changed:
		b.book, err = ev.to(b.book)
		return b, []effect{offered{}}, err
	case paid:
		var changes []lapses.Change
		b.lapses, changes = b.lapses.Paid(ev.peer)
		return b, recorded(nil, changes), nil
	case resumed:
		if ev.waits {
			return b, nil, nil
		}
		effects, err = b.effects(nil, b.book.Resume(), now.Time)
		return b, effects, err
	}
	return b, nil, nil
}

// step takes the book one event further.
func (b books) step(now machine.Now, ev lease.Event) (books, []effect, error) {
	if _, tick := ev.(lease.Ticked); tick {
		b.ticked = now.Time
		if now.Slot == 0 {
			return b, nil, nil // the slot is unknown
		}
	}
	before := b.book
	var of []lease.Effect
	var err error
	if b.book, of, err = before.Step(now, ev); err != nil {
		return b, nil, err
	}
	effects, err := b.effects([]effect{noted{before, ev, of}}, of, now.Time)
	return b, effects, err
}

// recorded appends the records of lapses.
func recorded(effects []effect, changes []lapses.Change) []effect {
	for _, c := range changes {
		effects = append(effects, lapse{c})
	}
	return effects
}

// effects appends the effects of the book after its step, and counts units that were not paid for.
func (b *books) effects(effects []effect, of []lease.Effect, now time.Time) ([]effect, error) {
	for _, e := range of {
		switch e := e.(type) {
		case lease.Unpaid:
			if b.counts {
				var changes []lapses.Change
				b.lapses, changes = b.lapses.Unpaid(e, now)
				effects = recorded(effects, changes)
			}
		case lease.Persist:
			raw, err := e.Record.Marshal()
			if err != nil {
				return nil, err
			}
			effects = append(effects, put{e.Record.ID, raw})
		case lease.Forget:
			effects = append(effects, forget{e})
		case lease.Activate:
			effects = append(effects, activate{e})
		case lease.EndLease:
			if r, ok := b.book.Lease(e.Lease); ok {
				effects = append(effects, end{r, e.Reason})
			}
		case lease.UnitsFreed:
			effects = append(effects, offered{})
		case lease.AnswerHeld:
			effects = append(effects, offered{}, answer{e})
		default:
			effects = append(effects, answer{e})
		}
	}
	return effects, nil
}

// Next implements machine.Machine: holds and leases expire with ticks.
func (b books) Next(machine.Now) time.Time {
	for range b.book.Records() {
		return b.ticked.Add(b.every)
	}
	return time.Time{}
}

// Done implements machine.Machine. A provider's book is never done.
func (books) Done() bool { return false }
