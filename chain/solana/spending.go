package solana

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// A key that spends its owner's tokens sets money aside from a token account of its own, which also receives refunds.
// The owner's allowance is used up by transfers from the owner's account into its own: by spent money, not by money set
// aside.

// delegated reports whether the key spends the tokens of another one.
func (l *Ledger) delegated() bool { return l.owner != l.payer }

// Provide ensures that the key's own token account holds need base units: the missing part comes from the owner's
// account. It returns when that is confirmed. It returns chain.ErrAllowance if the owner has or allows too little, and
// chain.ErrFees.
func (l *Ledger) Provide(ctx context.Context, need market.Amount) error {
	if !l.delegated() {
		return nil
	}
	f, err := l.Funds(ctx)
	if err != nil {
		return err
	}
	if f.Own >= need {
		return nil
	}
	missing := need - f.Own
	if allowed := f.Spendable - f.Own; allowed < missing {
		return fmt.Errorf("owner %s holds %s and lets %s spend %s of it, %s more are needed: %w",
			l.owner, l.text(f.Balance), l.payer, l.text(allowed), l.text(missing), chain.ErrAllowance)
	}
	key := l.cfg.Key.Key()
	_, err = l.Run(ctx, []program.Instruction{
		program.OpenTokenAccount(key, key, l.cfg.Mint),
		program.TransferTokens(sign.Key(l.source), program.TokenAccount(key, l.cfg.Mint), l.cfg.Mint, key,
			uint64(missing), l.cfg.Decimals),
	})
	if err != nil {
		return fmt.Errorf("taking %s from the owner's account: %w", l.text(missing), err)
	}
	return nil
}

// text writes an amount in whole tokens.
func (l *Ledger) text(a market.Amount) string { return market.Decimal(uint64(a), l.cfg.Decimals) }
