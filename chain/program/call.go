package program

import (
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// Call is one call of Starling's program, its accounts and arguments by name. Two calls that are equal field by field
// make the same bytes.
type Call interface {
	// Instruction is the call's wire form, for the program at that address.
	Instruction(program sign.Key) svm.Instruction
}

// Instructions are the wire forms of calls, in their order, for the program at an address.
func Instructions(program sign.Key, calls ...Call) []svm.Instruction {
	out := make([]svm.Instruction, len(calls))
	for i, c := range calls {
		out[i] = c.Instruction(program)
	}
	return out
}

// callNames are the names of the calls in PROTOCOL.md by their numbers; "" is a retired number.
var callNames = [...]string{"InitNetwork", "SetAuthority", "InitPool", "OpenEscrow", "AddTranche", "AddStandbyTranche",
	"TopUp", "Claim", "Retire", "Refund", "Sweep", "CloseTranche", "CloseEscrow", "Register", "Update", "", "Stake",
	"RequestUnstake", "Withdraw", "Attest", "CloseAttested", "Slash", "Anchor", "Prove", "CloseAnchor", "DrawPool",
	"InitEmission", "Bond", "Release", "Propose", "Vote", "CloseVote", "Enact", "CloseBallot", "Accept", "ClaimReward",
	"ClosePayout", "State", "CloseStated", "SlashAudit"}

// CallName returns the name of the call that an instruction makes of the program at an address, or "" if it makes
// none.
func CallName(at sign.Key, in svm.Instruction) string {
	if in.Program != at || len(in.Data) == 0 || int(in.Data[0]) >= len(callNames) {
		return ""
	}
	return callNames[in.Data[0]]
}

// data is the data of an instruction under construction.
type data = fields.Data

// Accounts of a call, and those of Solana that many calls name.
var (
	reads, writes, signs, pays = svm.Reads, svm.Writes, svm.Signs, svm.Pays

	systemProgram, tokenProgram = reads(svm.SystemProgram), reads(svm.TokenProgram)
	instructionsSysvar          = reads(svm.InstructionsSysvar)
)

func instruction(program sign.Key, d data, accounts ...svm.Meta) svm.Instruction {
	return svm.Instruction{Program: program, Data: d, Accounts: accounts}
}

// optional names an optional account: the program's own address represents a missing one.
func optional(program, k sign.Key, as func(sign.Key) svm.Meta) svm.Meta {
	if k.IsZero() {
		return reads(program)
	}
	return as(k)
}

// appendPayee adds the payee, if it signs.
func appendPayee(to []svm.Meta, payee sign.Key) []svm.Meta {
	if payee.IsZero() {
		return to
	}
	return append(to, signs(payee))
}

func appendSigners(to []svm.Meta, keys []sign.Key) []svm.Meta {
	for _, k := range keys {
		to = append(to, signs(k))
	}
	return to
}

// terms encodes a lease's terms in a call's data.
func terms(rate market.Rate, most market.Amount, start, end market.Slot) []byte {
	return data{}.U64(uint64(rate)).U64(uint64(most)).U64(uint64(start)).U64(uint64(end))
}

func leafTerms(l tranche.Leaf) []byte { return terms(l.Rate, l.Cap, l.Start, l.End) }
