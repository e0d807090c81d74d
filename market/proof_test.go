package market_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// A list is what its root says, in any order; one that shows a unit twice, or two units by one record, has no root.
func TestProofRoot(t *testing.T) {
	t.Parallel()
	shown := testShown(5)
	root, err := market.ProofRoot(shown)
	if err != nil || root.IsZero() {
		t.Fatal(root, err)
	}
	slices.Reverse(shown)
	if again, err := market.ProofRoot(shown); err != nil || again != root {
		t.Errorf("in another order: %s, %v", again, err)
	}
	if none, err := market.ProofRoot(nil); err != nil || !none.IsZero() {
		t.Errorf("of nothing: %s, %v", none, err)
	}
	b, err := market.MarshalShown(shown)
	if err != nil {
		t.Fatal(err)
	}
	list, err := market.UnmarshalShown(b, root)
	if err != nil || len(list) != 5 {
		t.Errorf("%v, %v", list, err)
	}
	many := testShown(market.MaxShown + 1)
	swapped := append(slices.Clone(b[64:128]), b[:64]...)
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"empty": {nil, market.ErrMalformed}, "cut": {b[:100], market.ErrMalformed}, "out of order": {swapped, market.ErrMalformed},
		"too long":        {make([]byte, 64*(market.MaxShown+1)), market.ErrMalformed},
		"another list":    {b[:128], market.ErrUnits},
		"a unit twice":    {append(slices.Clone(b[:64]), b[:64]...), market.ErrMalformed},
		"another's bytes": {append(slices.Clone(b[:319]), b[319]^1), market.ErrUnits},
	} {
		if _, err := market.UnmarshalShown(c.b, root); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unit, record := testShown(2), testShown(2)
	unit[1].Unit, record[1].Record = unit[0].Unit, record[0].Record
	for name, bad := range map[string][]market.Shown{"a unit twice": unit, "a record twice": record, "too many": many} {
		if _, err := market.ProofRoot(bad); !errors.Is(err, market.ErrUnits) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := market.MarshalShown(bad); !errors.Is(err, market.ErrUnits) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if root, err := market.ProofRoot(many[1:]); err != nil || root.IsZero() {
		t.Errorf("as many as there may be: %v", err)
	}
}

func FuzzShown(f *testing.F) {
	for _, n := range []int{1, 3} {
		b, _ := market.MarshalShown(testShown(n))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := market.UnmarshalShown(b, sign.Hash{1}); err == nil {
			t.Fatal("it is behind another root")
		}
		var list []market.Shown
		for at := b; len(at) >= 64; at = at[64:] {
			list = append(list, market.Shown{Unit: market.UnitID(at[:32]), Record: sign.Hash(at[32:64])})
		}
		sorted, err := market.SortShown(list)
		if err != nil {
			return
		}
		root, err := market.ProofRoot(list)
		if err != nil {
			t.Fatal(err)
		}
		wire, err := market.MarshalShown(list)
		if err != nil {
			t.Fatal(err)
		}
		again, err := market.UnmarshalShown(wire, root)
		if err != nil || !reflect.DeepEqual(again, sorted) {
			t.Fatalf("%v\n%v\n%v", again, sorted, err)
		}
	})
}
