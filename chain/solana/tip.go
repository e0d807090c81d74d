package solana

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

// Tip asks every endpoint and returns the median of their confirmed and of their final slots, the lower one of two
// middle ones. Where several endpoints are configured, two must answer and be within 150 slots of each other:
// everything else is chain.ErrDown. So one endpoint that lies moves the tip by no more than 150 slots; of two endpoints
// it can only keep the tip from being known.
func (l *Ledger) Tip(ctx context.Context) (chain.Tip, error) {
	answers := everyone(ctx, l.pool, tipAt, nil)
	var confirmed, final []market.Slot
	var failures []error
	for _, a := range answers {
		if a.err != nil {
			failures = append(failures, a.err)
			continue
		}
		confirmed, final = append(confirmed, a.value.Confirmed), append(final, a.value.Final)
	}
	need := min(2, len(answers))
	switch {
	case len(confirmed) == 0:
		for _, err := range failures {
			var said answered
			if errors.As(err, &said) {
				return chain.Tip{}, said.error
			}
		}
		return chain.Tip{}, noAnswer(ctx, failures)
	case len(confirmed) < need:
		return chain.Tip{}, fmt.Errorf("%d of %d Solana RPC endpoints tell the slot, %d must; "+
			"check that they run, or name others with --solana-rpc: %w: %w",
			len(confirmed), len(answers), need, chain.ErrDown, errors.Join(failures...))
	}
	c, ok1 := median(confirmed, need)
	f, ok2 := median(final, need)
	if !ok1 || !ok2 {
		return chain.Tip{}, fmt.Errorf("the Solana RPC endpoints tell slots %v, final %v, which are too far apart; "+
			"name others with --solana-rpc: %w",
			confirmed, final, chain.ErrDown)
	}
	return chain.Tip{Confirmed: c, Final: min(f, c)}, nil
}

func tipAt(ctx context.Context, c *rpc.Client) (chain.Tip, error) {
	final, err := c.GetSlot(ctx, rpc.CommitmentFinalized)
	if err != nil {
		return chain.Tip{}, err
	}
	confirmed, err := c.GetSlot(ctx, rpc.CommitmentConfirmed)
	return chain.Tip{Confirmed: market.Slot(confirmed), Final: market.Slot(final)}, err
}

// median returns the lower median. It reports whether at least need slots, itself included, are within maxLag of it.
func median(slots []market.Slot, need int) (market.Slot, bool) {
	slices.Sort(slots)
	m := slots[(len(slots)-1)/2]
	near := 0
	for _, s := range slots {
		if max(s, m)-min(s, m) <= maxLag {
			near++
		}
	}
	return m, near >= need
}
