package solana

import (
	"context"
	"errors"
	"fmt"

	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

var _ chain.Blocks = (*Ledger)(nil)

// Block is the first final block of slot from or later, by its blockhash. Two endpoints must agree on it, unless only
// one is configured: a single one could choose the draws made from it.
func (l *Clock) Block(ctx context.Context, from market.Slot) (chain.Block, error) {
	need := l.cluster.Need()
	agreed := func(all []cluster.Answer[chain.Block]) (chain.Block, bool) {
		for i, a := range all {
			same := 0
			for _, b := range all[i:] {
				if a.Err == nil && b.Err == nil && a.Value == b.Value {
					same++
				}
			}
			if same >= need {
				return a.Value, true
			}
		}
		return chain.Block{}, false
	}
	answers := cluster.Everyone(ctx, l.cluster, func(ctx context.Context, c *rpc.Client) (chain.Block, error) {
		return blockFrom(ctx, c, from)
	},
		func(now []cluster.Answer[chain.Block]) bool { _, ok := agreed(now); return ok })
	if b, ok := agreed(answers); ok {
		return b, nil
	}
	if err := ctx.Err(); err != nil {
		return chain.Block{}, err
	}
	failures, none := make([]error, len(answers)), 0
	for i, a := range answers {
		if failures[i] = a.Err; errors.Is(a.Err, rpc.ErrNotFound) {
			none++
		}
	}
	if none > 0 { // some may see it before others
		return chain.Block{}, fmt.Errorf("a final block of slot %d or later: %w", from, chain.ErrNotFound)
	}
	return chain.Block{}, fmt.Errorf("block of slot %d: fewer than %d Solana RPC endpoints agree: %w: %w",
		from, need, chain.ErrDown, errors.Join(failures...))
}

// blockFrom is one endpoint's answer.
func blockFrom(ctx context.Context, c *rpc.Client, from market.Slot) (chain.Block, error) {
	slots, err := c.GetBlocksWithLimit(ctx, uint64(from), 1, rpc.CommitmentFinalized)
	if err != nil && !errors.Is(err, rpc.ErrNotFound) {
		return chain.Block{}, err
	}
	if err != nil || slots == nil || len(*slots) == 0 {
		return chain.Block{}, rpc.ErrNotFound
	}
	slot := (*slots)[0]
	if slot < uint64(from) || len(*slots) > 1 {
		return chain.Block{}, fmt.Errorf("slots %v: want one from %d on: %w",
			clipSlots(*slots), from, chain.ErrMalformed)
	}
	rewards, version := false, uint64(0)
	b, err := c.GetBlockWithOpts(ctx, slot, &rpc.GetBlockOpts{TransactionDetails: rpc.TransactionDetailsNone,
		Rewards: &rewards, Commitment: rpc.CommitmentFinalized, MaxSupportedTransactionVersion: &version})
	if err != nil {
		return chain.Block{}, err
	}
	h := sign.Hash(b.Blockhash)
	if h.IsZero() {
		return chain.Block{}, fmt.Errorf("the block of slot %d has no hash: %w", slot, chain.ErrMalformed)
	}
	return chain.Block{Slot: market.Slot(slot), Hash: h}, nil
}

// clipSlots bounds an endpoint's answer, for an error.
func clipSlots(slots []uint64) []uint64 { return slots[:min(len(slots), 3)] }
