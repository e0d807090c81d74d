package buyer

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
)

var testGenesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}

func TestSlotsFor(t *testing.T) {
	t.Parallel()
	if got := slotsFor(0, 5); got != math.MaxUint64 {
		t.Errorf("free slots for 5: %d", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		rate := market.Rate(rapid.Uint64Range(1, 1<<50).Draw(t, "rate"))
		money := market.Amount(rapid.Uint64().Draw(t, "money"))
		n := slotsFor(rate, money)
		if cost, err := rate.Owed(n); err == nil && cost > money {
			t.Fatalf("%d slots cost %d, more than %d", n, cost, money)
		}
		if n < math.MaxUint64 {
			// One more slot costs more, but for the rounding down of its last millionth.
			if cost, err := rate.Owed(n + 1); err == nil && cost < money {
				t.Fatalf("%d slots cost %d, less than %d", n+1, cost, money)
			}
		}
	})
}

// However many leases are taken one after the other, they can never cost more together than the budget.
func TestAffordable(t *testing.T) {
	t.Parallel()
	b := &Buyer{cfg: Config{Genesis: testGenesis}}
	rapid.Check(t, func(t *rapid.T) {
		j := Job{Spec: job.Job{
			Count: 4, Resources: job.Resources{Units: uint32(rapid.IntRange(1, 8).Draw(t, "units"))},
			Timeouts: job.Timeouts{Run: time.Duration(rapid.IntRange(1, 100_000).Draw(t, "run")) * time.Second},
			Payment: job.Payment{
				MaxPrice: market.Price(rapid.Uint64Range(0, 1<<40).Draw(t, "price")),
				Budget:   market.Amount(rapid.Uint64Range(1, 1<<55).Draw(t, "budget")),
			},
		}}
		var committed market.Amount
		for range 6 {
			n := rapid.IntRange(1, 4).Draw(t, "n")
			slots, most, err := b.affordable(j, n, n+rapid.IntRange(0, 3).Draw(t, "others"), committed)
			var out *outcome
			if errors.As(err, &out) {
				if out.code != CodePayment || !strings.Contains(out.reason, "payment.") {
					t.Fatalf("refused with %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if slots < testGenesis.IntervalSlots {
				t.Fatalf("leases of %d slots", slots)
			}
			if committed += most; committed > j.Spec.Payment.Budget {
				t.Fatalf("%d is promised of a budget of %d", committed, j.Spec.Payment.Budget)
			}
		}
	})
}

// Ranks that are replaced at the same time share what is left.
func TestShare(t *testing.T) {
	t.Parallel()
	spec := job.Job{
		Count: 2, Resources: job.Resources{Units: 1}, Timeouts: job.Timeouts{Run: time.Hour},
		Payment: job.Payment{MaxPrice: 360_000, Budget: 20_000}, // 10 base units a slot: 2000 slots in all
	}
	s := &supervisor{b: &Buyer{cfg: Config{Genesis: testGenesis}}, job: Job{Spec: spec, Ranks: make([]Rank, 2)}, leases: make([]*bought, 2)}
	slots, most, back, err := s.share(1)
	if err != nil || slots != 1000 || most != 10_000 {
		t.Fatalf("the first: %d slots for %d, %v", slots, most, err)
	}
	slots, most, back2, err := s.share(1)
	if err != nil || slots != 1000 || most != 10_000 {
		t.Fatalf("the second: %d slots for %d, %v", slots, most, err)
	}
	if _, _, _, err := s.share(1); err == nil {
		t.Error("a third was given money that is promised")
	}
	back()
	back2()
	if slots, _, _, err := s.share(2); err != nil || slots != 1000 {
		t.Errorf("both again: %d slots, %v", slots, err)
	}
}

func TestKnown(t *testing.T) {
	t.Parallel()
	k, now := newKnown(), time.Now()
	offer := func(p byte, seq uint64, class market.Class) market.Offer {
		return market.Offer{Provider: sign.Key{p}, Seq: seq, Class: class, Expires: now.Add(time.Hour)}
	}
	k.offer(offer(1, 5, "cpu"))
	k.offer(offer(1, 4, "gpu/x"))
	k.offer(offer(2, 1, "cpu"))
	k.offer(offer(3, 1, "gpu/x"))
	k.answered(sign.Key{2}, now, 7*time.Millisecond)
	k.answered(sign.Key{2}, now, 0)    // of its own accord: says nothing about the way
	k.answered(sign.Key{9}, now, 3000) // no offer of it is known
	got := k.class("cpu", now)
	if len(got) != 2 || got[0].Offer.Provider != (sign.Key{2}) || got[0].RTT != 7*time.Millisecond || got[1].Offer.Seq != 5 {
		t.Errorf("known %+v", got)
	}
	families := k.class("gpu", now)
	if len(families) != 2 || families[0].Offer.Provider != (sign.Key{1}) || families[0].Offer.Class != "gpu/x" || families[1].Offer.Provider != (sign.Key{3}) {
		t.Errorf("of the family gpu %+v are known", families)
	}
	if all := k.class("", now); len(all) != 4 {
		t.Errorf("%d offers are known, want both of the first provider and one of each other", len(all))
	}
	k.offer(offer(1, 3, "gpu/x")) // older than what is known of the class, whatever its other offers
	if got := k.class("gpu/x", now); got[0].Offer.Seq != 4 {
		t.Errorf("an older offer was taken: %+v", got[0].Offer)
	}
	for i := range 2 * market.MaxOffers {
		k.offer(offer(4, 1, market.Class(fmt.Sprintf("gpu/%d", i))))
	}
	if n := len(k.m[sign.Key{4}].offers); n != market.MaxOffers {
		t.Errorf("%d offers of one provider are remembered", n)
	}
	k.silent(sign.Key{2})
	if got := k.class("cpu", now); got[0].Offer.Provider != (sign.Key{1}) {
		t.Error("a silent provider comes first")
	}
	if got := k.class("", now.Add(3*time.Hour)); len(got) != 0 {
		t.Errorf("expired offers are shown: %+v", got)
	}
	for i := range maxKnown + 10 {
		k.answered(sign.Key{byte(i), byte(i >> 8), byte(i >> 16), 1}, now, 1)
	}
	if len(k.m) > maxKnown {
		t.Errorf("%d providers are remembered", len(k.m))
	}
}

func TestAuction(t *testing.T) {
	t.Parallel()
	a := &auction{good: func(q quoted) uint32 { return q.quote.Leases }, order: market.Order{Count: 1}, quotes: map[sign.Key]quoted{}, more: make(chan struct{}, 1)}
	add := func(p byte, q byte, price market.Price) error {
		return a.add(quoted{quote: market.Quote{Provider: sign.Key{p, q}, Price: price, Leases: 2}})
	}
	for _, price := range []market.Price{5, 3, 9} {
		if err := add(1, 0, price); err != nil {
			t.Fatal(err)
		}
	}
	if all := a.all(); len(all) != 1 || all[0].quote.Price != 3 {
		t.Errorf("of three quotes of one provider the lowest counts, got %+v", all)
	}
	if leases, providers := a.leases(); leases != 2 || providers != 1 {
		t.Errorf("%d leases by %d providers", leases, providers)
	}
	var err error
	for i := range 2 * match.MaxQuotes(a.order.Count) {
		err = add(2, byte(i), 5)
	}
	var no *market.Refusal
	if !errors.As(err, &no) || no.Reason != market.ReasonLimit || len(a.quotes) > match.MaxQuotes(a.order.Count) {
		t.Errorf("%d quotes, %v", len(a.quotes), err)
	}
}

// TestAttackJunkQuotes: whoever heard an order can seal quotes for it under any number of keys. They take the places of
// one neighbour, however early they come. Quotes of providers that were asked keep theirs.
func TestAttackJunkQuotes(t *testing.T) {
	t.Parallel()
	a := &auction{order: market.Order{Count: 1}, quotes: map[sign.Key]quoted{}, more: make(chan struct{}, 1)}
	n := 0
	add := func(via peer.ID) error {
		n++
		return a.add(quoted{quote: market.Quote{Provider: sign.Key{byte(n), byte(n >> 8)}, Price: 1, Leases: 2}, via: via, took: time.Duration(n)})
	}
	brought := func() map[peer.ID]int {
		of := map[peer.ID]int{}
		for _, q := range a.quotes {
			of[q.via]++
		}
		return of
	}
	const honest, asked = 24, 5
	for range asked {
		if err := add(""); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		_ = add("flooder")
	}
	for range honest {
		if err := add("honest"); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		_ = add("flooder")
	}
	if of := brought(); of[""] != asked || of["honest"] != honest || len(a.quotes) > match.MaxQuotes(1) {
		t.Errorf("of %d quotes that were asked for and %d of an honest neighbour are left: %v", asked, honest, of)
	}
	for range match.MaxQuotes(1) {
		_ = add("") // the buyer bounds whom it asks itself
	}
	if of := brought(); of["flooder"] > 0 {
		t.Errorf("junk keeps away what was asked for: %v", of)
	}
}
