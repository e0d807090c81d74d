package solana

import (
	"encoding/binary"
	"fmt"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

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
	mint, owner, delegate sign.Key // delegate is zero when there is none
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
	return solanago.PublicKey(program.TokenAccount(sign.Key(wallet), sign.Key(mint)))
}
