// Package svm is the callers' view of the Solana virtual machine: instructions, the addresses that programs sign for,
// rent, and the calls and accounts of Solana's own programs. Starling's program is chain/program, and the client of a
// cluster is chain/solana.
//
// The programs are the token program and its associated accounts (token.go), lookup tables (table.go), the Ed25519
// precompile (ed25519.go), the compute budget (budget.go) and the upgradeable loader (loader.go).
package svm

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// ErrAccount is returned for bytes that are no account of the requested kind.
var ErrAccount = errors.New("svm: not an account of this kind")

// Instruction calls a program on chain. Client libraries have their own form of it; chain/solana/transaction converts.
type Instruction struct {
	Program  sign.Key
	Accounts []Meta
	Data     []byte
}

// Meta is an account of an instruction, and the program's permissions on it.
type Meta struct {
	Key              sign.Key
	Signer, Writable bool
}

// Reads is an account that a program reads.
func Reads(k sign.Key) Meta { return Meta{Key: k} }

// Writes is an account that a program writes.
func Writes(k sign.Key) Meta { return Meta{Key: k, Writable: true} }

// Signs is an account that signs.
func Signs(k sign.Key) Meta { return Meta{Key: k, Signer: true} }

// Pays is an account that signs and pays lamports.
func Pays(k sign.Key) Meta { return Meta{Key: k, Signer: true, Writable: true} }

// Addresses that instructions name.
var (
	SystemProgram      = address("11111111111111111111111111111111")
	TokenProgram       = address("TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA")
	Ed25519Program     = address("Ed25519SigVerify111111111111111111111111111")
	InstructionsSysvar = address("Sysvar1nstructions1111111111111111111111111")
	ComputeBudget      = address("ComputeBudget111111111111111111111111111111")
	MemoProgram        = address("MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr")
	LoaderProgram      = address("BPFLoaderUpgradeab1e11111111111111111111111") // the upgradeable one
)

// address reads a constant; a mistake in one shows when the package is first loaded.
func address(text string) sign.Key {
	k, err := sign.ParseKey(text)
	if err != nil {
		panic("address " + text + ": " + err.Error())
	}
	return k
}

const (
	rentPerByte  = 6960 // 3,480 lamports per byte and year, for two years
	rentOverhead = 128  // bytes that every account is charged beside its data
)

// Rent is the minimum balance of an account of size bytes, in lamports, at the price of every cluster. It is refunded
// when the account is closed.
func Rent(size int) uint64 { return (rentOverhead + uint64(size)) * rentPerByte }

func notOne(kind string, b []byte) error {
	return fmt.Errorf("%w: %s of %d bytes", ErrAccount, kind, len(b))
}
