package localnet

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain/solana"
)

// faucetLamports pays for the token, the wallets and their fees on an attached chain.
const faucetLamports = 500_000_000_000

// Attach makes a test token on a running local validator, such as solana-test-validator, with lamports from its faucet.
// Close does not stop that chain.
func Attach(ctx context.Context, url string, cfg Config) (*Chain, error) {
	cfg = cfg.withDefaults()
	payer, err := newKey()
	if err != nil {
		return nil, err
	}
	c := &Chain{cfg: cfg, url: url, payer: payer, stop: func() error { return nil }}
	if c.genesis, err = solana.Genesis(ctx, url); err != nil {
		return nil, fmt.Errorf("reading from %s: %w", url, err)
	}
	if c.admin, err = solana.NewAdmin(url, c.genesis, c.payer); err != nil {
		return nil, err
	}
	if err := c.admin.Airdrop(ctx, faucetLamports); err != nil {
		return nil, err
	}
	if err := c.makeToken(ctx); err != nil {
		return nil, fmt.Errorf("making a token at %s: %w", url, err)
	}
	return c, nil
}
