package market_test

import (
	"math"
	"testing"

	"github.com/starling-network/starling/market"
)

func TestDurationText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slots, least, most, millis uint64
		want                       string
	}{
		{1001, 10, 1000, 400, "6m40.4s requested, want 4s to 6m40s"},
		{25_200_000, 10, 864_000, 100, "700h0m0s requested, want 1s to 24h0m0s"},
		{0, 1, 1, 0, "0s requested, want 0s to 0s"},
		{math.MaxUint64, 1, 1, math.MaxUint64, "0s requested, want 0s to 0s"},
		{math.MaxUint64, 1, 2, 400, "2562047h47m16.8s requested, want 400ms to 800ms"},
	} {
		if got := market.DurationText(c.slots, c.least, c.most, c.millis); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
