package program

import "github.com/starling-network/starling/market/sign"

// AssociatedTokenProgram opens token accounts under the address that wallet and mint make.
var AssociatedTokenProgram = address("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL")

// openIdempotent is the associated token program's call that does nothing when the account is there.
const openIdempotent = 1

// Calls of the token program.
const (
	tokenTransferChecked = 12
	tokenApproveChecked  = 13
)

// TransferTokens moves tokens of a mint between two token accounts, by the word of the first one's owner or its
// delegate.
func TransferTokens(from, to, mint, authority sign.Key, amount uint64, decimals uint8) Instruction {
	return Instruction{Program: TokenProgram, Data: data{tokenTransferChecked}.u64(amount).u8(decimals),
		Accounts: []Meta{writes(from), reads(mint), writes(to), signs(authority)}}
}

// ApproveTokens lets a delegate spend so much of a token account, in place of whatever it or another was allowed
// before.
func ApproveTokens(account, mint, delegate, owner sign.Key, amount uint64, decimals uint8) Instruction {
	return Instruction{Program: TokenProgram, Data: data{tokenApproveChecked}.u64(amount).u8(decimals),
		Accounts: []Meta{writes(account), reads(mint), reads(delegate), signs(owner)}}
}

// TokenAccount is where a wallet holds tokens of the mint, unless it says otherwise: its associated token account.
func TokenAccount(wallet, mint sign.Key) sign.Key {
	return at(AssociatedTokenProgram, wallet[:], TokenProgram[:], mint[:])
}

// OpenTokenAccount opens TokenAccount of a wallet, or does nothing when it exists. Anybody may pay its rent.
func OpenTokenAccount(payer, wallet, mint sign.Key) Instruction {
	return Instruction{Program: AssociatedTokenProgram, Data: data{openIdempotent}, Accounts: []Meta{
		pays(payer), writes(TokenAccount(wallet, mint)), reads(wallet), reads(mint), reads(SystemProgram),
		reads(TokenProgram)}}
}

// Opens is the token account that an instruction of OpenTokenAccount's form opens if it is not there.
func (in Instruction) Opens() (account sign.Key, ok bool) {
	if in.Program != AssociatedTokenProgram || len(in.Accounts) != 6 || len(in.Data) != 1 ||
		in.Data[0] != openIdempotent {
		return sign.Key{}, false
	}
	return in.Accounts[1].Key, true
}
