package chaintest

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market/sign"
)

// Drive steps a machine of chain/escrow with ev and with each answer that follows, until no work is due before its
// Next. It returns the effects for the operator. save receives the next machine and its encoded state.
//
// If save fails, the returned machine is not saved. If Step fails, Drive returns its error and the machine before the
// event.
func Drive[M escrow.Machine[M]](
	ctx context.Context, l escrow.Ledger, save func(next M, state []byte) error, m M, now time.Time, ev escrow.Event,
	others ...sign.Signer,
) (M, []escrow.Effect, error) {
	var notes []escrow.Effect
	events := []escrow.Event{ev}
	for len(events) > 0 {
		next, effects, err := m.Step(now, events[0])
		if err != nil {
			return m, notes, err
		}
		m, events = next, events[1:]
		for _, e := range effects {
			if persist, ok := e.(escrow.Persist); ok {
				if err := save(next, persist.State); err != nil {
					return m, notes, fmt.Errorf("saving escrow: %w", err)
				}
				continue
			}
			if answer := escrow.Do(ctx, l, e, others...); answer != nil {
				events = append(events, answer)
				continue
			}
			notes = append(notes, e)
		}
	}
	return m, notes, nil
}
