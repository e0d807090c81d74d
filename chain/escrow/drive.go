package escrow

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market/sign"
)

// Machine is Deposit, Hire or Claims: a value whose Step returns the next one. On an error it is unchanged.
type Machine[M any] interface {
	Step(now time.Time, ev Event) (M, []Effect, error)
}

// Do runs one of Sign, Push and Look against the ledger and returns its answer; nil for every other effect. Others sign
// whatever they must beside the ledger's key.
func Do(ctx context.Context, l Ledger, e Effect, others ...sign.Signer) Event {
	switch e := e.(type) {
	case Sign:
		var out Signed
		for _, o := range e.Orders {
			var tx chain.Prepared
			var err error
			in := o.Instructions
			if !o.Full {
				in, err = l.Bid(ctx, in, o.Stake, o.Retries)
			}
			if err == nil {
				tx, err = l.Sign(ctx, in, o.Tables, others...)
			}
			r := SignResult{No: o.No, Tx: tx}
			if err != nil {
				r = SignResult{No: o.No, Err: err.Error(), TooLong: errors.Is(err, chain.ErrPayment)}
			}
			out.Results = append(out.Results, r)
		}
		return out
	case Push:
		return push(ctx, l, e)
	case Look:
		out := Looked{Escrow: e.Escrow}
		for _, at := range []struct {
			level Level
			view  *View
		}{{Finalized, &out.Final}, {Confirmed, &out.Confirmed}} {
			v, err := l.Look(ctx, e.Escrow, e.Tranches, at.level)
			if err != nil {
				return Looked{Escrow: e.Escrow, Err: err.Error()}
			}
			*at.view = v
		}
		return out
	}
	return nil
}

func push(ctx context.Context, l Ledger, e Push) Event {
	out := Pushed{No: e.No}
	if e.Send {
		if err := l.Send(ctx, e.Tx); errors.Is(err, chain.ErrRejected) {
			out.Rejected = err.Error()
		} else if err != nil {
			out.Err = err.Error()
			return out
		}
	}
	status, err := l.Status(ctx, e.Tx)
	if err != nil {
		out.Err, out.Gone = err.Error(), errors.Is(err, chain.ErrHistory)
		return out
	}
	out.Status = status
	return out
}

// Drive steps the machine with ev and with every answer that follows, until there is nothing to do before its Next. It
// returns the effects that are meant for people. save is given the machine as it will be and its state, which must be
// durable when it returns.
//
// On an error of save the machine it returns is not the one in the journal: drop it, and restore. Other errors are
// Step's; the machine is as before the event.
func Drive[M Machine[M]](ctx context.Context, l Ledger, save func(next M, state []byte) error, m M, now time.Time, ev Event, others ...sign.Signer) (M, []Effect, error) {
	var notes []Effect
	events := []Event{ev}
	for len(events) > 0 {
		next, effects, err := m.Step(now, events[0])
		if err != nil {
			return m, notes, err
		}
		m, events = next, events[1:]
		for _, e := range effects {
			if persist, ok := e.(Persist); ok {
				if err := save(next, persist.State); err != nil {
					return m, notes, fmt.Errorf("saving escrow: %w", err)
				}
				continue
			}
			if answer := Do(ctx, l, e, others...); answer != nil {
				events = append(events, answer)
				continue
			}
			notes = append(notes, e)
		}
	}
	return m, notes, nil
}
