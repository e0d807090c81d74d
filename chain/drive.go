package chain

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Do runs one of Prepare, Send and Poll against the ledger and returns its answer; nil for every other effect.
func Do(ctx context.Context, l Ledger, e Effect) Event {
	switch e := e.(type) {
	case Prepare:
		tx, err := l.Prepare(ctx, e.Payment)
		if err != nil {
			return PrepareFailed{Batch: e.Batch, Reason: err.Error()}
		}
		return PaymentPrepared{Batch: e.Batch, Tx: tx}
	case Send:
		if err := l.Send(ctx, e.Tx); err != nil {
			return SendFailed{Batch: e.Batch, Reason: err.Error(), Rejected: errors.Is(err, ErrRejected)}
		}
		return PaymentSent{Batch: e.Batch}
	case Poll:
		status, err := l.Status(ctx, e.Tx)
		if err != nil {
			return PollFailed{Batch: e.Batch, Reason: err.Error()}
		}
		return StatusSeen{Batch: e.Batch, Status: status}
	}
	return nil
}

// Drive steps the machine with ev and with every answer that follows, until there is nothing to do before s.Next(). It
// returns the effects meant for people: Settled, Waiting, Done. save must be durable when it returns.
//
// On an error of save the machine it returns is not the one in the journal: drop it, and Restore. Other errors are
// Step's; the machine is as before the event.
func Drive(ctx context.Context, l Ledger, save func(state []byte) error, s Settlement, now time.Time, ev Event) (Settlement, []Effect, error) {
	var notes []Effect
	events := []Event{ev}
	for len(events) > 0 {
		next, effects, err := s.Step(now, events[0])
		if err != nil {
			return s, notes, err
		}
		s, events = next, events[1:]
		for _, e := range effects {
			switch e := e.(type) {
			case Persist:
				if err := save(e.State); err != nil {
					return s, notes, fmt.Errorf("saving settlement: %w", err)
				}
			case Settled, Waiting, Done:
				notes = append(notes, e)
			default:
				if answer := Do(ctx, l, e); answer != nil {
					events = append(events, answer)
				}
			}
		}
	}
	return s, notes, nil
}
