package chain_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

func TestCheckMemo(t *testing.T) {
	t.Parallel()
	for memo, ok := range map[string]bool{
		"":                                   false,
		"x":                                  true,
		"é":                                  true,
		"\x00":                               true, // UTF-8: the chain takes it
		"\xff":                               false,
		"\xc3":                               false, // half a letter
		strings.Repeat("x", chain.MaxMemo):   true,
		strings.Repeat("x", chain.MaxMemo+1): false,
		strings.Repeat("é", chain.MaxMemo/2): true,
		strings.Repeat("é", chain.MaxMemo/2) + "x":    false,
		strings.Repeat("x", chain.MaxMemo-1) + "\xc3": false,
	} {
		if err := chain.CheckMemo([]byte(memo)); (err == nil) != ok || err != nil && !errors.Is(err, chain.ErrMemo) {
			t.Errorf("%d bytes, %.8q: %v", len(memo), memo, err)
		}
	}
}

// TestTxStates: exactly three states are the end of a transaction, and each state has a name of its own.
func TestTxStates(t *testing.T) {
	t.Parallel()
	names := map[string]bool{"invalid": true}
	for s, final := range map[chain.TxState]bool{
		chain.Unknown: false, chain.Pending: false, chain.Confirmed: false,
		chain.Finalized: true, chain.Failed: true, chain.Expired: true,
	} {
		if s.Final() != final || names[s.String()] {
			t.Errorf("state %d: %s, final %v", s, s, s.Final())
		}
		names[s.String()] = true
	}
	if bad := chain.Expired + 1; bad.String() != "invalid" || bad.Final() {
		t.Errorf("state %d: %s", bad, bad)
	}
	for of, want := range map[chain.Of]string{chain.OfReceipts: "receipts", chain.OfRecords: "records"} {
		if of.String() != want {
			t.Errorf("%d is %s, want %s", of, of, want)
		}
	}
}

func TestFormatSOL(t *testing.T) {
	t.Parallel()
	for lamports, want := range map[uint64]string{
		0: "0.00", 1: "0.000000001", 1_503_360: "0.00150336", 1_000_000_000: "1.00", 1_000_000_001: "1.000000001",
		math.MaxUint64: "18446744073.709551615",
	} {
		if got := chain.FormatSOL(lamports); got != want {
			t.Errorf("%d lamports are %s, want %s", lamports, got, want)
		}
	}
}

// TestBidLamports: the cost is price times units over a million, rounded up as the chain does, in exact arithmetic.
func TestBidLamports(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price, units := rapid.Uint64().Draw(t, "price"), rapid.Uint32().Draw(t, "units")
		exact := new(big.Int).Mul(new(big.Int).SetUint64(price), big.NewInt(int64(units)))
		exact.Add(exact, big.NewInt(999_999)).Div(exact, big.NewInt(1_000_000))
		want := uint64(math.MaxUint64)
		if exact.IsUint64() {
			want = exact.Uint64()
		}
		if got := chain.BidLamports(price, units); got != want {
			t.Fatalf("%d for each of %d units: %d lamports, want %d", price, units, got, want)
		}
	})
	for _, c := range []struct {
		price uint64
		units uint32
		want  uint64
	}{{0, 0, 0}, {1, 1, 1}, {1, 1_000_000, 1}, {1, 1_000_001, 2}, {math.MaxUint64, 1_000_000, math.MaxUint64},
		{math.MaxUint64, 1_000_001, math.MaxUint64}, {math.MaxUint64, math.MaxUint32, math.MaxUint64}} {
		if got := chain.BidLamports(c.price, c.units); got != c.want {
			t.Errorf("%d for each of %d units: %d lamports, want %d", c.price, c.units, got, c.want)
		}
	}
}

// TestCeiling: a tenth of the stake's worth in exact arithmetic, at least as much as a signature, at most Most.
func TestCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := chain.Fees{Most: rapid.Uint64().Draw(t, "most"), TokenLamports: rapid.Uint64().Draw(t, "token")}
		stake, decimals := rapid.Uint64().Draw(t, "stake"), rapid.Uint8Range(0, 19).Draw(t, "decimals")
		worth := new(big.Int).Mul(new(big.Int).SetUint64(stake), new(big.Int).SetUint64(f.TokenLamports))
		worth.Div(worth, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil))
		tenth := uint64(math.MaxUint64 / 10)
		if worth.IsUint64() {
			tenth = worth.Uint64() / 10
		}
		want := min(f.Most, max(tenth, 5000))
		if got := f.Ceiling(market.Amount(stake), decimals); got != want {
			t.Fatalf("%+v, %d base units of %d decimals: %d lamports, want %d", f, stake, decimals, got, want)
		}
	})
}

// TestCeilingOfManyDecimals: the finest token that fits in 64 bits has 19 decimals; more are taken as 19.
func TestCeilingOfManyDecimals(t *testing.T) {
	t.Parallel()
	f := chain.Fees{Most: math.MaxUint64, TokenLamports: 1_000_000_000}
	for decimals, want := range map[uint8]uint64{18: 1_000_000_000, 19: 100_000_000, 20: 100_000_000, 255: 100_000_000} {
		if got := f.Ceiling(10_000_000_000_000_000_000, decimals); got != want {
			t.Errorf("%d decimals: %d lamports, want %d", decimals, got, want)
		}
	}
}

// TestCostAtMost: no transaction costs more than the estimate for its signatures and its highest bid.
func TestCostAtMost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := chain.Fees{Least: rapid.Uint64().Draw(t, "least"), Most: rapid.Uint64Range(0, 1<<50).Draw(t, "most"),
			TokenLamports: rapid.Uint64().Draw(t, "token")}
		stake, signatures := market.Amount(rapid.Uint64().Draw(t, "stake")), rapid.Uint64Range(1, 12).Draw(t,
			"signatures")
		units := rapid.Uint32Range(1, 1_400_000).Draw(t, "units")
		price := f.Price(rapid.Uint64().Draw(t, "recent"), rapid.Uint8().Draw(t, "retries"), units, f.Ceiling(stake, 6))
		cost := signatures*chain.SignatureFee + chain.BidLamports(price, units)
		if most := f.CostAtMost(signatures, stake, 6); cost > most {
			t.Fatalf("it costs %d lamports, at most %d were said", cost, most)
		}
	})
	if got := chain.DefaultFees().CostAtMost(2, 0, 6); got != 2*5000+5000 {
		t.Errorf("two signatures with nothing at stake: %d lamports", got)
	}
}
