package solana

import (
	"testing"

	solanago "github.com/gagliardetto/solana-go"

	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// TestJoinedAccounts: an account that signs in one place and is written in another signs and is written, whichever comes first.
func TestJoinedAccounts(t *testing.T) {
	t.Parallel()
	payer, buyer, other := sign.NewPrivate([32]byte{1}), sign.NewPrivate([32]byte{2}), sign.NewPrivate([32]byte{3})
	signs, writes := svm.Meta{Key: buyer.Key(), Signer: true}, svm.Meta{Key: buyer.Key(), Writable: true}
	for name, accounts := range map[string][]svm.Meta{
		"signs first":  {signs, {Key: other.Key(), Signer: true}, writes},
		"writes first": {writes, {Key: other.Key(), Signer: true}, signs},
	} {
		_, raw, err := transaction.Sign([]svm.Instruction{{Program: sign.Key{9}, Accounts: accounts}}, nil, sign.Hash{1}, payer, buyer, other)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := solanago.TransactionFromBytes(raw)
		if err != nil {
			t.Fatal(err)
		}
		key := solanago.PublicKey(buyer.Key())
		writable, err := tx.Message.IsWritable(key)
		if err != nil || !writable || !tx.Message.IsSigner(key) {
			t.Errorf("%s: writable %v, signer %v, %v", name, writable, tx.Message.IsSigner(key), err)
		}
		if writable, err := tx.Message.IsWritable(solanago.PublicKey(other.Key())); err != nil || writable {
			t.Errorf("%s: the other is writable too: %v", name, err)
		}
	}
}

// TestTokenAccount: the address is the one that everybody else finds.
func TestTokenAccount(t *testing.T) {
	t.Parallel()
	for i := range byte(20) {
		wallet, mint := sign.NewPrivate([32]byte{i}).Key(), sign.Key{i, 1}
		want, _, err := solanago.FindAssociatedTokenAddress(solanago.PublicKey(wallet), solanago.PublicKey(mint))
		if got := svm.TokenAccount(wallet, mint); err != nil || got != sign.Key(want) {
			t.Errorf("wallet %s, mint %s: %s, want %s, %v", wallet, mint, got, want, err)
		}
		open := svm.OpenTokenAccount(sign.Key{7}, wallet, mint)
		if at, ok := open.Opens(); !ok || at != sign.Key(want) {
			t.Errorf("opens %s, %v", at, ok)
		}
		open.Data = nil
		if _, ok := open.Opens(); ok {
			t.Error("a call that fails when the account is there")
		}
	}
}
