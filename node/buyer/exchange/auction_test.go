package exchange

import (
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

func TestAuction(t *testing.T) {
	t.Parallel()
	a := &auction{good: func(q Quoted) uint32 { return q.Quote.Leases }, order: market.Order{Count: 1}, quotes: map[sign.Key]Quoted{}, more: make(chan struct{}, 1)}
	add := func(p byte, q byte, price market.Price) error {
		return a.add(Quoted{Quote: market.Quote{Provider: sign.Key{p, q}, Price: price, Leases: 2}})
	}
	for _, price := range []market.Price{5, 3, 9} {
		if err := add(1, 0, price); err != nil {
			t.Fatal(err)
		}
	}
	if all := a.all(); len(all) != 1 || all[0].Quote.Price != 3 {
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
	a := &auction{order: market.Order{Count: 1}, quotes: map[sign.Key]Quoted{}, more: make(chan struct{}, 1)}
	n := 0
	add := func(via peer.ID) error {
		n++
		return a.add(Quoted{Quote: market.Quote{Provider: sign.Key{byte(n), byte(n >> 8)}, Price: 1, Leases: 2}, via: via, Took: time.Duration(n)})
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
