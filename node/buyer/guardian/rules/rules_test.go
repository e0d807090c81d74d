package rules_test

import (
	"math"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/guardian/rules"
)

// The rules are tested as those of a ward, in the package above.

func TestAfter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slot market.Slot
		n    uint64
		want market.Slot
	}{
		{7, 0, 7}, {7, 5, 12}, {math.MaxUint64 - 1, 1, math.MaxUint64},
		{math.MaxUint64 - 1, 2, math.MaxUint64}, {1, math.MaxUint64, math.MaxUint64},
	} {
		if got := rules.After(c.slot, c.n); got != c.want {
			t.Errorf("%d after slot %d: got %d, want %d", c.n, c.slot, got, c.want)
		}
	}
}
