package svm

import (
	"encoding/binary"
	"slices"

	"github.com/starling-network/starling/chain/internal/fields"
)

// A transaction's last two instructions set its compute limit and its bid for a place in a block:
//
//	SetComputeUnitLimit   2 ‖ units u32
//	SetComputeUnitPrice   3 ‖ price u64, in millionths of a lamport a unit
//
// Neither names an account.
const (
	tagComputeLimit = 2
	tagComputePrice = 3
)

// BudgetSize is how many bytes the two instructions add to a transaction: the program's address 32, 8 and 12.
const BudgetSize = 52

// MaxUnits is the most that a transaction may compute.
const MaxUnits = 1_400_000

// ComputeLimit bounds the computation of its transaction, in units. Without it a call has 200,000.
func ComputeLimit(units uint32) Instruction {
	return Instruction{Program: ComputeBudget, Data: fields.Data{tagComputeLimit}.U32(units)}
}

// Budget is the two instructions.
func Budget(units uint32, price uint64) []Instruction {
	return []Instruction{ComputeLimit(units),
		{Program: ComputeBudget, Data: fields.Data{tagComputePrice}.U64(price)}}
}

// SplitBudget parts the two instructions from those before them. It reports false where the last two are not the two,
// in their one form, or where another instruction is of the compute budget.
func SplitBudget(in []Instruction) (rest []Instruction, units uint32, price uint64, ok bool) {
	n := len(in) - 2
	if n < 0 {
		return in, 0, 0, false
	}
	limit, bid := in[n], in[n+1]
	if limit.Program != ComputeBudget || len(limit.Accounts) > 0 || len(limit.Data) != 5 ||
		limit.Data[0] != tagComputeLimit || bid.Program != ComputeBudget || len(bid.Accounts) > 0 ||
		len(bid.Data) != 9 || bid.Data[0] != tagComputePrice || Budgeted(in[:n]) {
		return in, 0, 0, false
	}
	return in[:n], binary.LittleEndian.Uint32(limit.Data[1:]), binary.LittleEndian.Uint64(bid.Data[1:]), true
}

// Budgeted reports whether an instruction is of the compute budget.
func Budgeted(in []Instruction) bool {
	return slices.ContainsFunc(in, func(i Instruction) bool { return i.Program == ComputeBudget })
}
