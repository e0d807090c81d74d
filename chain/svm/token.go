package svm

import (
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/market/sign"
)

// AssociatedTokenProgram opens token accounts at addresses made of wallet and mint.
var AssociatedTokenProgram = address("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL")

// openIdempotent is the associated token program's call that does nothing if the account exists.
const openIdempotent = 1

// Calls of the token program.
const (
	tokenTransferChecked = 12
	tokenApproveChecked  = 13
)

// TransferTokens moves tokens of a mint between two token accounts. The authority is the first one's owner or delegate.
func TransferTokens(from, to, mint, authority sign.Key, amount uint64, decimals uint8) Instruction {
	return Instruction{Program: TokenProgram, Data: fields.Data{tokenTransferChecked}.U64(amount).U8(decimals),
		Accounts: []Meta{Writes(from), Reads(mint), Writes(to), Signs(authority)}}
}

// ApproveTokens allows a delegate to spend an amount out of a token account. It replaces the former delegate.
func ApproveTokens(account, mint, delegate, owner sign.Key, amount uint64, decimals uint8) Instruction {
	return Instruction{Program: TokenProgram, Data: fields.Data{tokenApproveChecked}.U64(amount).U8(decimals),
		Accounts: []Meta{Writes(account), Reads(mint), Reads(delegate), Signs(owner)}}
}

// TokenAccount is the associated token account of a wallet for a mint: the address at which a wallet holds its tokens
// unless it chose another.
func TokenAccount(wallet, mint sign.Key) sign.Key {
	return Address(AssociatedTokenProgram, wallet[:], TokenProgram[:], mint[:])
}

// OpenTokenAccount opens a wallet's TokenAccount, unless it exists. Any key may pay its rent.
func OpenTokenAccount(payer, wallet, mint sign.Key) Instruction {
	return Instruction{Program: AssociatedTokenProgram, Data: fields.Data{openIdempotent}, Accounts: []Meta{
		Pays(payer), Writes(TokenAccount(wallet, mint)), Reads(wallet), Reads(mint), Reads(SystemProgram),
		Reads(TokenProgram)}}
}

// Opens returns the token account that an instruction of OpenTokenAccount's form opens; ok is false for other forms.
func (in Instruction) Opens() (account sign.Key, ok bool) {
	if in.Program != AssociatedTokenProgram || len(in.Accounts) != 6 || len(in.Data) != 1 ||
		in.Data[0] != openIdempotent {
		return sign.Key{}, false
	}
	return in.Accounts[1].Key, true
}

// TokenSize is the length of a token account.
const TokenSize = 165

// Token is the used part of a token account of the classic SPL token program.
type Token struct {
	Mint, Owner sign.Key
	Amount      uint64
	Plain       bool // initialized, not frozen, only its owner may close it
}

// UnmarshalToken parses a token account that the token program owns. It returns ErrAccount.
func UnmarshalToken(b []byte) (Token, error) {
	if len(b) != TokenSize {
		return Token{}, notOne("token account", b)
	}
	r := fields.Reader{Rest: b}
	t := Token{Mint: r.Key(), Owner: r.Key(), Amount: r.U64()}
	r.Take(4 + 32) // delegate
	state := r.U8()
	r.Take(4 + 8 + 8) // wrapped SOL, delegated amount
	t.Plain = state == 1 && r.U32() == 0
	if state == 0 {
		return Token{}, notOne("token account", b)
	}
	return t, nil
}
