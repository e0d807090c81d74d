package testnet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
)

// faucetFile is the key that makes test tokens. It allows other processes to fund a wallet.
const faucetFile = "faucet.json"

func (n *Network) saveFaucet() error {
	path := filepath.Join(n.Dir, faucetFile)
	// remove the key of an earlier testnet in the same directory
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	_, err := p2p.SaveIdentity(path, n.chain.Faucet().Seed())
	return err
}

// Fund gives test tokens, in base units, to a wallet on the testnet in dir, and lamports for its fees.
func Fund(ctx context.Context, dir string, to sign.Key, tokens market.Amount) error {
	n, err := Load(dir)
	if err != nil || !n.Alive() {
		return fmt.Errorf("no testnet runs in %s", dir)
	}
	if n.Genesis.Free {
		return fmt.Errorf("the testnet in %s is a free network: it has no tokens", dir)
	}
	b, err := os.ReadFile(filepath.Join(dir, faucetFile))
	if err != nil {
		return fmt.Errorf("reading the faucet's key: %w", err)
	}
	faucet, err := sign.ParseKeypair(b)
	if err != nil {
		return fmt.Errorf("reading the faucet's key: %w", err)
	}
	admin, err := solana.NewAdmin(n.RPC, n.Genesis.Chain, faucet)
	if err != nil {
		return err
	}
	return admin.Fund(ctx, n.Genesis.Mint, n.Genesis.Decimals,
		solana.Grant{To: to, Tokens: tokens, Lamports: fundLamports})
}
