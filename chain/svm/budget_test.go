package svm_test

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// TestBudget: a budget is read in the one form in which it is written.
func TestBudget(t *testing.T) {
	t.Parallel()
	call := svm.Instruction{Program: sign.Key{1}, Data: []byte{7}}
	in := append([]svm.Instruction{call}, svm.Budget(30_000, 12_345)...)
	rest, units, price, ok := svm.SplitBudget(in)
	if !ok || len(rest) != 1 || units != 30_000 || price != 12_345 {
		t.Errorf("%d before it, %d units at %d, %v", len(rest), units, price, ok)
	}
	b := svm.Budget(1, 2)
	edit := func(i int, change func(*svm.Instruction)) []svm.Instruction {
		out := svm.Budget(1, 2)
		change(&out[i])
		return out
	}
	for name, in := range map[string][]svm.Instruction{
		"nothing": nil, "one": b[:1], "the price alone": b[1:], "turned": {b[1], b[0]},
		"three": {b[0], b[0], b[1]}, "not last": {b[0], b[1], call},
		"limit with an account": edit(0, func(in *svm.Instruction) { in.Accounts = []svm.Meta{svm.Reads(key(3))} }),
		"price with an account": edit(1, func(in *svm.Instruction) { in.Accounts = []svm.Meta{svm.Reads(key(3))} }),
		"limit of another":      edit(0, func(in *svm.Instruction) { in.Program = key(3) }),
		"price of another":      edit(1, func(in *svm.Instruction) { in.Program = key(3) }),
		"short limit":           edit(0, func(in *svm.Instruction) { in.Data = in.Data[:4] }),
		"long limit":            edit(0, func(in *svm.Instruction) { in.Data = append(in.Data, 0) }),
		"short price":           edit(1, func(in *svm.Instruction) { in.Data = in.Data[:8] }),
		"long price":            edit(1, func(in *svm.Instruction) { in.Data = append(in.Data, 0) }),
		"another limit":         edit(0, func(in *svm.Instruction) { in.Data[0]++ }),
		"another price":         edit(1, func(in *svm.Instruction) { in.Data[0]++ }),
	} {
		rest, units, price, ok := svm.SplitBudget(in)
		if ok || units != 0 || price != 0 || !reflect.DeepEqual(rest, in) {
			t.Errorf("%s passes for a budget: %d before it, %d units at %d, %v", name, len(rest), units, price, ok)
		}
	}
}

// TestBudgetBytes pins the two instructions: they are Solana's, not ours.
func TestBudgetBytes(t *testing.T) {
	t.Parallel()
	b := svm.Budget(0x01020304, 0x05060708090a0b0c)
	want := [][]byte{{2, 4, 3, 2, 1}, {3, 0x0c, 0x0b, 0x0a, 9, 8, 7, 6, 5}}
	size := sign.KeySize // the program's address, once
	for i, in := range b {
		if in.Program != svm.ComputeBudget || len(in.Accounts) != 0 || !bytes.Equal(in.Data, want[i]) {
			t.Errorf("instruction %d: %+v, want data %x", i, in, want[i])
		}
		size += 3 + len(in.Data) // number of the program, of accounts, of bytes
	}
	if size != svm.BudgetSize {
		t.Errorf("the budget takes %d bytes, want %d", size, svm.BudgetSize)
	}
	if in := svm.ComputeLimit(7); !reflect.DeepEqual(in, svm.Budget(7, 0)[0]) {
		t.Errorf("limit %+v, want a budget's first instruction", in)
	}
}

// TestBudgetSplits: SplitBudget undoes Budget behind any instructions that are not of the compute budget.
func TestBudgetSplits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var in []svm.Instruction
		budgeted := false
		for range rapid.IntRange(0, 4).Draw(t, "instructions") {
			id := rapid.SampledFrom([]sign.Key{svm.SystemProgram, svm.TokenProgram, key(9), svm.ComputeBudget}).Draw(t, "program")
			in = append(in, svm.Instruction{Program: id, Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data")})
			budgeted = budgeted || id == svm.ComputeBudget
		}
		if got := svm.Budgeted(in); got != budgeted {
			t.Fatalf("budgeted: %v, want %v", got, budgeted)
		}
		units, price := rapid.Uint32().Draw(t, "units"), rapid.Uint64().Draw(t, "price")
		rest, gotUnits, gotPrice, ok := svm.SplitBudget(append(in[:len(in):len(in)], svm.Budget(units, price)...))
		if ok == budgeted || ok && (gotUnits != units || gotPrice != price || len(rest) != len(in)) {
			t.Fatalf("%d before it, want %d; %d units at %d, want %d at %d; %v", len(rest), len(in), gotUnits, gotPrice,
				units, price, ok)
		}
	})
}
