package chain

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
)

// What is bid never exceeds the share of what is at stake, nor the most that was configured, and does not fall with retries,
// with what others paid, or with what is at stake.
func TestPriceBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := Fees{Least: rapid.Uint64().Draw(t, "least"), Most: rapid.Uint64().Draw(t, "most"), TokenLamports: rapid.Uint64().Draw(t, "token")}
		stake, decimals := market.Amount(rapid.Uint64().Draw(t, "stake")), rapid.Uint8Range(0, 19).Draw(t, "decimals")
		units, recent, retries := rapid.Uint32Range(1, 1_400_000).Draw(t, "units"), rapid.Uint64().Draw(t, "recent"), rapid.Uint8().Draw(t, "retries")
		ceiling := f.Ceiling(stake, decimals)
		price := f.Price(recent, retries, units, ceiling)
		cost := BidLamports(price, units)
		worth := float64(stake) / math.Pow10(int(decimals)) * float64(f.TokenLamports)
		if cost > f.Most || float64(cost) > max(worth/feeShare*1.000001, feeAlways) {
			t.Fatalf("bids %d lamports, at most %d; %g are at stake", cost, f.Most, worth)
		}
		if retries < 255 && f.Price(recent, retries+1, units, ceiling) < price || f.Price(recent/2, retries, units, ceiling) > price {
			t.Fatal("the price falls with a retry, or as others pay more")
		}
		if f.Ceiling(stake/2, decimals) > ceiling {
			t.Fatal("the ceiling falls with what is at stake")
		}
	})
}

func TestPrice(t *testing.T) {
	t.Parallel()
	f := DefaultFees()
	tokens := func(n market.Amount) market.Amount { return n * 1_000_000 }
	for _, c := range []struct {
		stake    market.Amount
		recent   uint64
		retries  uint8
		lamports uint64 // of a claim, 30,000 units
	}{
		{tokens(1), 0, 0, 30},
		{tokens(1), 50_000, 0, 1_500},
		{tokens(1), 50_000, 3, 12_000},
		{tokens(1), 50_000, 200, 500_000}, // a tenth of a token
		{tokens(1000), 0, 63, 1_000_000},  // all that may be
		{1, 1 << 60, 0, 5_000},            // next to nothing is at stake
		{0, 0, 200, 5_000},
	} {
		if got := BidLamports(f.Price(c.recent, c.retries, 30_000, f.Ceiling(c.stake, 6)), 30_000); got != c.lamports {
			t.Errorf("%d at stake, %d paid, %d retries: %d lamports, want %d", c.stake, c.recent, c.retries, got, c.lamports)
		}
	}
}
