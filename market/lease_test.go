package market_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

func testUnits(n int) []market.UnitID {
	var out []market.UnitID
	for i := range n {
		out = append(out, market.NewUnitID(provider.Key(), "gpu/h200", "GPU-5a1b", uint32(i)))
	}
	return out
}

func testKeys() market.KeySet {
	keys, err := market.NewKeySet(2, buyer.Key(), sign.NewPrivate([32]byte{3}).Key(), sign.NewPrivate([32]byte{4}).Key())
	if err != nil {
		panic(err)
	}
	return keys
}

func testCore() market.LeaseCore {
	rate, err := market.RateOf(2_600_000, 2, 400)
	if err != nil {
		panic(err)
	}
	most, err := rate.Owed(9000)
	if err != nil {
		panic(err)
	}
	return market.LeaseCore{
		Version: market.LeaseVersion, Units: 2, Rank: 3, RankEpoch: 1, Order: market.OrderID{8, 31: 9}, Buyer: buyer.Key(), Provider: provider.Key(),
		Payout: sign.Key{3}, UnitsRoot: market.UnitsRoot(testUnits(2)), Terms: sign.Hash{7}, VoucherKeys: testKeys().Hash(), Rate: rate, Cap: most,
		Start: 1_000_000, ActivateBefore: 1_000_150, End: 1_009_000, Nonce: market.Nonce{1, 15: 2},
	}
}

func testLease() market.Lease {
	l := market.Lease{Core: testCore()}
	l.ProviderSig, _ = l.Core.Sign(domain, provider)
	l.BuyerSig, _ = l.Core.Sign(domain, buyer)
	return l
}

func TestLeaseRoundTrip(t *testing.T) {
	t.Parallel()
	l := testLease()
	if err := l.Check(domain); err != nil {
		t.Fatal(err)
	}
	b := l.Marshal()
	back, err := market.UnmarshalLease(b)
	if err != nil || back != l || len(b) != market.LeaseSize {
		t.Fatalf("%+v, %v", back, err)
	}
	for _, bad := range [][]byte{nil, b[:len(b)-1], append(slices.Clone(b), 0)} {
		if _, err := market.UnmarshalLease(bad); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	var fromJSON market.Lease
	if err := json.Unmarshal(text, &fromJSON); err != nil || fromJSON != l {
		t.Errorf("%s: %v", text, err)
	}
}

// One signature each, over these terms, on this network: nothing else passes.
func TestLeaseSignatures(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*market.Lease){
		"swapped":      func(l *market.Lease) { l.ProviderSig, l.BuyerSig = l.BuyerSig, l.ProviderSig },
		"provider's":   func(l *market.Lease) { l.ProviderSig[5] ^= 1 },
		"buyer's":      func(l *market.Lease) { l.BuyerSig[5] ^= 1 },
		"other terms":  func(l *market.Lease) { l.Core.Cap++ },
		"other rank":   func(l *market.Lease) { l.Core.RankEpoch++ },
		"other nonce":  func(l *market.Lease) { l.Core.Nonce[3]++ },
		"no signature": func(l *market.Lease) { l.BuyerSig = sign.Signature{} },
	} {
		l := testLease()
		change(&l)
		if err := l.Check(domain); !errors.Is(err, market.ErrBadSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
	elsewhere := domain
	elsewhere.Program = sign.Key{1}
	if err := testLease().Check(elsewhere); !errors.Is(err, market.ErrBadSignature) {
		t.Errorf("other program: %v", err)
	}
}

// badCores is every single rule of a core broken, also written to the vectors.
var badCores = []struct {
	name   string
	change func(*market.LeaseCore)
}{
	{"version 0", func(c *market.LeaseCore) { c.Version = 0 }},
	{"version 2", func(c *market.LeaseCore) { c.Version = 2 }},
	{"a flag", func(c *market.LeaseCore) { c.Flags = 1 }},
	{"a flag and successor", func(c *market.LeaseCore) { c.Flags, c.ActivateBefore = market.LeaseSuccessor|1, c.Start }},
	{"successor funded after its start", func(c *market.LeaseCore) { c.Flags = market.LeaseSuccessor }},
	{"no units", func(c *market.LeaseCore) { c.Units = 0 }},
	{"too many units", func(c *market.LeaseCore) { c.Units = market.MaxUnitsPerLease + 1 }},
	{"no order", func(c *market.LeaseCore) { c.Order = market.OrderID{} }},
	{"no payout", func(c *market.LeaseCore) { c.Payout = sign.Key{} }},
	{"provider is buyer", func(c *market.LeaseCore) { c.Provider = c.Buyer }},
	{"ends at its start", func(c *market.LeaseCore) { c.End, c.ActivateBefore = c.Start, c.Start-1 }},
	{"too long", func(c *market.LeaseCore) { c.End = c.Start + market.MaxLeaseSlots + 1; c.Rate = 1 }},
	{"funded at its end", func(c *market.LeaseCore) { c.ActivateBefore = c.End }},
	{"cost overflows", func(c *market.LeaseCore) { c.Rate = math.MaxUint64; c.End = c.Start + 1_000_001 }},
	{"buyer of small order", func(c *market.LeaseCore) { c.Buyer = sign.Key{1} }},
	{"provider not canonical", func(c *market.LeaseCore) {
		for i := range c.Provider {
			c.Provider[i] = 0xff
		}
	}},
	{"buyer off the curve", func(c *market.LeaseCore) { c.Buyer = sign.Key{2} }},
}

func TestLeaseCoreRules(t *testing.T) {
	t.Parallel()
	for _, bad := range badCores {
		c := testCore()
		bad.change(&c)
		b := c.Marshal()
		if _, err := market.UnmarshalLeaseCore(b[:]); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
	b := testCore().Marshal()
	b[14] = 1
	if _, err := market.UnmarshalLeaseCore(b[:]); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("reserved bytes: %v", err)
	}
}

// A successor is its predecessor with another time, and what does not fit is refused.
func TestFollow(t *testing.T) {
	t.Parallel()
	before := testCore()
	next, err := before.Follow(before.End + 4500)
	if err != nil {
		t.Fatal(err)
	}
	id := before.ID()
	if !next.Successor() || before.Successor() || next.Start != before.End || next.ActivateBefore != before.End || next.Slots() != 4500 ||
		!bytes.Equal(next.Nonce[:], id[:16]) || next.Rate != before.Rate || next.ID() == id {
		t.Errorf("%+v", next)
	}
	if most, _ := before.Rate.Owed(4500); next.Cap != most {
		t.Errorf("cap %d, want %d", next.Cap, most)
	}
	third, err := next.Follow(next.End + 1)
	if err != nil || third.Start != next.End {
		t.Errorf("%+v, %v", third, err)
	}
	for _, end := range []market.Slot{0, before.End - 1, before.End, before.End + market.MaxLeaseSlots + 1} {
		if _, err := before.Follow(end); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("until %d: %v", end, err)
		}
	}
}

// Two cores that differ anywhere have different bytes and ids.
func TestLeaseCoreIsInjective(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := testCore().Marshal()
		i := rapid.IntRange(0, len(b)-1).Draw(t, "byte")
		changed := b
		changed[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		c, err := market.UnmarshalLeaseCore(changed[:])
		if err != nil {
			return
		}
		if c.Marshal() != changed {
			t.Fatal("safety: decode, encode differ")
		}
		if c.ID() == testCore().ID() {
			t.Fatal("safety: two cores with one id")
		}
	})
}

func TestKeySet(t *testing.T) {
	t.Parallel()
	ks := testKeys()
	b := ks.Marshal()
	back, err := market.UnmarshalKeySet(b)
	if err != nil || !reflect.DeepEqual(back, ks) {
		t.Fatal(back, err)
	}
	swapped := slices.Clone(b)
	copy(swapped[2:34], b[34:66])
	copy(swapped[34:66], b[2:34])
	twice := slices.Clone(b)
	copy(twice[34:66], b[2:34])
	small := slices.Clone(b)
	copy(small[2:34], make([]byte, 32))
	for name, bad := range map[string][]byte{
		"empty": nil, "no keys": {1, 0}, "cut": b[:len(b)-1], "longer": append(slices.Clone(b), 0), "threshold 0": append([]byte{0}, b[1:]...),
		"threshold 4": append([]byte{4}, b[1:]...), "not ascending": swapped, "one twice": twice, "small-order key": small, "seventeen": append([]byte{1, 17}, make([]byte, 17*32)...),
	} {
		if _, err := market.UnmarshalKeySet(bad); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := market.NewKeySet(1, buyer.Key(), buyer.Key()); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
	one := ks
	one.Threshold = 1
	if one.Hash() == ks.Hash() {
		t.Error("the hash does not cover the threshold")
	}
}

func TestUnitProofs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "units")
		ids := testUnits(n)
		root := market.UnitsRoot(ids)
		i := rapid.IntRange(0, n-1).Draw(t, "unit")
		p, err := market.ProveUnit(ids, ids[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Verify(root, ids[i]); err != nil {
			t.Fatal("liveness:", err)
		}
		back, err := market.UnmarshalUnitProof(p.Marshal())
		if err != nil || !bytes.Equal(back.Marshal(), p.Marshal()) {
			t.Fatal(err)
		}
		j := rapid.IntRange(0, n).Draw(t, "another")
		if other := market.NewUnitID(provider.Key(), "gpu/h200", "GPU-5a1b", uint32(j)); j != i && p.Verify(root, other) == nil {
			t.Fatal("safety: the proof holds for another unit")
		}
		wrong := p
		wrong.Index++
		if wrong.Verify(root, ids[i]) == nil {
			t.Fatal("safety: the proof holds at another index")
		}
		wrong = p
		wrong.Units++
		if wrong.Verify(root, ids[i]) == nil {
			t.Fatal("safety: the proof holds in another number of units")
		}
		slices.Reverse(ids)
		if market.UnitsRoot(ids) != root {
			t.Fatal("safety: the root depends on how units are listed")
		}
	})
	ids := testUnits(3)
	if _, err := market.ProveUnit(ids, market.UnitID{1}); !errors.Is(err, market.ErrUnits) {
		t.Error(err)
	}
	if _, err := market.SortUnits(append(ids, ids[1])); !errors.Is(err, market.ErrUnits) {
		t.Error(err)
	}
	if _, err := market.SortUnits(nil); !errors.Is(err, market.ErrUnits) {
		t.Error(err)
	}
	if _, err := market.NewUnit(provider.Key(), "cpu", "", "", 0, market.Resources{}); !errors.Is(err, market.ErrMalformed) {
		t.Error(err)
	}
}

func FuzzLease(f *testing.F) {
	f.Add(testLease().Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := market.UnmarshalLease(b)
		if err == nil && !bytes.Equal(l.Marshal(), b) {
			t.Fatal("decode, encode differ")
		}
	})
}

func FuzzLeaseCore(f *testing.F) {
	b := testCore().Marshal()
	f.Add(b[:])
	next, err := testCore().Follow(testCore().End + 1)
	if err != nil {
		f.Fatal(err)
	}
	b = next.Marshal()
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := market.UnmarshalLeaseCore(b)
		if err != nil {
			return
		}
		if again := c.Marshal(); !bytes.Equal(again[:], b) {
			t.Fatal("decode, encode differ")
		}
	})
}

func FuzzKeySet(f *testing.F) {
	f.Add(testKeys().Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		ks, err := market.UnmarshalKeySet(b)
		if err == nil && !bytes.Equal(ks.Marshal(), b) {
			t.Fatal("decode, encode differ")
		}
	})
}

func FuzzUnitProof(f *testing.F) {
	p, _ := market.ProveUnit(testUnits(5), testUnits(5)[2])
	f.Add(p.Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := market.UnmarshalUnitProof(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Marshal(), b) {
			t.Fatal("decode, encode differ")
		}
		_ = p.Verify(sign.Hash{}, market.UnitID{})
	})
}

func FuzzGenesis(f *testing.F) {
	text, _ := json.Marshal(testGenesis())
	f.Add(text)
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := market.ParseGenesis(b)
		if err != nil {
			return
		}
		text, err := json.Marshal(g)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := market.ParseGenesis(text); err != nil || again != g {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}

func TestParseGenesisRefusals(t *testing.T) {
	t.Parallel()
	text, _ := json.Marshal(testGenesis())
	for name, bad := range map[string]string{
		"empty": "", "unknown field": `{"colour":1}`, "two values": string(text) + "{}", "not valid": `{"network":"a"}`,
		"wrong key": `{"network":"a","mint":"0"}`, "too long": string(bytes.Repeat([]byte(" "), 5000)),
	} {
		if _, err := market.ParseGenesis([]byte(bad)); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if g, err := market.ParseGenesis(append(text, '\n')); err != nil || g != testGenesis() {
		t.Error(err)
	}
}

func BenchmarkLeaseCheck(b *testing.B) {
	l := testLease()
	b.ReportAllocs()
	for b.Loop() {
		if l.Check(domain) != nil {
			b.Fatal()
		}
	}
}
