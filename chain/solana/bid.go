package solana

import (
	"context"
	"slices"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
)

// maxPriced is how many accounts getRecentPrioritizationFees takes.
const maxPriced = 128

// Bid implements escrow.Ledger.
func (l *Wallet) Bid(
	ctx context.Context, instructions []svm.Instruction, stake market.Amount, retries uint8,
) ([]svm.Instruction, error) {
	return l.bid(ctx, instructions, l.cfg.Fees.Ceiling(stake, l.cfg.Decimals), retries)
}

// bid adds the budget of a transaction that bids at most the given lamports.
func (l *Wallet) bid(
	ctx context.Context, instructions []svm.Instruction, ceiling uint64, retries uint8,
) ([]svm.Instruction, error) {
	if svm.Budgeted(instructions) {
		return instructions, nil
	}
	units := program.Units(l.cfg.Program, instructions)
	recent, err := l.recentPrice(ctx, instructions)
	if err != nil {
		return nil, err
	}
	price := l.cfg.Fees.Price(recent, retries, units, ceiling)
	return slices.Concat(instructions, svm.Budget(units, price)), nil
}

// recentPrice is the upper quartile of the prices of the last 150 blocks' cheapest transactions that wrote all these
// accounts. It is the median over the endpoints that answer; 0 when none does.
func (l *Wallet) recentPrice(ctx context.Context, instructions []svm.Instruction) (uint64, error) {
	var written solanago.PublicKeySlice
	for _, in := range instructions {
		for _, m := range in.Accounts {
			if k := solanago.PublicKey(m.Key); m.Writable && len(written) < maxPriced && !slices.Contains(written, k) {
				written = append(written, k)
			}
		}
	}
	enough := l.cluster.Need()
	answers := cluster.Everyone(ctx, l.cluster, func(ctx context.Context, c *rpc.Client) (uint64, error) {
		return priceAt(ctx, c, written)
	},
		func(now []cluster.Answer[uint64]) bool {
			n := 0
			for _, a := range now {
				if a.Err == nil {
					n++
				}
			}
			return n >= enough
		})
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	var told []uint64
	for _, a := range answers {
		if a.Err == nil {
			told = append(told, a.Value)
		}
	}
	if len(told) == 0 {
		return 0, nil // optional on an endpoint; if the chain is unreachable, the next call fails
	}
	slices.Sort(told)
	return told[(len(told)-1)/2], nil
}

func priceAt(ctx context.Context, c *rpc.Client, written solanago.PublicKeySlice) (uint64, error) {
	out, err := c.GetRecentPrioritizationFees(ctx, written)
	if err != nil {
		return 0, err
	}
	if len(out) == 0 {
		return 0, nil
	}
	prices := make([]uint64, len(out))
	for i, p := range out {
		prices[i] = p.PrioritizationFee
	}
	slices.Sort(prices)
	return prices[len(prices)*3/4], nil
}

// bidOf is the cost of a transaction's budget, in lamports.
func bidOf(instructions []svm.Instruction) uint64 {
	_, units, price, ok := svm.SplitBudget(instructions)
	if !ok {
		return 0
	}
	return chain.BidLamports(price, units)
}
