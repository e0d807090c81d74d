package svm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/svm"
)

// tokenBytes is a token account in the layout of the token program (spl_token::state::Account).
func tokenBytes(t svm.Token, state byte, closer uint32) []byte {
	b := slices.Concat(t.Mint[:], t.Owner[:], binary.LittleEndian.AppendUint64(nil, t.Amount))
	b = append(b, make([]byte, 4+32)...)                                         // delegate
	b = append(append(b, state), make([]byte, 4+8+8)...)                         // is native, delegated amount
	b = append(binary.LittleEndian.AppendUint32(b, closer), make([]byte, 32)...) // close authority
	return b
}

// TestTokenAccounts: mint, owner and amount are read of every initialized account; it is plain without freeze and closer.
func TestTokenAccounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := keys(t, "keys", 2, 2)
		want := svm.Token{Mint: k[0], Owner: k[1], Amount: rapid.Uint64().Draw(t, "amount")}
		state := rapid.SampledFrom([]byte{0, 1, 2}).Draw(t, "state")
		closer := rapid.SampledFrom([]uint32{0, 1}).Draw(t, "closer")
		b := tokenBytes(want, state, closer)
		got, err := svm.UnmarshalToken(b)
		if state == 0 {
			if !errors.Is(err, svm.ErrAccount) || got != (svm.Token{}) {
				t.Fatalf("an account that is not initialized: %+v, %v", got, err)
			}
			return
		}
		if want.Plain = state == 1 && closer == 0; err != nil || got != want {
			t.Fatalf("state %d, closer %d: %+v, want %+v, %v", state, closer, got, want, err)
		}
		for _, n := range []int{0, svm.TokenSize - 1, svm.TokenSize + 1, 82} {
			if _, err := svm.UnmarshalToken(append(b, 0)[:n]); !errors.Is(err, svm.ErrAccount) {
				t.Fatalf("%d bytes: %v", n, err)
			}
		}
	})
}

// TestTokenCalls pins the bytes and accounts of calls of the token program.
func TestTokenCalls(t *testing.T) {
	t.Parallel()
	const amount = 0x0102030405060708
	for name, c := range map[string]struct {
		got      svm.Instruction
		data     []byte
		accounts []svm.Meta
	}{
		"transfer": {svm.TransferTokens(key(1), key(2), key(3), key(4), amount, 9),
			[]byte{12, 8, 7, 6, 5, 4, 3, 2, 1, 9},
			[]svm.Meta{{Key: key(1), Writable: true}, {Key: key(3)}, {Key: key(2), Writable: true}, {Key: key(4), Signer: true}}},
		"approve": {svm.ApproveTokens(key(1), key(2), key(3), key(4), amount, 9),
			[]byte{13, 8, 7, 6, 5, 4, 3, 2, 1, 9},
			[]svm.Meta{{Key: key(1), Writable: true}, {Key: key(2)}, {Key: key(3)}, {Key: key(4), Signer: true}}},
	} {
		if c.got.Program != svm.TokenProgram || !bytes.Equal(c.got.Data, c.data) || !slices.Equal(c.got.Accounts, c.accounts) {
			t.Errorf("%s: %+v, want %x of %+v", name, c.got, c.data, c.accounts)
		}
	}
}

// TestOpens: only an opening that passes when the account is there is one.
func TestOpens(t *testing.T) {
	t.Parallel()
	wallet, mint := key(1), key(2)
	at := svm.TokenAccount(wallet, mint)
	if at == svm.TokenAccount(mint, wallet) || at != svm.Address(svm.AssociatedTokenProgram, wallet[:], svm.TokenProgram[:], mint[:]) {
		t.Errorf("the account is at %s", at)
	}
	good := svm.OpenTokenAccount(key(3), wallet, mint)
	if got, ok := good.Opens(); !ok || got != at {
		t.Errorf("opens %s, %v, want %s", got, ok, at)
	}
	want := []svm.Meta{{Key: key(3), Signer: true, Writable: true}, {Key: at, Writable: true}, {Key: wallet}, {Key: mint},
		{Key: svm.SystemProgram}, {Key: svm.TokenProgram}}
	if good.Program != svm.AssociatedTokenProgram || !slices.Equal(good.Accounts, want) {
		t.Errorf("%+v, want accounts %+v", good, want)
	}
	for name, change := range map[string]func(*svm.Instruction){
		"another program":       func(in *svm.Instruction) { in.Program = svm.TokenProgram },
		"an account less":       func(in *svm.Instruction) { in.Accounts = in.Accounts[:5] },
		"an account more":       func(in *svm.Instruction) { in.Accounts = append(in.Accounts, svm.Meta{}) },
		"no data":               func(in *svm.Instruction) { in.Data = nil },
		"fails when it is open": func(in *svm.Instruction) { in.Data = []byte{0} },
		"data of another form":  func(in *svm.Instruction) { in.Data = []byte{1, 0} },
	} {
		in := svm.OpenTokenAccount(key(3), wallet, mint)
		change(&in)
		if got, ok := in.Opens(); ok {
			t.Errorf("%s opens %s", name, got)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(make([]byte, svm.TokenSize))
	f.Add(tokenBytes(svm.Token{Amount: 5}, 1, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := svm.UnmarshalToken(b); err != nil && !errors.Is(err, svm.ErrAccount) {
			t.Fatal(err)
		}
	})
}
