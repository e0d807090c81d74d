package market_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// message is a kind of signed message: one as it travels, and its decoder.
type message struct {
	name   string
	bytes  []byte
	decode func(d sign.Domain, b []byte, now time.Time) (any, error)
}

func messages(t testing.TB) []message {
	t.Helper()
	offer, err := testOffer().Encode(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	quote, err := testQuote().Encode(domain, provider)
	if err != nil {
		t.Fatal(err)
	}
	_, order, err := market.SealOrder(domain, testOrder(), buyer)
	if err != nil {
		t.Fatal(err)
	}
	return []message{
		{"offer", offer, func(d sign.Domain, b []byte, now time.Time) (any, error) { return market.DecodeOffer(d, b, now) }},
		{"quote", quote, func(d sign.Domain, b []byte, now time.Time) (any, error) { return market.DecodeQuote(d, b, now) }},
		{"order", order, func(d sign.Domain, b []byte, now time.Time) (any, error) { return market.DecodeOrder(d, b, now) }},
		{"lease", testLease().Marshal(), func(d sign.Domain, b []byte, _ time.Time) (any, error) {
			l, err := market.UnmarshalLease(b)
			if err != nil {
				return l, err
			}
			return l, l.Check(d)
		}},
	}
}

// TestSignedForOneNetworkAndKind: what was signed for a network, a chain or a program is refused on every other, and no
// message is taken for one of another kind (safety).
func TestSignedForOneNetworkAndKind(t *testing.T) {
	t.Parallel()
	all := messages(t)
	for _, m := range all {
		if _, err := m.decode(domain, m.bytes, now); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		for name, change := range map[string]func(*sign.Domain){
			"network": func(d *sign.Domain) { d.Network += "x" },
			"chain":   func(d *sign.Domain) { d.Chain[0]++ },
			"program": func(d *sign.Domain) { d.Program[0]++ },
		} {
			d := domain
			change(&d)
			if _, err := m.decode(d, m.bytes, now); err == nil {
				t.Errorf("%s on another %s: it passes", m.name, name)
			}
		}
		for _, other := range all {
			if got, err := other.decode(domain, m.bytes, now); m.name != other.name && err == nil {
				t.Errorf("%s is read as %s %+v", m.name, other.name, got)
			}
		}
	}
}

// TestEveryBitCounts: a message with one bit changed, cut or longer is refused (safety).
func TestEveryBitCounts(t *testing.T) {
	t.Parallel()
	all := messages(t)
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.SampledFrom(all).Draw(t, "message")
		b := bytes.Clone(m.bytes)
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			b = b[:rapid.IntRange(0, len(b)-1).Draw(t, "length")]
		case 1:
			b = append(b, rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "more")...)
		default:
			bit := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
			b[bit/8] ^= 1 << (bit % 8)
		}
		if got, err := m.decode(domain, b, now); err == nil {
			t.Fatalf("safety: a changed %s passes: %+v", m.name, got)
		}
	})
}

// TestMessagesInTheirTime: a message is good from its begin, less the skew of clocks, until it expires, and no peer may
// set that further ahead than its kind allows.
func TestMessagesInTheirTime(t *testing.T) {
	t.Parallel()
	kinds := map[string]struct {
		validity time.Duration
		make     func(begin, expires time.Time) ([]byte, error)
	}{
		"offer": {market.MaxOfferValidity, func(begin, expires time.Time) ([]byte, error) {
			o := testOffer()
			o.NotBefore, o.Expires = begin, expires
			return o.Encode(domain, provider)
		}},
		"quote": {market.MaxQuoteValidity, func(_, expires time.Time) ([]byte, error) {
			q := testQuote()
			q.Expires = expires
			return q.Encode(domain, provider)
		}},
		"order": {market.MaxOrderValidity, func(_, expires time.Time) ([]byte, error) {
			o := testOrder()
			o.Expires = expires
			_, b, err := market.SealOrder(domain, o, buyer)
			return b, err
		}},
	}
	for _, m := range messages(t) {
		kind, ok := kinds[m.name]
		if !ok {
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			near := func(d time.Duration) *rapid.Generator[time.Duration] {
				return rapid.SampledFrom([]time.Duration{d - time.Millisecond, d, d + time.Millisecond, d / 2, -d})
			}
			begin := now
			if m.name == "offer" {
				begin = now.Add(near(market.MaxClockSkew).Draw(t, "begin"))
			}
			left := near(kind.validity+market.MaxClockSkew).Draw(t, "left")
			b, err := kind.make(begin, now.Add(left))
			if err != nil {
				return // it would expire before it begins
			}
			_, err = m.decode(domain, b, now)
			want := error(nil)
			switch {
			case left <= 0:
				want = market.ErrExpired
			case left > kind.validity+market.MaxClockSkew || begin.Sub(now) > market.MaxClockSkew:
				want = market.ErrNotYet
			}
			if !errors.Is(err, want) || want == nil && err != nil {
				t.Fatalf("%s that begins in %s and expires in %s: %v, want %v", m.name, begin.Sub(now), left, err, want)
			}
		})
	}
}

// TestOrderKeepsItsCeiling: providers bid without knowing the ceiling: two orders that differ in nothing else are the
// same bytes, with the same id; another nonce is another order.
func TestOrderKeepsItsCeiling(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := testOrder()
		o.Count = uint32(rapid.IntRange(1, market.MaxCount).Draw(t, "count"))
		o.UnitsPer = uint32(rapid.IntRange(1, market.MaxUnitsPerLease).Draw(t, "units per"))
		o.Slots = rapid.Uint64Range(1, market.MaxLeaseSlots).Draw(t, "slots")
		o.Draw = rapid.Uint32Range(1, math.MaxUint32).Draw(t, "draw")
		o.Unproven = rapid.Bool().Draw(t, "unproven")
		o.Agent, o.Consent = sign.Key{}, sign.Signature{}
		o.Ceiling = market.Price(rapid.Uint64().Draw(t, "ceiling"))
		sealed, b, err := market.SealOrder(domain, o, buyer)
		if err != nil {
			t.Fatal(err)
		}
		if sealed.Ceiling != o.Ceiling || sealed.Peer() != buyer.Key() {
			t.Fatalf("sealed %+v", sealed)
		}
		read, err := market.DecodeOrder(domain, b, now)
		if read.Ceiling != 0 || err != nil {
			t.Fatalf("safety: the ceiling %d is on the wire: %v", read.Ceiling, err)
		}
		if read.Ceiling = o.Ceiling; !reflect.DeepEqual(read, sealed) {
			t.Fatalf("read %+v, sealed %+v", read, sealed)
		}
		o.Ceiling++
		dearer, same, err := market.SealOrder(domain, o, buyer)
		if err != nil || !bytes.Equal(b, same) || dearer.ID != sealed.ID {
			t.Fatalf("safety: another ceiling gives other bytes: %v", err)
		}
		o.Nonce[0]++
		if other, _, err := market.SealOrder(domain, o, buyer); err != nil || other.ID == sealed.ID {
			t.Fatalf("safety: two orders with id %s: %v", other.ID.Short(), err)
		}
	})
}

// TestKeySetProperties: a set is the same in whatever order its keys are given, and two sets differ in their hash.
func TestKeySetProperties(t *testing.T) {
	t.Parallel()
	var keys []sign.Key
	for i := range byte(market.MaxVoucherKeys + 1) {
		keys = append(keys, sign.NewPrivate([32]byte{i, 1}).Key())
	}
	seen := map[sign.Hash]string{}
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.Permutation(keys).Draw(t, "keys")[:rapid.IntRange(0, len(keys)).Draw(t, "count")]
		threshold := uint8(rapid.IntRange(0, len(keys)+1).Draw(t, "threshold"))
		ks, err := market.NewKeySet(threshold, some...)
		if ok := len(some) > 0 && len(some) <= market.MaxVoucherKeys && threshold > 0 && int(threshold) <= len(some); (err == nil) != ok {
			t.Fatalf("%d of %d keys: %v", threshold, len(some), err)
		}
		if err != nil {
			return
		}
		again, err := market.NewKeySet(threshold, rapid.Permutation(some).Draw(t, "order")...)
		if err != nil || !reflect.DeepEqual(again, ks) {
			t.Fatalf("in another order: %+v, %v", again, err)
		}
		read, err := market.UnmarshalKeySet(ks.Marshal())
		if err != nil || !reflect.DeepEqual(read, ks) {
			t.Fatalf("read %+v, %v", read, err)
		}
		if other, known := seen[ks.Hash()]; known && other != string(ks.Marshal()) {
			t.Fatal("safety: two sets with one hash")
		}
		seen[ks.Hash()] = string(ks.Marshal())
		if _, err := market.NewKeySet(threshold, append(some, some[0])...); err == nil {
			t.Fatal("safety: a key counts twice")
		}
	})
}

// TestLineProperties: the leases of a line follow on one another without gap or overlap, at one rate, each with an id of
// its own, and none is its own successor.
func TestLineProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		line := []market.LeaseCore{testCore()}
		for range rapid.IntRange(1, 6).Draw(t, "leases") {
			last := line[len(line)-1]
			next, err := last.Follow(last.End + market.Slot(rapid.Uint64Range(1, market.MaxLeaseSlots).Draw(t, "slots")))
			if err != nil {
				t.Fatal(err)
			}
			most, err := next.Rate.Owed(next.Slots())
			if err != nil || next.Cap != most || next.Start != last.End || next.Rate != last.Rate || next.UnitsRoot != last.UnitsRoot ||
				next.Buyer != last.Buyer || next.Provider != last.Provider || !next.Successor() || next.Validate() != nil {
				t.Fatalf("%+v follows on %+v: %v", next, last, err)
			}
			if slices.ContainsFunc(line, func(c market.LeaseCore) bool { return c.ID() == next.ID() }) {
				t.Fatal("safety: two leases of a line have one id")
			}
			line = append(line, next)
		}
	})
}

// TestShownListsAreBound: a list that differs anywhere from the one behind a root is refused.
func TestShownListsAreBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		list := testShown(rapid.IntRange(1, 12).Draw(t, "units"))
		root, err := market.ProofRoot(list)
		if err != nil {
			t.Fatal(err)
		}
		other := slices.Clone(list)
		at := rapid.IntRange(0, len(list)-1).Draw(t, "at")
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			other[at].Record[rapid.IntRange(0, 31).Draw(t, "byte")]++
		case 1:
			other[at].Unit[rapid.IntRange(0, 31).Draw(t, "byte")]++
		case 2:
			other = slices.Delete(other, at, at+1)
		}
		b, err := market.MarshalShown(other)
		if err != nil {
			return // of no unit
		}
		if read, err := market.UnmarshalShown(b, root); err == nil {
			t.Fatalf("safety: %v is read behind the root of %v", read, list)
		}
	})
}
