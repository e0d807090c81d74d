package escrow_test

import (
	"slices"
	"testing"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

// A key set that market refuses is not one of a record.
func TestKeySets(t *testing.T) {
	t.Parallel()
	var keys []sign.Key
	for n := range market.MaxVoucherKeys {
		keys = append(keys, escrowtest.Key(string(rune('a'+n))))
		ks, err := market.NewKeySet(uint8(n/2+1), keys...)
		if err != nil || ks.Validate() != nil {
			t.Fatalf("%d keys: %v", n+1, err)
		}
		for name, bad := range map[string]market.KeySet{
			"no threshold":   {Keys: ks.Keys},
			"high threshold": {Threshold: uint8(n + 2), Keys: ks.Keys},
			"no keys":        {Threshold: 1},
			"one twice":      {Threshold: 1, Keys: append(slices.Clone(ks.Keys), ks.Keys[0])},
			"too many":       {Threshold: 1, Keys: make([]sign.Key, market.MaxVoucherKeys+1)},
			"very many":      {Threshold: 1, Keys: make([]sign.Key, 257)},
		} {
			if bad.Validate() == nil {
				t.Errorf("%s beside %d keys: accepted", name, n+1)
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
