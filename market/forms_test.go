package market_test

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// text is a value with a form for people and for JSON.
type text interface {
	comparable
	encoding.TextMarshaler
}

// sameText checks that every value of a type is read as it was written, that no other text is read as one, and that a
// text that is refused leaves the value as it was.
func sameText[T text, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, random func(t *rapid.T) T) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		v := random(t)
		form, err := v.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var read T
		if err := P(&read).UnmarshalText(form); err != nil || read != v {
			t.Fatalf("%T %s is read as %v: %v", v, form, read, err)
		}
		if s, ok := any(v).(fmt.Stringer); ok && s.String() != string(form) {
			t.Fatalf("%T is %s as JSON and %s as text", v, form, s)
		}
		if s, ok := any(v).(interface{ Short() string }); ok && !strings.HasPrefix(string(form), s.Short()) {
			t.Fatalf("%T %s is %s for short", v, form, s.Short())
		}
		if z, ok := any(v).(interface{ IsZero() bool }); ok && z.IsZero() != (v == *new(T)) {
			t.Fatalf("%T %s is zero: %v", v, form, z.IsZero())
		}
		bad := rapid.SampledFrom([]string{"", "0", string(form) + "0", string(form[1:]), "x" + string(form[1:]), " " + string(form)}).Draw(t, "bad")
		if bad == string(form) {
			return
		}
		var malformed T
		if err := P(&malformed).UnmarshalText([]byte(bad)); err == nil || malformed != *new(T) {
			t.Fatalf("%T: %q is read as %v: %v", v, bad, malformed, err)
		}
	})
}

// draw32 and draw16 are random ids, the zero one too.
func draw32(t *rapid.T) (b [32]byte) {
	if rapid.IntRange(0, 9).Draw(t, "zero") > 0 {
		copy(b[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes"))
	}
	return b
}

func draw16(t *rapid.T) (b [16]byte) {
	copy(b[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bytes"))
	return b
}

func TestTextForms(t *testing.T) {
	t.Parallel()
	sameText[market.OrderID](t, func(t *rapid.T) market.OrderID { return draw32(t) })
	sameText[market.LeaseID](t, func(t *rapid.T) market.LeaseID { return draw32(t) })
	sameText[market.UnitID](t, func(t *rapid.T) market.UnitID { return draw32(t) })
	sameText[market.ReplyKey](t, func(t *rapid.T) market.ReplyKey { return draw32(t) })
	sameText[market.OverlayKey](t, func(t *rapid.T) market.OverlayKey { return draw32(t) })
	sameText[market.HoldID](t, func(t *rapid.T) market.HoldID { return draw16(t) })
	sameText[market.Nonce](t, func(t *rapid.T) market.Nonce { return draw16(t) })
	sameText[market.Egress](t, func(t *rapid.T) market.Egress {
		return market.Egress(rapid.IntRange(0, int(market.EgressInternet)).Draw(t, "class"))
	})
	if got := (market.EgressInternet + 1).String(); got != "unknown" {
		t.Errorf("a class that is none: %q", got)
	}
}

// TestJSONForms: what a peer writes into its journal of an offer, an order or a quote is what it reads again.
func TestJSONForms(t *testing.T) {
	t.Parallel()
	for _, v := range []any{testOffer(), testOrder(), testQuote(), testCore(), testKeys(), testGenesis()} {
		form, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		read := reflect.New(reflect.TypeOf(v))
		if err := json.Unmarshal(form, read.Interface()); err != nil || !reflect.DeepEqual(read.Elem().Interface(), v) {
			t.Errorf("%T: read %+v, written %+v: %v", v, read.Elem(), v, err)
		}
	}
}

// TestHoldIDs: no two attempts at ranks of orders have one hold, and another secret gives others.
func TestHoldIDs(t *testing.T) {
	t.Parallel()
	seen := map[market.HoldID]string{}
	for secret := range byte(3) {
		for order := range byte(4) {
			for rank := range uint32(8) {
				for attempt := range uint32(8) {
					name := fmt.Sprint(secret, order, rank, attempt)
					id := market.NewHoldID([32]byte{secret}, market.OrderID{order}, rank, attempt)
					if other, twice := seen[id]; twice || id.IsZero() {
						t.Fatalf("%s and %s have hold %s", name, other, id)
					}
					seen[id] = name
				}
			}
		}
	}
}

// TestResourcesProperties: a unit covers a minimum exactly if no resource falls short of it; covering is an order.
func TestResourcesProperties(t *testing.T) {
	t.Parallel()
	resources := rapid.Custom(func(t *rapid.T) market.Resources {
		n := rapid.SampledFrom([]uint32{0, 1, 512, math.MaxUint32})
		return market.Resources{MilliCPU: n.Draw(t, "cpu"), MemoryMiB: n.Draw(t, "memory"), DiskMiB: n.Draw(t, "disk"), VRAMMiB: n.Draw(t, "vram")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := resources.Draw(t, "a"), resources.Draw(t, "b"), resources.Draw(t, "c")
		if short := a.Shortfall(b); a.Covers(b) != (short == "") {
			t.Fatalf("%+v covers %+v: %v, and falls short by %q", a, b, a.Covers(b), short)
		}
		if !a.Covers(a) || !a.Covers(market.Resources{}) || a.Covers(b) && b.Covers(c) && !a.Covers(c) || a.Covers(b) && b.Covers(a) && a != b {
			t.Fatalf("%+v, %+v and %+v are in no order", a, b, c)
		}
		if got := market.ResourcesFromPB(market.ResourcesToPB(a)); got != a {
			t.Fatalf("%+v travels as %+v", a, got)
		}
	})
}

// TestEgressIsALadder: each class of network access includes the lower ones, and a refusal says what to do.
func TestEgressIsALadder(t *testing.T) {
	t.Parallel()
	for has := market.EgressNone; has <= market.EgressInternet; has++ {
		for want := market.EgressNone; want <= market.EgressInternet; want++ {
			switch no := has.Refuse(want); {
			case (no == nil) != (has >= want):
				t.Errorf("%s for %s: %v", has, want, no)
			case no != nil && (no.Reason != market.ReasonEgress || !strings.Contains(no.Error(), "inputs")):
				t.Errorf("%s for %s is refused with %+v", has, want, no)
			}
		}
	}
}

// TestImagePolicies: a policy that an offer has room for keeps every pattern, in less than its Size of bytes; a larger
// one says only that there are more.
func TestImagePolicies(t *testing.T) {
	t.Parallel()
	pattern := rapid.SampledFrom([]string{"alpine", "ghcr.io/acme/**", "*/x", "sha256:" + strings.Repeat("0a", 32), "localhost:5000/" + strings.Repeat("y", 60)})
	list := rapid.SliceOfN(pattern, 0, 6)
	more, kept := 0, 0
	bytesOf := func(t *rapid.T, o market.Offer) int {
		b, err := o.Encode(domain, provider)
		if err != nil {
			t.Fatal(err)
		}
		return len(b)
	}
	rapid.Check(t, func(t *rapid.T) {
		allow, deny := list.Draw(t, "allow"), list.Draw(t, "deny")
		im, err := images.Parse(allow, deny)
		if err != nil {
			t.Fatal(err)
		}
		p := market.NewImagePolicy(im)
		if p.More {
			more++
			if !p.Equal(market.ImagePolicy{More: true}) {
				t.Fatalf("half a policy: %+v", p)
			}
			return
		}
		kept++
		if !slices.Equal(im.Allowed(), p.Allow) || !slices.Equal(im.Denied(), p.Deny) || len(p.Allow) != len(allow) || len(p.Deny) != len(deny) {
			t.Fatalf("allow %v, deny %v is offered as %+v", allow, deny, p)
		}
		plain, with := testOffer(), testOffer()
		plain.Images, with.Images = market.ImagePolicy{}, p
		if grown := bytesOf(t, with) - bytesOf(t, plain); grown > p.Size() {
			t.Fatalf("a policy of %d bytes takes %d", p.Size(), grown)
		}
		again, err := p.Patterns()
		if err != nil || !market.NewImagePolicy(again).Equal(p) {
			t.Fatalf("%+v is read as %+v: %v", p, again, err)
		}
	})
	if more == 0 || kept == 0 {
		t.Errorf("%d policies were too large, %d were not: want some of both", more, kept)
	}
	large := market.ImagePolicy{Allow: []string{strings.Repeat("a", market.MaxImagePolicy)}}
	if _, err := large.Patterns(); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("a policy that is too large: %v", err)
	}
}

// TestFreeNetworks: two free networks of one name never talk, and nothing but 0 is a price on them.
func TestFreeNetworks(t *testing.T) {
	t.Parallel()
	one, err := market.FreeGenesis("free", bytes.NewReader(bytes.Repeat([]byte{1}, 32)))
	other, again := market.FreeGenesis("free", bytes.NewReader(bytes.Repeat([]byte{2}, 32)))
	if err != nil || again != nil || one.Tag() == other.Tag() || one.Draft() || one.Validate() != nil {
		t.Errorf("%+v, %+v: %v, %v", one, other, err, again)
	}
	if _, err := market.FreeGenesis("free", bytes.NewReader(make([]byte, 31))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("without randomness: %v", err)
	}
	var refusal *market.Refusal
	if err := one.CheckPrice(1); !errors.As(err, &refusal) || refusal.Reason != market.ReasonPrice || one.CheckPrice(0) != nil {
		t.Errorf("a price of 1: %v", err)
	}
	if g := testGenesis(); !g.Draft() || g.CheckPrice(math.MaxUint64) != nil {
		t.Errorf("a network with a token and no program: draft %v", g.Draft())
	}
}

// TestMaxCost: an order never costs less than one more lease, slot or base unit of price would save, and a cost that does
// not fit is an error.
func TestMaxCost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := testOrder()
		o.Ceiling = market.Price(rapid.OneOf(rapid.Uint64Range(0, 1<<40), rapid.Just(uint64(math.MaxUint64))).Draw(t, "ceiling"))
		o.Slots, o.Count = rapid.Uint64Range(1, market.MaxLeaseSlots).Draw(t, "slots"), uint32(rapid.IntRange(1, market.MaxCount-1).Draw(t, "count"))
		cost, err := o.MaxCost(400)
		if err != nil {
			if !errors.Is(err, market.ErrOverflow) {
				t.Fatal(err)
			}
			return
		}
		for name, change := range map[string]func(*market.Order){
			"a lease": func(o *market.Order) { o.Count++ }, "a slot": func(o *market.Order) { o.Slots++ },
			"a higher ceiling": func(o *market.Order) { o.Ceiling += 1000 }, "a unit": func(o *market.Order) { o.UnitsPer++ },
		} {
			more := o
			change(&more)
			if dearer, err := more.MaxCost(400); err == nil && dearer < cost {
				t.Fatalf("%s more costs %d instead of %d", name, dearer, cost)
			}
		}
	})
}

// TestNewest: of a provider's offers only a later one replaces the known one.
func TestNewest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seq := rapid.SampledFrom([]uint64{0, 1, 2, math.MaxUint64 - 1, math.MaxUint64})
		known, next := testOffer(), testOffer()
		known.Seq, next.Seq = seq.Draw(t, "known"), seq.Draw(t, "next")
		next.Expires = now.Add(time.Duration(rapid.IntRange(1, 100).Draw(t, "expires")) * time.Second)
		if err := next.Supersedes(known); (err == nil) != (next.Seq > known.Seq) || err != nil && !errors.Is(err, market.ErrReplayed) {
			t.Fatalf("%d after %d: %v", next.Seq, known.Seq, err)
		}
	})
}

// A refusal without words is its reason.
func TestRefusalText(t *testing.T) {
	t.Parallel()
	if got := (&market.Refusal{Reason: market.ReasonLost}).Error(); got != "lost" {
		t.Errorf("without a detail: %q", got)
	}
	if got := market.Refuse(market.ReasonLost, "the peer %s is gone", sign.Key{1}.Short()).Error(); !strings.Contains(got, "gone") {
		t.Errorf("with one: %q", got)
	}
}
