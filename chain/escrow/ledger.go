// Package escrow is settlement through Starling's program: a job's deposit is locked before its work starts, and its
// providers claim the amounts of their vouchers. It is pure: it reads no clock and starts no goroutine.
//
// The program makes claims cumulative and gives every escrow an address of its own, so only the chain's state matters.
// The machines compare it with the wanted state and send the difference. A transaction is journalled before it is sent.
//
// This package has the events and effects of the machines, their ledger, the queue of a machine's transactions, and the
// checks that need no machine. The machines are below it: deposit is the buyer's and a supervisor's, claims are a
// provider's.
package escrow

import (
	"context"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Level is how sure a View must be.
type Level uint8

// Levels of a View.
const (
	// Confirmed: a supermajority voted for the block. It could still be forked away.
	Confirmed Level = iota + 1
	// Finalized: it is never undone.
	Finalized
)

// View is an escrow as the chain shows it, all of one slot.
type View struct {
	Slot     market.Slot
	Escrow   *account.Escrow // nil: there is no such account
	Vault    market.Amount
	Tranches map[uint16]account.Tranche // the requested tranches, where they exist
}

// Free is the unreserved amount of an existing escrow, which no claim can reach.
func (v View) Free() market.Amount {
	owed := market.Amount(v.Escrow.Outstanding + v.Escrow.Fee)
	return v.Vault - min(v.Vault, owed)
}

// Ledger is a chain with Starling's program, seen by one key. Implementations: chain/solana, and in memory beside the
// tests of this package. All methods may be called concurrently. After an error of errors.Is chain.ErrDown the state of
// the chain is unknown.
type Ledger interface {
	// Look reads an escrow and some of its tranches. Where several endpoints are configured, two must agree.
	Look(ctx context.Context, escrow sign.Key, tranches []uint16, level Level) (View, error)
	// Bid returns the instructions and, after them, the two of program.Budget. The limit is program.Units of them. The
	// price is the recent price of the written accounts, doubled for each retry, and bounded by the stake in base units
	// of the token.
	Bid(ctx context.Context,
		instructions []svm.Instruction, stake market.Amount, retries uint8) ([]svm.Instruction, error)
	// Sign makes a transaction of these instructions, signed and paid for by the ledger's key and signed by the others
	// too. Accounts in lookup tables are named by them. It sends nothing. It returns chain.ErrPayment if it does not
	// fit, and chain.ErrFees if the key cannot pay its fee.
	Sign(ctx context.Context, instructions []svm.Instruction, tables []svm.Table,
		others ...sign.Signer) (chain.Prepared, error)
	// Send hands the transaction to the chain; nil does not mean that it landed. Sending again is harmless.
	Send(ctx context.Context, tx chain.Prepared) error
	// Status returns its state; see chain.Ledger.
	Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error)
}

// Fee returns the cost of a transaction in lamports: the chain's fee for its signers and for each signature that its
// Ed25519 instructions check, and its priority fee.
func Fee(instructions []svm.Instruction, signers int) uint64 {
	n := uint64(signers)
	for _, i := range instructions {
		if s, ok := svm.ParseSigned(i); ok {
			n += uint64(len(s.Keys))
		}
	}
	_, units, price, _ := svm.SplitBudget(instructions)
	return n*chain.SignatureFee + chain.BidLamports(price, units)
}
