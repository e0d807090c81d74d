package escrow

import (
	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
)

// Fee is the cost of a transaction with these instructions in lamports when signers keys sign it. It is the chain's fee
// for these signatures and for those that its Ed25519 instructions check, and its priority fee.
func Fee(instructions []program.Instruction, signers int) uint64 {
	n := uint64(signers)
	for _, i := range instructions {
		if s, ok := program.ParseSigned(i); ok {
			n += uint64(len(s.Keys))
		}
	}
	_, units, price, _ := program.SplitBudget(instructions)
	return n*chain.SignatureFee + chain.BidLamports(price, units)
}
