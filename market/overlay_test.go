package market_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// badOverlayKeys are all points of Curve25519 and its twist of small order, and encodings of a number that has another one.
var badOverlayKeys = []struct{ name, key string }{
	{"zero", "0000000000000000000000000000000000000000000000000000000000000000"},
	{"one", "0100000000000000000000000000000000000000000000000000000000000000"},
	{"order 8", "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"},
	{"order 8, the other", "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"},
	{"minus one", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"p", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"p + 1", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"p + 9", "f6ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
	{"high bit set", "0900000000000000000000000000000000000000000000000000000000000080"},
	{"all bits set", "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"},
}

func overlayKeyOf(t testing.TB, text string) market.OverlayKey {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 32 {
		t.Fatal(text, err)
	}
	return market.OverlayKey(b)
}

// testMember is a lease that commits to the base point as its provider's key.
func testMember(t testing.TB) (market.Lease, market.HoldID, market.OverlayKey) {
	hold, key := market.HoldID{3, 1, 4}, market.OverlayKey{9}
	c := testCore()
	c.Nonce = market.OverlayNonce(hold, key)
	l := market.Lease{Core: c}
	var err error
	if l.ProviderSig, err = c.Sign(domain, provider); err != nil {
		t.Fatal(err)
	}
	if l.BuyerSig, err = c.Sign(domain, buyer); err != nil {
		t.Fatal(err)
	}
	return l, hold, key
}

func TestOverlayKeys(t *testing.T) {
	t.Parallel()
	for _, good := range []market.OverlayKey{{9}, {0: 0xec, 31: 0x7e}, {0: 2}} {
		if err := good.Check(); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range badOverlayKeys {
		if err := overlayKeyOf(t, bad.key).Check(); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", bad.name, err)
		}
	}
}

// Whatever of lease, hold and key differs from what was signed, it is no member.
func TestCheckMember(t *testing.T) {
	t.Parallel()
	l, hold, key := testMember(t)
	if err := market.CheckMember(domain, l, hold, key); err != nil {
		t.Fatal(err)
	}
	follows, err := l.Core.Follow(l.Core.End + 100)
	if err != nil {
		t.Fatal(err)
	}
	other := domain
	other.Network = "elsewhere"
	for _, c := range []struct {
		name string
		d    sign.Domain
		l    func(*market.Lease)
		hold market.HoldID
		key  market.OverlayKey
		want error
	}{
		{"another network", other, nil, hold, key, market.ErrBadSignature},
		{"another hold", domain, nil, market.HoldID{3, 1, 5}, key, market.ErrMalformed},
		{"another key", domain, nil, hold, market.OverlayKey{10}, market.ErrMalformed},
		{"no key", domain, nil, hold, market.OverlayKey{}, market.ErrMalformed},
		{"unsigned by the provider", domain, func(l *market.Lease) { l.ProviderSig = l.BuyerSig }, hold, key, market.ErrBadSignature},
		{"unsigned by the buyer", domain, func(l *market.Lease) { l.BuyerSig[5]++ }, hold, key, market.ErrBadSignature},
		{"another rank", domain, func(l *market.Lease) { l.Core.Rank++ }, hold, key, market.ErrBadSignature},
		{"a successor", domain, func(l *market.Lease) {
			l.Core = follows
			l.ProviderSig, _ = follows.Sign(domain, provider)
			l.BuyerSig, _ = follows.Sign(domain, buyer)
		}, hold, key, market.ErrMalformed},
		{"a small-order key that was signed", domain, func(l *market.Lease) {
			l.Core.Nonce = market.OverlayNonce(hold, market.OverlayKey{1})
			l.ProviderSig, _ = l.Core.Sign(domain, provider)
			l.BuyerSig, _ = l.Core.Sign(domain, buyer)
		}, hold, market.OverlayKey{1}, market.ErrMalformed},
	} {
		l := l
		if c.l != nil {
			c.l(&l)
		}
		if err := market.CheckMember(c.d, l, c.hold, c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// FuzzCheckMember gives it what a peer could send: no panic, and only what was signed passes.
func FuzzCheckMember(f *testing.F) {
	l, hold, key := testMember(f)
	f.Add(l.Marshal(), hold[:], key[:])
	f.Add(l.Marshal(), hold[:], make([]byte, 32))
	for _, bad := range badOverlayKeys {
		k := overlayKeyOf(f, bad.key)
		f.Add(l.Marshal(), hold[:], k[:])
	}
	f.Fuzz(func(t *testing.T, b, h, k []byte) {
		got, err := market.UnmarshalLease(b)
		if err != nil || len(h) != len(hold) || len(k) != len(key) {
			return
		}
		if err := market.CheckMember(domain, got, market.HoldID(h), market.OverlayKey(k)); err == nil && (got != l || market.HoldID(h) != hold || market.OverlayKey(k) != key) {
			t.Fatal("what nobody signed is a member")
		}
	})
}
