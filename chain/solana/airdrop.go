package solana

import (
	"context"
	"fmt"
	"time"

	solanago "github.com/gagliardetto/solana-go"
	"github.com/gagliardetto/solana-go/rpc"

	"github.com/starling-network/starling/chain/solana/cluster"
)

// Airdrop requests lamports for the payer from a test cluster's faucet and waits until they arrive. A cluster without a
// faucet refuses.
func (a *Admin) Airdrop(ctx context.Context, lamports uint64) error {
	payer := solanago.PublicKey(a.payer.Key())
	if _, err := cluster.Ask(ctx, a.cluster, func(ctx context.Context, c *rpc.Client) (solanago.Signature, error) {
		return c.RequestAirdrop(ctx, payer, lamports, rpc.CommitmentConfirmed)
	}); err != nil {
		return fmt.Errorf("requesting lamports from the faucet: %w", err)
	}
	tick := time.NewTicker(confirmFirst)
	defer tick.Stop()
	for {
		have, err := cluster.Ask(ctx, a.cluster, func(
			ctx context.Context, c *rpc.Client,
		) (*rpc.GetBalanceResult, error) {
			return c.GetBalance(ctx, payer, rpc.CommitmentConfirmed)
		})
		if err == nil && have != nil && have.Value >= lamports {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the faucet's lamports: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
