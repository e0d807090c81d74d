package solana

import (
	"context"
	"encoding/binary"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/solana/cluster"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Instruction numbers of the token program.
const (
	tokenApproveChecked  = 13
	tokenMintToChecked   = 14
	tokenInitializeMint2 = 20
)

// amountData is number ‖ amount u64 ‖ decimals u8.
func amountData(number byte, amount market.Amount, decimals uint8) []byte {
	return append(binary.LittleEndian.AppendUint64([]byte{number}, uint64(amount)), decimals)
}

// openTokenAccount opens the wallet's associated token account, unless it exists.
func openTokenAccount(payer, wallet, mint solanago.PublicKey) solanago.Instruction {
	open := svm.OpenTokenAccount(sign.Key(payer), sign.Key(wallet), sign.Key(mint))
	return transaction.Library([]svm.Instruction{open})[0]
}

// Sizes of the token program's accounts in bytes.
const (
	mintSize         = 82
	tokenAccountSize = 165
)

// tokenAccount is the fields that are read of a token account (spl-token, state.rs):
//
//	mint[32] ‖ owner[32] ‖ amount u64 ‖ delegate (u32 tag ‖ [32]) ‖ state u8 ‖ native (u32 ‖ u64)
//	‖ delegated u64 ‖ close (u32 ‖ [32])
type tokenAccount struct {
	mint, owner, delegate sign.Key // delegate may be zero
	amount, delegated     market.Amount
	frozen                bool
}

func decodeTokenAccount(b []byte) (tokenAccount, error) {
	le := binary.LittleEndian
	if len(b) != tokenAccountSize || b[108] == 0 || b[108] > 2 || le.Uint32(b[72:]) > 1 {
		return tokenAccount{}, fmt.Errorf("token account of %d bytes: %w", len(b), chain.ErrMalformed)
	}
	a := tokenAccount{mint: sign.Key(b[:32]), owner: sign.Key(b[32:64]), amount: market.Amount(le.Uint64(b[64:])),
		frozen: b[108] == 2}
	if le.Uint32(b[72:]) == 1 {
		a.delegate, a.delegated = sign.Key(b[76:108]), market.Amount(le.Uint64(b[121:]))
	}
	return a, nil
}

// decodeMint reads a mint's decimals: authority (u32 ‖ [32]) ‖ supply u64 ‖ decimals u8 ‖ initialized u8 ‖ freeze (u32
// ‖ [32])
func decodeMint(b []byte) (decimals uint8, err error) {
	if len(b) != mintSize || b[45] != 1 {
		return 0, fmt.Errorf("mint account of %d bytes: %w", len(b), chain.ErrMint)
	}
	return b[44], nil
}

// tokenAccountOf is the wallet's associated token account of the mint.
func tokenAccountOf(wallet, mint solanago.PublicKey) solanago.PublicKey {
	return solanago.PublicKey(svm.TokenAccount(sign.Key(wallet), sign.Key(mint)))
}

// Purses reads accounts that orders name, at most escrow.MaxPurses, as one endpoint shows them, confirmed.
func (l *Accounts) Purses(ctx context.Context, accounts []sign.Key) ([]escrow.Purse, error) {
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
			if e, err := l.escrowAt(accounts[i], cluster.Held{Owner: sign.Key(a.Owner), Data: data}); err == nil &&
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
