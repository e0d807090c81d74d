// Package programtest runs transactions against Starling's on-chain program in two Solana runtimes, of different makers
// and versions, so that one runtime's error is not mistaken for the chain's rule:
//
//   - Surfpool, as the local testnet has it: over RPC, with blocks by the clock, deployed through the real loader.
//   - LiteSVM: inside a Node process, without blocks, newer; its clock changes only when it is set.
//
// Both take the same signed bytes and answer with the error, the log, and the compute units used.
package programtest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// Engine is one runtime.
type Engine interface {
	// Name is the engine's name for test output.
	Name() string
	// Deploy deploys a program under the address of the key.
	Deploy(ctx context.Context, program sign.Private, elf []byte) error
	// Fund gives lamports to a wallet.
	Fund(ctx context.Context, to sign.Key, lamports uint64) error
	// Run runs one transaction; the first signer pays. A failed transaction is a Result, not an error.
	Run(ctx context.Context, instructions []svm.Instruction, signers ...sign.Signer) (Result, error)
	// Account is the present state of an account; nil if it does not exist.
	Account(ctx context.Context, key sign.Key) (*Account, error)
	// Slot is the newest slot.
	Slot(ctx context.Context) (uint64, error)
}

// Minter is an engine that mints tokens as a chain does.
type Minter interface {
	// Mint makes a token and an account of it with amount tokens for each wallet. Wallets get lamports too.
	Mint(ctx context.Context, mint sign.Private, decimals uint8, amount, lamports uint64, wallets ...sign.Key) error
}

// Warper is an engine with a clock that can be set.
type Warper interface {
	Warp(ctx context.Context, slot uint64) error
}

// Account on chain.
type Account struct {
	Lamports uint64
	Owner    sign.Key
	Data     []byte
}

// Result of a transaction.
type Result struct {
	Err   string // as RPC servers give it, in JSON without spaces; "" when it succeeded
	Logs  []string
	Units uint64 // compute units used, by all instructions
	Slot  uint64 // of its block; 0 where there are none
}

// Custom is the Err of a transaction that a program refused with this number.
func Custom(instruction int, number uint32) string {
	return fmt.Sprintf(`{"InstructionError":[%d,{"Custom":%d}]}`, instruction, number)
}

// errText is a runtime's error in the form of Result.Err.
func errText(raw json.RawMessage) (string, error) {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return "", fmt.Errorf("reading a transaction's error: %w", err)
	}
	if v == nil {
		return "", nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// Each runs a test on both engines, with the program under one address.
func Each(t *testing.T, elf []byte, test func(t *testing.T, e Engine, program sign.Key)) {
	t.Helper()
	for name, start := range map[string]func(testing.TB) Engine{"LiteSVM": LiteSVM, "Surfpool": Surfpool} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t)
			test(t, e, Deploy(t, e, elf))
		})
	}
}

// Deploy deploys the program under an address that is the same in every engine.
func Deploy(t testing.TB, e Engine, elf []byte) sign.Key {
	t.Helper()
	program := sign.NewPrivate(sign.Sum([]byte("program")))
	if err := e.Deploy(t.Context(), program, elf); err != nil {
		t.Fatalf("%s: %v", e.Name(), err)
	}
	return program.Key()
}

// Wallet makes a funded wallet from a name: the same in every engine.
func Wallet(t testing.TB, e Engine, name string, lamports uint64) sign.Private {
	t.Helper()
	wallet := sign.NewPrivate(sign.Sum([]byte("wallet "), []byte(name)))
	if err := e.Fund(t.Context(), wallet.Key(), lamports); err != nil {
		t.Fatalf("%s: %v", e.Name(), err)
	}
	return wallet
}
