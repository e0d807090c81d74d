package solana

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/market"
)

// Clock is the chain's progress: its newest slots, and its blocks.
type Clock struct{ *base }

// Slot returns the confirmed slot of Tip.
func (l *Clock) Slot(ctx context.Context) (market.Slot, error) {
	tip, err := l.Tip(ctx)
	return tip.Confirmed, err
}

// Tip polls every endpoint and returns the lower median of their confirmed and of their final slots. If several
// endpoints are configured, two must answer within 150 slots of each other; otherwise Tip returns chain.ErrDown. One
// faulty endpoint moves the tip by at most 150 slots; of two, it can only make Tip fail.
func (l *Clock) Tip(ctx context.Context) (chain.Tip, error) {
	answers := cluster.Everyone(ctx, l.cluster, tipAt, nil)
	var confirmed, final []market.Slot
	var failures []error
	for _, a := range answers {
		if a.Err != nil {
			failures = append(failures, a.Err)
			continue
		}
		confirmed, final = append(confirmed, a.Value.Confirmed), append(final, a.Value.Final)
	}
	need := min(2, len(answers))
	switch {
	case len(confirmed) == 0:
		for _, err := range failures {
			var said cluster.Answered
			if errors.As(err, &said) {
				return chain.Tip{}, said.Err
			}
		}
		return chain.Tip{}, cluster.NoAnswer(ctx, failures)
	case len(confirmed) < need:
		return chain.Tip{}, fmt.Errorf("slot: %d of %d Solana RPC endpoints answered, want %d; "+
			"check that they run, or name others with --solana-rpc: %w: %w",
			len(confirmed), len(answers), need, chain.ErrDown, errors.Join(failures...))
	}
	c, ok1 := median(confirmed, need)
	f, ok2 := median(final, need)
	if !ok1 || !ok2 {
		return chain.Tip{}, fmt.Errorf("slots of the Solana RPC endpoints: too far apart: %v, final %v; "+
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

// median returns the lower median. It reports whether at least need slots, itself included, are within cluster.MaxLag
// of it.
func median(slots []market.Slot, need int) (market.Slot, bool) {
	slices.Sort(slots)
	m := slots[(len(slots)-1)/2]
	near := 0
	for _, s := range slots {
		if max(s, m)-min(s, m) <= cluster.MaxLag {
			near++
		}
	}
	return m, near >= need
}
