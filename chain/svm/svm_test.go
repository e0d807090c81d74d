package svm_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
)

// key is a key of one byte, repeated.
func key(b byte) (k sign.Key) {
	for i := range k {
		k[i] = b
	}
	return k
}

func keys(t *rapid.T, name string, least, most int) []sign.Key {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sign.Key {
		return sign.Key(rapid.SliceOfN(rapid.Byte(), sign.KeySize, sign.KeySize).Draw(t, "key"))
	}), least, most).Draw(t, name)
}

// TestMetas: each kind of account has its permissions and no more.
func TestMetas(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got              svm.Meta
		signer, writable bool
	}{
		"reads":  {svm.Reads(key(1)), false, false},
		"writes": {svm.Writes(key(1)), false, true},
		"signs":  {svm.Signs(key(1)), true, false},
		"pays":   {svm.Pays(key(1)), true, true},
	} {
		if want := (svm.Meta{Key: key(1), Signer: c.signer, Writable: c.writable}); c.got != want {
			t.Errorf("%s: %+v, want %+v", name, c.got, want)
		}
	}
}

// TestRent compares with rents that every cluster reports (getMinimumBalanceForRentExemption).
func TestRent(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]uint64{0: 890_880, 82: 1_461_600, svm.TokenSize: 2_039_280, 10_240: 72_161_280} {
		if got := svm.Rent(size); got != want {
			t.Errorf("%d bytes: %d lamports, want %d", size, got, want)
		}
	}
}

// TestAddresses compares with the addresses of Solana's client library.
func TestAddresses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := sign.Key(sign.Sum([]byte(rapid.String().Draw(t, "program"))))
		seeds := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 32), 0, 5).Draw(t, "seeds")
		want, bump, err := solana.ProgramAddress(id, seeds...)
		if err != nil {
			t.Fatal(err)
		}
		if got, gotBump := svm.FindAddress(id, seeds...); got != want || gotBump != bump {
			t.Fatalf("%s with %d, want %s with %d", got, gotBump, want, bump)
		}
		if got := svm.Address(id, seeds...); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}
