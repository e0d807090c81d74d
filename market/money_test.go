package market_test

import (
	"errors"
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"pgregory.net/rapid"
)

func TestRateAndOwed(t *testing.T) {
	t.Parallel()
	// 0.45 per unit-hour with 6 decimals, 2 units, slots of 400 ms: 9000 slots an hour, 100 base units a slot.
	rate, err := market.RateOf(450_000, 2, 400)
	if err != nil || rate != 100_000_000 {
		t.Fatal(rate, err)
	}
	if owed, err := rate.Owed(9000); err != nil || owed != 900_000 {
		t.Fatal(owed, err)
	}
	if rate, err := market.RateOf(1, 1, 1); err != nil || rate != 1 {
		t.Error("rounds up to", rate, err)
	}
	for _, c := range []struct {
		units int
		slot  uint64
		want  error
	}{{0, 400, market.ErrMalformed}, {market.MaxUnitsPerLease + 1, 400, market.ErrMalformed}, {1, 0, market.ErrMalformed}, {1, 60_001, market.ErrMalformed},
		{market.MaxUnitsPerLease, 60_000, market.ErrOverflow}} {
		if _, err := market.RateOf(math.MaxUint64, c.units, c.slot); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := market.Rate(math.MaxUint64).Owed(1_000_001); !errors.Is(err, market.ErrOverflow) {
		t.Error(err)
	}
	if _, err := market.Amount(math.MaxUint64).Add(1); !errors.Is(err, market.ErrOverflow) {
		t.Error(err)
	}
	if _, err := market.Amount(1 << 63).Times(2); !errors.Is(err, market.ErrOverflow) {
		t.Error(err)
	}
}

// The 128-bit arithmetic agrees with big integers everywhere, and never gives a wrong number instead of an error.
func TestMoneyProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		price, units, slot := rapid.Uint64().Draw(t, "price"), rapid.IntRange(1, market.MaxUnitsPerLease).Draw(t, "units"), rapid.Uint64Range(1, 60_000).Draw(t, "slot")
		want := new(big.Int).SetUint64(price)
		want.Mul(want, big.NewInt(int64(units))).Mul(want, new(big.Int).SetUint64(slot)).Mul(want, big.NewInt(1_000_000))
		want.Add(want, big.NewInt(3_599_999)).Div(want, big.NewInt(3_600_000))
		rate, err := market.RateOf(market.Price(price), units, slot)
		if want.IsUint64() != (err == nil) || err == nil && want.Uint64() != uint64(rate) {
			t.Fatalf("safety: rate %d, %v, want %s", rate, err, want)
		}
		slots := rapid.Uint64().Draw(t, "slots")
		r := market.Rate(rapid.Uint64().Draw(t, "rate"))
		want = new(big.Int).Mul(new(big.Int).SetUint64(uint64(r)), new(big.Int).SetUint64(slots))
		want.Div(want, big.NewInt(1_000_000))
		owed, err := r.Owed(slots)
		if want.IsUint64() != (err == nil) || err == nil && want.Uint64() != uint64(owed) {
			t.Fatalf("safety: owed %d, %v, want %s", owed, err, want)
		}
		decimals := rapid.Uint8Range(0, market.MaxDecimals).Draw(t, "decimals")
		if back, err := market.ParseDecimal(market.Decimal(price, decimals), decimals); err != nil || back != price {
			t.Fatalf("liveness: %s reads as %d, %v", market.Decimal(price, decimals), back, err)
		}
	})
}

func TestDecimal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		base     uint64
		decimals uint8
		want     string
	}{{400_000, 6, "0.40"}, {520_001, 6, "0.520001"}, {1, 6, "0.000001"}, {0, 6, "0.00"}, {12_000_000, 6, "12.00"}, {5, 0, "5"}, {15, 1, "1.5"},
		{math.MaxUint64, 9, "18446744073.709551615"}} {
		if got := market.Decimal(c.base, c.decimals); got != c.want {
			t.Errorf("%d: %s, want %s", c.base, got, c.want)
		}
	}
	for _, bad := range []string{"", ".", "1.", ".5", "-1", "1e3", "1.2345678", "x", "18446744073710", "１"} {
		if n, err := market.ParseDecimal(bad, 6); err == nil {
			t.Errorf("%q reads as %d", bad, n)
		}
	}
	for text, ok := range map[string]bool{"2.5": true, "1000": true, "0.0000000000000000001": true, "": false, "2,5": false, "x": false, "-1": false} {
		if err := market.CheckDecimal(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	if n, err := market.ParseDecimal("0.45", 6); err != nil || n != 450_000 {
		t.Error(n, err)
	}
}

func testGenesis() market.Genesis {
	return market.Genesis{Network: "test-1", Chain: [32]byte{1}, Mint: [32]byte{2}, Symbol: "STAR", Decimals: 6, SlotMillis: 400, IntervalSlots: 25}
}

func TestGenesis(t *testing.T) {
	t.Parallel()
	g := testGenesis()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if g.FormatAmount(1_250_000) != "1.25 STAR" || g.SlotsIn(time.Second) != 3 || g.SlotsIn(800*time.Millisecond) != 2 || g.SlotsIn(-1) != 0 {
		t.Error(g.FormatAmount(1_250_000), g.SlotsIn(time.Second))
	}
	seen := map[string]string{g.Tag(): "itself"}
	for name, change := range map[string]func(*market.Genesis){
		"network": func(g *market.Genesis) { g.Network = "test-2" }, "chain": func(g *market.Genesis) { g.Chain[0]++ },
		"program": func(g *market.Genesis) { g.Program[0]++ }, "escrow": func(g *market.Genesis) { g.Escrow[0]++ },
		"mint":   func(g *market.Genesis) { g.Mint[0]++ },
		"symbol": func(g *market.Genesis) { g.Symbol = "STAR2" }, "decimals": func(g *market.Genesis) { g.Decimals++ },
		"slot": func(g *market.Genesis) { g.SlotMillis++ }, "interval": func(g *market.Genesis) { g.IntervalSlots++ }, "audit": func(g *market.Genesis) { g.AuditSlots, g.AuditOneIn = 300, 1 },
		"audits":    func(g *market.Genesis) { g.AuditSlots, g.AuditOneIn = 300, 30 },
		"simulated": func(g *market.Genesis) { g.Simulated = true },
	} {
		other := g
		change(&other)
		if before, same := seen[other.Tag()]; same {
			t.Errorf("another %s has the tag of %s", name, before)
		}
		seen[other.Tag()] = name
	}
	for name, change := range map[string]func(*market.Genesis){
		"network": func(g *market.Genesis) { g.Network = "Test" }, "mint": func(g *market.Genesis) { g.Mint = [32]byte{} },
		"symbol": func(g *market.Genesis) { g.Symbol = "star" }, "decimals": func(g *market.Genesis) { g.Decimals = 20 },
		"program alone": func(g *market.Genesis) { g.Program = [32]byte{3} }, "escrow alone": func(g *market.Genesis) { g.Escrow = [32]byte{4} },
		"slot": func(g *market.Genesis) { g.SlotMillis = 0 }, "interval": func(g *market.Genesis) { g.IntervalSlots = 0 }, "audit": func(g *market.Genesis) { g.AuditSlots, g.AuditOneIn = 9, 1 },
		"audits": func(g *market.Genesis) { g.AuditSlots, g.AuditOneIn = 300, 1025 }, "no audits": func(g *market.Genesis) { g.AuditSlots = 300 },
		"audits without windows": func(g *market.Genesis) { g.AuditOneIn = 1 },
	} {
		other := g
		change(&other)
		if !errors.Is(other.Validate(), market.ErrMalformed) {
			t.Errorf("bad %s accepted", name)
		}
	}
}

func TestAmountPlus(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]market.Amount{
		{1, 2, 3}, {0, math.MaxUint64, math.MaxUint64},
		{math.MaxUint64 - 1, 1, math.MaxUint64}, {math.MaxUint64 - 1, 2, math.MaxUint64},
	} {
		if got := c[0].Plus(c[1]); got != c[2] {
			t.Errorf("%d + %d = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}
