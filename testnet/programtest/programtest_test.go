package programtest

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

const lamports = 1_000_000_000

// TestEngines: what both promise, with a program that every chain has.
func TestEngines(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) Engine{"LiteSVM": LiteSVM, "Surfpool": Surfpool} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t)
			payer := Wallet(t, e, "payer", lamports)
			to := sign.Key(sign.Sum([]byte("receiver")))
			if a, err := e.Account(t.Context(), to); a != nil || err != nil {
				t.Fatalf("before: %+v, %v", a, err)
			}
			transfer := func(n byte) svm.Instruction { // n · 2^24 lamports
				return svm.Instruction{Program: svm.SystemProgram, Data: []byte{2, 0, 0, 0, 0, 0, 0, n, 0, 0, 0, 0},
					Accounts: []svm.Meta{{Key: payer.Key(), Signer: true, Writable: true}, {Key: to, Writable: true}}}
			}
			for range 3 { // the same transaction, each time another
				r, err := e.Run(t.Context(), []svm.Instruction{transfer(1)}, payer)
				if err != nil || r.Err != "" || r.Units != 150 || !strings.Contains(strings.Join(r.Logs, " "), "success") {
					t.Fatalf("%+v, %v", r, err)
				}
			}
			r, err := e.Run(t.Context(), []svm.Instruction{transfer(1), transfer(255)}, payer)
			if err != nil || r.Err != Custom(1, 1) {
				t.Errorf("overdraft: %+v, %v", r, err)
			}
			r, err = e.Run(t.Context(), []svm.Instruction{{Program: svm.SystemProgram, Data: []byte{99, 0, 0, 0}}}, payer)
			if err != nil || r.Err != `{"InstructionError":[0,"InvalidInstructionData"]}` {
				t.Errorf("nonsense: %+v, %v", r, err)
			}
			if _, err = e.Run(t.Context(), []svm.Instruction{transfer(1)}, sign.NewPrivate([32]byte{1})); err == nil {
				t.Error("run without the payer's signature")
			}
			if a, err := e.Account(t.Context(), to); err != nil || a == nil || a.Lamports != 3<<24 || a.Owner != svm.SystemProgram || len(a.Data) != 0 {
				t.Errorf("after: %+v, %v", a, err)
			}
			slot, err := e.Slot(t.Context())
			if err != nil || slot == 0 {
				t.Errorf("slot %d, %v", slot, err)
			}
			if w, can := e.(Warper); can {
				if err := w.Warp(t.Context(), slot+1000); err != nil {
					t.Error(err)
				}
				if now, err := e.Slot(t.Context()); err != nil || now != slot+1000 {
					t.Errorf("slot %d, %v, want %d", now, err, slot+1000)
				}
			}
		})
	}
}

// TestStaleBlockhash: a blockhash that is too old is no failure of the test, but of the attempt.
func TestStaleBlockhash(t *testing.T) {
	t.Parallel()
	e := Surfpool(t).(*surfpool)
	payer := Wallet(t, e, "payer", lamports)
	raw, err := signed([]svm.Instruction{{Program: svm.SystemProgram, Data: []byte{99, 0, 0, 0}}}, payer.Key().String(), []sign.Signer{payer})
	if err != nil {
		t.Fatal(err)
	}
	var id string
	err = e.call(t.Context(), &id, "sendTransaction", raw, map[string]any{"encoding": "base64", "skipPreflight": true})
	if err != nil && !strings.Contains(strings.ToLower(err.Error()), "blockhash") {
		t.Fatalf("sent with a blockhash that never was: %v", err)
	}
	if err == nil { // it takes what no block can hold
		if r, err := e.landed(t.Context(), id, payer.Key().String()); r != nil || err != nil {
			t.Errorf("landed with a blockhash that never was: %+v, %v", r, err)
		}
	}
	var other Result
	if other, err = e.Run(t.Context(), []svm.Instruction{{Program: svm.SystemProgram, Data: []byte{99, 0, 0, 0}}}, payer); err != nil || other.Err == "" || other.Err == stale {
		t.Errorf("the same with a good one: %+v, %v", other, err)
	}
}
