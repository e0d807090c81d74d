package book

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Offers are found by class and family, the recent ones first, within bounds.
func TestBook(t *testing.T) {
	t.Parallel()
	k, now := New(), time.Now()
	offer := func(p byte, seq uint64, class market.Class) market.Offer {
		return market.Offer{Provider: sign.Key{p}, Seq: seq, Class: class, Expires: now.Add(time.Hour)}
	}
	k.Add(offer(1, 5, "cpu"))
	k.Add(offer(1, 4, "gpu/x"))
	k.Add(offer(2, 1, "cpu"))
	k.Add(offer(3, 1, "gpu/x"))
	k.Answered(sign.Key{2}, now, 7*time.Millisecond)
	k.Answered(sign.Key{2}, now, 0)    // of its own accord: says nothing about the way
	k.Answered(sign.Key{9}, now, 3000) // no offer of it is known
	got := k.Class("cpu", now)
	if len(got) != 2 || got[0].Offer.Provider != (sign.Key{2}) || got[0].RTT != 7*time.Millisecond || got[1].Offer.Seq != 5 {
		t.Errorf("known %+v", got)
	}
	families := k.Class("gpu", now)
	if len(families) != 2 || families[0].Offer.Provider != (sign.Key{1}) || families[0].Offer.Class != "gpu/x" || families[1].Offer.Provider != (sign.Key{3}) {
		t.Errorf("of the family gpu %+v are known", families)
	}
	if all := k.Class("", now); len(all) != 4 {
		t.Errorf("%d offers are known, want both of the first provider and one of each other", len(all))
	}
	k.Add(offer(1, 3, "gpu/x")) // older than what is known of the class, whatever its other offers
	if got := k.Class("gpu/x", now); got[0].Offer.Seq != 4 {
		t.Errorf("an older offer was taken: %+v", got[0].Offer)
	}
	for i := range 2 * market.MaxOffers {
		k.Add(offer(4, 1, market.Class(fmt.Sprintf("gpu/%d", i))))
	}
	if n := len(k.m[sign.Key{4}].offers); n != market.MaxOffers {
		t.Errorf("%d offers of one provider are remembered", n)
	}
	k.Silent(sign.Key{2})
	if got := k.Class("cpu", now); got[0].Offer.Provider != (sign.Key{1}) {
		t.Error("a silent provider comes first")
	}
	if got := k.Class("", now.Add(3*time.Hour)); len(got) != 0 {
		t.Errorf("expired offers are shown: %+v", got)
	}
	for i := range maxProviders + 10 {
		k.Answered(sign.Key{byte(i), byte(i >> 8), byte(i >> 16), 1}, now, 1)
	}
	if len(k.m) > maxProviders {
		t.Errorf("%d providers are remembered", len(k.m))
	}
}

// A book answers with the newest coordinate and the last round trip, and with nothing of unknown providers.
func TestLookUp(t *testing.T) {
	t.Parallel()
	b, now := New(), time.Now()
	p := sign.Key{1}
	for i, c := range []market.Class{"cpu", "gpu/x", "gpu/y"} {
		b.Add(market.Offer{Provider: p, Class: c, Expires: now.Add(time.Hour), NotBefore: now.Add(time.Duration(i) * time.Second),
			Coordinate: market.Coordinate{Height: uint32(i)}})
	}
	b.Answered(p, now, time.Millisecond)
	if got := b.Coordinate(p); got.Height != 2 {
		t.Errorf("coordinate %+v", got)
	}
	if o, ok := b.Offer(p, "gpu/x"); !ok || o.Class != "gpu/x" || b.RTT(p) != time.Millisecond {
		t.Errorf("offer %+v, %v, %v", o.Class, ok, b.RTT(p))
	}
	stranger := sign.Key{2}
	if _, ok := b.Offer(stranger, "cpu"); ok || !b.Coordinate(stranger).IsZero() || b.RTT(stranger) != 0 {
		t.Error("a stranger is known")
	}
}
