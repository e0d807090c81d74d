package escrow_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/internal/fields"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// TestReadKeys: a key set comes back with the bytes after it left; a set that market refuses fails, and so does one cut off.
func TestReadKeys(t *testing.T) {
	t.Parallel()
	var keys []sign.Key
	for n := range market.MaxVoucherKeys {
		keys = append(keys, escrowtest.Key(string(rune('a'+n))))
		ks, err := market.NewKeySet(uint8(n/2+1), keys...)
		if err != nil {
			t.Fatal(err)
		}
		b := ks.Marshal()
		r := &fields.Reader{Rest: append(bytes.Clone(b), 7, 8)}
		if got := escrow.ReadKeys(r); r.Bad || !reflect.DeepEqual(got, ks) || !bytes.Equal(r.Rest, []byte{7, 8}) {
			t.Errorf("%d keys come back as %+v, with %x left, bad %v", n+1, got, r.Rest, r.Bad)
		}
		bad := map[string][]byte{"no threshold": append([]byte{0}, b[1:]...), "no keys": {1, 0},
			"too many": append([]byte{1, market.MaxVoucherKeys + 1}, make([]byte, 32*(market.MaxVoucherKeys+1))...)}
		for cut := range b {
			bad["cut off"] = b[:cut]
			for name, b := range bad {
				r := &fields.Reader{Rest: b}
				if escrow.ReadKeys(r); !r.Bad {
					t.Errorf("%s of %d keys at %d: accepted", name, n+1, cut)
				}
			}
		}
	}
}

// TestRootOf: the root on chain is that of the tree which the tranche was opened with.
func TestRootOf(t *testing.T) {
	t.Parallel()
	leaf := tranche.Leaf{Version: tranche.LeafVersion, Provider: escrowtest.Key("provider"), Payout: escrowtest.Key("payout"),
		Lease: market.LeaseID{1}, Rate: market.RateScale, Cap: 5, Start: 1, End: 9}
	tree, err := tranche.Build([]tranche.Leaf{leaf})
	if err != nil {
		t.Fatal(err)
	}
	on := account.Tranche{Root: tree.Root().Hash, Sum: 5, Leaves: make([]account.LeafState, 1)}
	if got := escrow.RootOf(on); got != tree.Root() {
		t.Errorf("%+v, want %+v", got, tree.Root())
	}
	if on.Leaves = make([]account.LeafState, 2); escrow.RootOf(on) == tree.Root() {
		t.Error("a tranche of two leaves has the root of one")
	}
}
