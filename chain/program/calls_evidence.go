package program

import (
	"fmt"

	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// Attest records a receipt that provider and buyer signed. SignedReceipt must be in the same transaction.
type Attest struct {
	Reporter sign.Key // pays, and gets the rent back
	Network  sign.Key
	Attested sign.Key // AttestedAddress

	Ed uint8 // number of the precompile's instruction in the transaction
}

// Instruction implements Call.
func (c Attest) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagAttest, c.Ed},
		pays(c.Reporter), reads(c.Network), writes(c.Attested), instructionsSysvar, systemProgram)
}

// SignedReceipt is the signature instruction that Attest needs beside it.
func SignedReceipt(d sign.Domain, r verify.Receipt) svm.Signed {
	core := r.ReceiptCore.Marshal()
	return svm.Signed{
		Keys: []sign.Key{r.Provider, r.Buyer}, Signatures: []sign.Signature{r.ProviderSig, r.BuyerSig},
		Message: d.Preimage(sign.TagReceipt, core[:]),
	}
}

// CloseAttested ends an attested receipt's account; the rent goes back.
type CloseAttested struct {
	Reporter sign.Key
	Attested sign.Key
}

// Instruction implements Call.
func (c CloseAttested) Instruction(program sign.Key) svm.Instruction {
	return instruction(program, data{tagCloseAttested}, pays(c.Reporter), writes(c.Attested))
}

// evidenceConflict is the only kind of evidence so far.
const evidenceConflict = 1

// Slash takes a provider's whole stake, also the unbonding part, for a conflict (verify/PROTOCOL.md, section 6) of two
// attested receipts.
type Slash struct {
	Network  sign.Key
	Provider sign.Key
	Vault    sign.Key
	Mint     sign.Key
	A, B     sign.Key // attested receipts; A is of the lease with the lower id
	VictimA  sign.Key // TokenAccount of A's buyer
	VictimB  sign.Key // of B's
	Reporter sign.Key // TokenAccount of the reporter of both

	Unit     market.UnitID
	InA, InB market.UnitProof
}

// Instruction implements Call.
func (c Slash) Instruction(program sign.Key) svm.Instruction {
	d := data{tagSlash, evidenceConflict}.Bytes(c.Unit[:]...).Bytes(c.InA.Marshal()...).Bytes(c.InB.Marshal()...)
	return instruction(program, d,
		writes(c.Network), writes(c.Provider), writes(c.Vault), writes(c.Mint), reads(c.A), reads(c.B),
		writes(c.VictimA), writes(c.VictimB), writes(c.Reporter), tokenProgram)
}

// Taken is the division of a slashed stake; the four parts add up to it.
type Taken struct {
	VictimA, VictimB, Reporter, Burned uint64
}

// TakenFor divides a provider's whole stake after two buyers had paid these amounts. At least half burns. Of the rest
// each buyer gets its payment up to half, the reporter at most a quarter of the remainder, and the last rest burns too.
func TakenFor(total, paidA, paidB uint64) Taken {
	rest := total / 2
	s := Taken{VictimA: min(paidA, rest/2), VictimB: min(paidB, rest/2)}
	s.Reporter = min(rest-s.VictimA-s.VictimB, rest/4)
	s.Burned = total - s.VictimA - s.VictimB - s.Reporter
	return s
}

// Attested is a receipt with both signatures checked by the program.
type Attested struct {
	Bump     uint8
	Network  sign.Key
	Reporter sign.Key // its reporter, which paid the rent
	Core     verify.ReceiptCore
	Slot     uint64 // in which it was shown
}

const kindAttested = 6 // the first byte; account has the other kinds

// AttestedSize is the length of an attested receipt's account.
const AttestedSize = 336

// Marshal returns the account's bytes (PROTOCOL.md).
func (a Attested) Marshal() []byte {
	core := a.Core.Marshal()
	return data{kindAttested, account.Version, a.Bump}.Zeros(5).Key(a.Network).Key(a.Reporter).
		Bytes(core[:]...).U64(a.Slot)
}

// UnmarshalAttested parses an attested receipt's account. It returns account.ErrAccount.
func UnmarshalAttested(b []byte) (Attested, error) {
	r := fields.Reader{Rest: b}
	kind, version := r.U8(), r.U8()
	a := Attested{Bump: r.U8()}
	r.Zeros(5)
	a.Network, a.Reporter = r.Key(), r.Key()
	core, err := verify.UnmarshalReceiptCore(r.Take(verify.ReceiptCoreSize))
	a.Core, a.Slot = core, r.U64()
	if !r.Done() || kind != kindAttested || version != account.Version || err != nil {
		return Attested{}, fmt.Errorf("%w: attested receipt of %d bytes", account.ErrAccount, len(b))
	}
	return a, nil
}

// AttestedSeeds are derived from a network, the reporter of a receipt, and the receipt's hash (its core's).
func AttestedSeeds(network, reporter sign.Key, receipt sign.Hash) [][]byte {
	return [][]byte{[]byte("attested"), network[:], reporter[:], receipt[:]}
}

// AttestedAddress is the account of a receipt that a reporter showed.
func AttestedAddress(program, network, reporter sign.Key, receipt sign.Hash) sign.Key {
	return svm.Address(program, AttestedSeeds(network, reporter, receipt)...)
}
