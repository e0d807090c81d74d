package chaintest

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/model"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Run applies the instructions of a transaction in a slot, all or none, and returns the resulting state. at is the
// program's address, tables are the lookup tables of the transaction; before is not changed.
func Run(
	at sign.Key, before *model.State, slot uint64, tx []svm.Instruction, tables ...svm.Table,
) (*model.State, error) {
	next := before.Clone()
	for _, t := range tables {
		if err := next.Uses(slot, t); err != nil {
			return before, err
		}
	}
	beside := make([]svm.Signed, len(tx))
	for i, in := range tx {
		if account, ok := in.Opens(); ok {
			if _, there := next.Tokens[account]; !there {
				next.Tokens[account] = svm.Token{Mint: in.Accounts[3].Key, Owner: in.Accounts[2].Key, Plain: true}
			}
			continue
		}
		if table, ok := svm.ParseTable(in); ok {
			if err := next.ApplyTable(slot, table); err != nil {
				return before, err
			}
			continue
		}
		if in.Program == svm.ComputeBudget {
			continue
		}
		if signed, ok := svm.ParseSigned(in); ok {
			if !signed.Verified() {
				return before, model.ErrSignature
			}
			beside[i] = signed
			continue
		}
		call, ed, err := program.ParseCall(at, in)
		if err != nil {
			return before, err
		}
		var use []svm.Signed
		if ed >= 0 {
			if ed >= i || len(beside[ed].Keys) == 0 {
				return before, program.ErrNoInstruction
			}
			use, call = beside[ed:ed+1], withEd(call)
		}
		if err := next.Apply(slot, call, use...); err != nil {
			return before, err
		}
	}
	return next, nil
}

// withEd numbers the signatures as the model does: those beside the call, from 0.
func withEd(call program.Call) program.Call {
	switch c := call.(type) {
	case program.Claim:
		c.Ed = 0
		return c
	case program.RetireFinal:
		c.Ed = 0
		return c
	case program.State:
		c.Ed = 0
		return c
	}
	return call
}

// Size is the length in bytes of a transaction's wire form that a key pays for, naming accounts by these tables.
func Size(payer sign.Key, in []svm.Instruction, tables ...svm.Table) int {
	signs, called, seen := map[sign.Key]bool{payer: true}, map[sign.Key]bool{}, map[sign.Key]bool{payer: true}
	size := 3 + 1 + 32 + 1
	for _, i := range in {
		size += 1 + 1 + len(i.Accounts) + length(len(i.Data)) + len(i.Data)
		called[i.Program], seen[i.Program] = true, true
		for _, m := range i.Accounts {
			seen[m.Key] = true
			if m.Signer {
				signs[m.Key] = true
			}
		}
	}
	size += 1 + 64*len(signs)
	if len(tables) > 0 {
		size += 1 + 1
	}
	for _, t := range tables {
		size += 32 + 1 + 1
		for _, k := range t.Holds {
			if seen[k] && !signs[k] && !called[k] {
				delete(seen, k)
				size++
			}
		}
	}
	return size + 32*len(seen)
}

// length is how many bytes a length takes.
func length(n int) int {
	if n < 0x80 {
		return 1
	}
	return 2
}
