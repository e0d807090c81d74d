package solana

import (
	"context"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market/sign"
)

// Purses reads accounts that orders name, at most escrow.MaxPurses, as one endpoint shows them, confirmed.
func (l *Ledger) Purses(ctx context.Context, accounts []sign.Key) ([]escrow.Purse, error) {
	if len(accounts) > escrow.MaxPurses {
		return nil, fmt.Errorf("solana: %d accounts at a time: at most %d", len(accounts), escrow.MaxPurses)
	}
	keys := make([]solanago.PublicKey, len(accounts))
	for i, a := range accounts {
		keys[i] = solanago.PublicKey(a)
	}
	shown, err := l.accounts(ctx, keys...)
	if err != nil {
		return nil, fmt.Errorf("reading accounts of orders: %w", err)
	}
	out := make([]escrow.Purse, len(accounts))
	for i, a := range shown {
		if a == nil {
			continue
		}
		data := a.Data.GetBinary()
		if a.Owner != solanago.TokenProgramID {
			if e, err := l.escrowAt(accounts[i], held{owner: sign.Key(a.Owner), data: data}); err == nil &&
				e.Mint == l.cfg.Mint {
				out[i].Escrow = &e
			}
			continue
		}
		if t, err := decodeTokenAccount(data); err == nil && t.mint == l.cfg.Mint && !t.frozen {
			out[i] = escrow.Purse{Owner: t.owner, Delegate: t.delegate, Amount: t.amount, Delegated: t.delegated}
		}
	}
	return out, nil
}
