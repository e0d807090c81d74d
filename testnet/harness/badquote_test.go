package harness

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
)

// Orders on the gossip topic that break a rule reach no provider's desk: nobody
// quotes for them, and honest orders are matched as before.
func TestBadOrdersOnGossip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Strangers: 2, Programs: programs, Log: Logger()})
		a, other := n.adversary(t, 0), n.adversary(t, 1)
		quotes := make(chan market.OrderID, 64)
		for _, who := range []*adversary{a, other} {
			defer who.quotes(quotes).Close()
		}
		time.Sleep(5 * time.Second)
		_, theirs := other.order(other.terms())
		for _, c := range a.badOrders(theirs) {
			if len(c.env) == 0 || bytes.Equal(c.env, theirs) { // an entry peer may publish another's
				continue
			}
			if err := a.orders.Publish(t.Context(), c.env); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.orders.Publish(t.Context(), make([]byte, 64<<10)); err == nil {
			t.Error("an oversized order could be published")
		}
		time.Sleep(3 * time.Second)
		select {
		case id := <-quotes:
			t.Errorf("order %s got a quote", id.Short())
		default:
		}
		b := n.Buyer(0)
		spec := b.Job("work", 2, "3")
		spec.Placement.GossipOnly = true
		j := b.Wait(b.Submit(spec).ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		// An order that is published again, by its buyer or another, is answered once.
		o, env := other.order(other.terms())
		for _, by := range []*adversary{a, other, a} {
			if err := by.orders.Publish(t.Context(), env); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		got := 0
		for len(quotes) > 0 {
			if <-quotes == o.ID {
				got++
			}
		}
		if got != 2 {
			t.Errorf("an order that was published three times got %d quotes from 2 providers", got)
		}
	})
}

// quotes takes the quotes for a's orders.
func (a *adversary) quotes(to chan<- market.OrderID) *stream.Server {
	return handleQuotes(a, func(q market.Quote) {
		select {
		case to <- q.Order:
		default:
		}
	})
}

// badQuotes are answers to an order of b that it may not take.
func (a *adversary) badQuotes(o market.Order, signer sign.Private) []struct {
	name, code   string
	quote, offer []byte
	words        []string
} {
	quote, offer := a.offers(o, 1)
	q := func(change func(*market.Quote)) []byte { return a.quoteWith(o, a.key, change) }
	of := func(change func(*market.Offer)) []byte { return a.offerWith(a.key, change) }
	return []struct {
		name, code   string
		quote, offer []byte
		words        []string
	}{
		{"noise", "malformed", []byte("noise"), offer, nil},
		{"nothing", "malformed", nil, nil, nil},
		{"a bad signature", "malformed", flip(quote), offer, []string{"bad signature"}},
		{"a small-order key", "malformed", smallOrder(a.t, quote), offer, []string{"small order"}},
		{"an expired quote", "expired", q(func(q *market.Quote) { q.Expires = time.Now().Add(-time.Minute) }), offer, []string{"expired"}},
		{"another order's quote", "malformed", q(func(q *market.Quote) { q.Order[0] ^= 1 }), offer, []string{"answers order"}},
		{"another key's quote", "malformed", a.quoteWith(o, signer, nil), offer, []string{"its offer is for"}},
		{"no offer", "malformed", quote, nil, nil},
		{"another key's offer", "malformed", quote, a.offerWith(signer, nil), []string{"its offer is for"}},
		{"another class's offer", "malformed", quote, of(func(o *market.Offer) { o.Class = "gpu/x" }), []string{"its offer is for"}},
		{"another network's offer", "malformed", quote, of(func(o *market.Offer) { o.GenesisHash[0] ^= 1 }), nil},
		{"an expired offer", "malformed", quote, of(func(o *market.Offer) {
			o.NotBefore, o.Expires = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
		}), []string{"expired"}},
	}
}

// A buyer that is collecting quotes takes none that breaks a rule, says why, and goes on with the good ones.
func TestBadQuotes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 2, Strangers: 2, Programs: programs, Log: Logger()})
		a, other := n.adversary(t, 0), n.adversary(t, 1)
		time.Sleep(5 * time.Second)
		b := n.Buyer(0)
		spec := b.Job("work", 3, "3") // nobody else can take the third, so that the window stays open
		id := b.Submit(spec).ID
		m, err := a.orders.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		o, err := market.DecodeOrder(a.domain, m.Data, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range a.badQuotes(o, other.key) {
			told(t, c.name, a.brings(b.id(), o, c.quote, c.offer), c.code, c.words...)
		}
		quote, offer := a.offers(o, 1)
		unknown := o
		unknown.ID[0] ^= 1
		told(t, "an unknown order", a.brings(b.id(), unknown, quote, offer), "closed", "no more quotes")
		unsealed := o
		unsealed.ReplyKey = a.terms().ReplyKey
		told(t, "a box for another key", a.brings(b.id(), unsealed, quote, offer), "malformed", "unsealed")
		wide := protocol.Quote
		wide.MaxRequest = 1 << 20
		_, err = wide.Call(t.Context(), a.host, a.tag, b.id(), &marketpb.QuoteRequest{Order: o.ID[:], Box: make([]byte, 100<<10)})
		told(t, "an oversized quote", err, "malformed", "too large")
		j := b.Wait(id, time.Minute)
		n.wants(t, b, j, buyer.Failed, buyer.CodeNoMatch, "2 of 3")
		told(t, "a quote that is too late", a.brings(b.id(), o, quote, offer), "closed", "no more quotes")

		spec.Count = 2
		j = b.Wait(b.Submit(spec).ID, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
		for _, r := range j.Ranks {
			if r.Provider == a.key.Key() || r.Provider == other.key.Key() {
				t.Error("a rank was given to the adversary")
			}
		}
	})
}

// A buyer answers receipts that break a rule with the rule, and co-signs none of them.
func TestBadReceiptsToBuyer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := New(t, Options{Providers: 1, Strangers: 1, Programs: programs, Log: Logger()})
		a := n.adversary(t, 0)
		time.Sleep(3 * time.Second)
		b := n.Buyer(0)
		id := b.Submit(b.Job("work", 1, "5")).ID
		time.Sleep(2 * time.Second)
		accounts, err := b.Node.Buyer().Receipts(t.Context(), id)
		if err != nil || len(accounts) != 1 || len(accounts[0].Receipts) == 0 {
			t.Fatalf("%d leases, %v", len(accounts), err)
		}
		theirs := accounts[0].Receipts[0]
		core := theirs.ReceiptCore.Marshal()
		meter := func(req *nodepb.MeterRequest) error {
			_, err := protocol.Meter.Call(t.Context(), a.host, a.tag, b.id(), req)
			return err
		}
		lease, sig := accounts[0].Lease, theirs.ProviderSig
		told(t, "an empty receipt", meter(&nodepb.MeterRequest{}), "malformed", "wrong size")
		told(t, "a cut receipt", meter(&nodepb.MeterRequest{Lease: lease[:], Receipt: core[:50], ProviderSignature: sig[:]}), "malformed", "receipt")
		told(t, "an unknown lease", meter(&nodepb.MeterRequest{Lease: make([]byte, 32), Receipt: core[:], ProviderSignature: sig[:]}), "lease", "no such lease")
		told(t, "another provider's lease, replayed", meter(&nodepb.MeterRequest{Lease: lease[:], Receipt: core[:], ProviderSignature: sig[:]}), "lease", "no such lease")
		wide := protocol.Meter
		wide.MaxRequest = 1 << 20
		_, err = wide.Call(t.Context(), a.host, a.tag, b.id(), &nodepb.MeterRequest{Receipt: make([]byte, 100<<10)})
		told(t, "an oversized receipt", err, "malformed", "too large")
		j := b.Wait(id, time.Minute)
		n.check(t, b, j, buyer.Succeeded)
	})
}

// handleQuotes takes quotes as a buyer would.
func handleQuotes(a *adversary, take func(market.Quote)) *stream.Server {
	return protocol.Quote.Handle(a.host, a.tag, quoteHandler(a, take), stream.Limits{Logger: p2ptest.Quiet()})
}
