package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/book"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/p2p/stream"
)

// request begins to publish the order and to send it to providers, until ctx ends.
func (a *auction) request(ctx context.Context, wg *sync.WaitGroup, envelope []byte) {
	x, t, o := a.x, a.trace, a.order
	t.Add(trace.Step{At: a.start, Kind: trace.Ordered,
		Detail: fmt.Sprintf("order %s for %d × %d units of %s, at most %s per unit-hour",
			o.ID.Short(), o.Count, o.UnitsPer, o.Class, x.cfg.Genesis.FormatAmount(market.Amount(o.Ceiling)))})
	publish := func() { // it may first have to find neighbours to gossip with
		if x.published.Contains(o.ID) || a.asksAll() && !passes(ctx, searchAfter) {
			return
		}
		x.published.Add(o.ID, struct{}{})
		n, err := x.cfg.Network.Publish(ctx, o, envelope)
		if err == nil && n == 0 {
			err = errors.New("no neighbour has joined the topic yet")
		}
		if err != nil {
			t.Add(trace.Step{At: time.Now(), Kind: trace.Ordered, Detail: "not gossiped: " + err.Error()})
		}
	}
	if len(a.ask.Only) == 0 {
		wg.Go(publish)
	}
	if len(a.ask.Only) > 0 {
		wg.Go(func() { a.askOnly(ctx, envelope) })
	} else if a.ask.Direct {
		wg.Go(func() { a.askKnown(ctx, envelope) })
	}
}

// passes waits, and reports whether the time passed before ctx ended.
func passes(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// asksAll reports whether every peer that may sell the order's class is known and asked directly. A class that is
// estimated, and not counted, may always have others.
func (a *auction) asksAll() bool {
	known := len(a.x.Book.Class(a.order.Class, time.Now()))
	return a.ask.Direct && known > 0 && known <= a.mostAsked() && a.strangers()+a.off() <= 0
}

// mostAsked returns the number of providers that may be asked directly.
func (a *auction) mostAsked() int { return a.x.cfg.MaxAsked + 3*int(a.order.Count) }

// askKnown sends the order to the best known providers, in parallel, and searches the DHT for more.
func (a *auction) askKnown(ctx context.Context, envelope []byte) {
	x := a.x
	var wg sync.WaitGroup
	defer wg.Wait()
	ask := func(batch []book.Known) {
		for _, k := range batch {
			if a.mayAsk(k.Offer) {
				wg.Go(func() {
					x.proveFor(a, k.Offer)
					a.askOne(ctx, k, envelope)
				})
			}
		}
	}
	known := a.best()
	ask(known)
	fresh, now := 0, time.Now()
	for _, k := range known {
		if k.Fresh(now) {
			fresh++
		}
	}
	// A look-up in the DHT costs many peers a message each. It is left out if enough of the providers that answered
	// lately answer this order, too; newcomers receive it over gossip.
	if fresh >= freshFactor*int(a.order.Count) && !passes(ctx, searchAfter) {
		return
	}
	fctx, cancel := context.WithTimeout(ctx, FindTimeout*time.Duration(1+a.order.Count/maxAsked))
	defer cancel()
	if x.Find(fctx, a.order.Class, a.order.Regions, a.order.Count) > 0 {
		ask(a.best())
	}
}

// askOne sends the order to one provider directly. A provider that does not answer within askTimeout is noted as silent
// in the book; one that the end of the auction cut short is not.
func (a *auction) askOne(within context.Context, k book.Known, envelope []byte) {
	x, p := a.x, k.Offer.Provider
	id, err := x.cfg.Host.Remember(p, k.Offer.Addrs)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(within, askTimeout)
	defer cancel()
	start := time.Now()
	note := func(kind trace.Kind, took time.Duration, detail string) {
		a.trace.Add(trace.Step{At: time.Now(), Kind: kind, Provider: p.String(), Route: RouteDirect, Took: took,
			Detail: detail})
	}
	note(trace.Asked, 0, "")
	resp, err := protocol.Ask.Call(ctx, x.cfg.Host, x.tag, id, &marketpb.AskRequest{Order: envelope})
	took := time.Since(start)
	var no *stream.Refused
	switch {
	case errors.As(err, &no):
		x.Book.Answered(p, time.Now(), took)
		a.refuse(match.Refusal{Provider: p, Reason: market.Reason(no.Code), Detail: no.Reason})
		note(trace.Declined, took, no.Reason)
		return
	case err != nil && (a.quoted(p) || errors.Is(within.Err(), context.Canceled)):
		return // it quoted over gossip, or there are quotes enough: this side hung up
	case err != nil:
		if within.Err() == nil {
			x.Book.Silent(p)
		}
		a.refuse(match.Refusal{Provider: p, Reason: market.ReasonTimeout, Detail: "did not answer in time"})
		note(trace.Silent, took, err.Error())
		return
	}
	x.Book.Answered(p, time.Now(), took)
	q, err := market.DecodeQuote(x.domain, resp.Quote, time.Now())
	if err == nil {
		err = x.take(a, p, Quoted{Quote: q, Route: RouteDirect, Took: took}, resp.Offer)
	}
	if err != nil {
		note(trace.Infeasible, took, err.Error())
	}
}

// askOnly sends the order to the only providers that are wanted, in parallel.
func (a *auction) askOnly(ctx context.Context, envelope []byte) {
	x := a.x
	var wg sync.WaitGroup
	defer wg.Wait()
	known := map[sign.Key]book.Known{}
	for _, k := range x.Book.Class(a.order.Class, time.Now()) {
		known[k.Offer.Provider] = k
	}
	for _, p := range a.ask.Only {
		k, ok := known[p]
		if !ok {
			k.Offer.Provider = p // its addresses may be known without an offer
		}
		if why, no := x.Blocked(p); no {
			a.refuse(match.Refusal{Provider: p, Reason: market.ReasonUnwanted, Detail: why})
		} else if a.mayAsk(k.Offer) {
			wg.Go(func() { a.askOne(ctx, k, envelope) })
		}
	}
}

// mayAsk reports whether to send the order to the provider of an offer directly, at most once.
func (a *auction) mayAsk(o market.Offer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ask.Cluster && o.NoClusters || !a.asked[o.Provider].IsZero() || a.ask.Skip[o.Provider] ||
		len(a.asked) >= a.mostAsked() {
		return false
	}
	a.asked[o.Provider] = time.Now()
	return true
}

// best ranks the known offers that could fit the auction's order.
func (a *auction) best() []book.Known {
	x, o, now := a.x, a.order, time.Now()
	all := x.Book.Class(o.Class, now)
	type lot struct {
		provider sign.Key
		class    market.Class
	}
	lotOf := func(o *market.Offer) lot { return lot{o.Provider, o.Class} }
	byLot := make(map[lot]book.Known, len(all))
	candidates := make([]match.Candidate, 0, len(all))
	for _, k := range all {
		if k.Offer.Provider == x.cfg.Self || len(a.ask.Only) > 0 && !slices.Contains(a.ask.Only, k.Offer.Provider) {
			continue
		}
		if why, no := x.Blocked(k.Offer.Provider); no {
			a.refuse(match.Refusal{Provider: k.Offer.Provider, Reason: market.ReasonUnwanted, Detail: why})
			continue
		}
		byLot[lotOf(&k.Offer)] = k
		candidates = append(candidates, x.toAsk(k))
	}
	res := match.Rank(o, candidates, now, x.cfg.Weights)
	a.refuse(res.Refused...)
	// The number of free units may be outdated in an offer: full providers receive the order too, after the others.
	full := slices.DeleteFunc(candidates, func(c match.Candidate) bool {
		proven := c.Shown.Units >= o.UnitsPer || c.Offer.Proof.IsZero() || !x.picky(o)
		return c.Offer.Units >= o.UnitsPer && proven
	})
	for i := range full {
		full[i].Offer.Units = full[i].Offer.Total
		if !full[i].Offer.Proof.IsZero() {
			full[i].Shown.Units = full[i].Offer.Total
		}
	}
	out := make([]book.Known, 0, len(candidates))
	for _, s := range slices.Concat(res.Ranked, match.Rank(o, full, now, x.cfg.Weights).Ranked) {
		out = append(out, byLot[lotOf(&s.Candidate.Offer)])
	}
	return out
}

// Asks reports whether quotes for an order of this buyer are accepted or counted now, and returns its number of leases.
func (x *Exchange) Asks(o market.OrderID) (leases uint32, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	a := x.auctions[o]
	if a == nil {
		return x.turnout.Counts(o)
	}
	return a.order.Count, true
}

// TakeQuote processes a sealed quote that neighbour via delivered, of a provider that received an order over gossip.
// Any peer can seal a quote.
func (x *Exchange) TakeQuote(via peer.ID, o market.OrderID, box []byte) error {
	x.turnout.Quoted(o, 1)
	x.mu.Lock()
	a := x.auctions[o]
	x.mu.Unlock()
	if a == nil {
		return stream.Refuse("closed", "the order takes no more quotes")
	}
	plain, err := x.cfg.reply(a.order.Nonce).Open(protocol.QuoteBox(x.tag, o), box)
	if err != nil {
		return &stream.Malformed{Reason: err.Error()}
	}
	var m marketpb.Quoted
	if err := proto.Unmarshal(plain, &m); err != nil {
		return &stream.Malformed{Reason: err.Error()}
	}
	q, err := market.DecodeQuote(x.domain, m.Quote, time.Now())
	if errors.Is(err, market.ErrExpired) || errors.Is(err, market.ErrNotYet) {
		return stream.Refuse("expired", err.Error())
	}
	if err != nil {
		return &stream.Malformed{Reason: err.Error()}
	}
	if why, no := x.Blocked(q.Provider); no {
		a.trace.Add(trace.Step{At: time.Now(), Kind: trace.Blocked, Provider: q.Provider.String(), Route: RouteGossip,
			Detail: why})
		return stream.Refuse(string(market.ReasonUnwanted), "no quotes of this provider are taken here")
	}
	quoted := Quoted{Quote: q, Route: RouteGossip, via: via, Took: time.Since(a.start)}
	if err := x.take(a, q.Provider, quoted, m.Offer); err != nil {
		var r *market.Refusal
		if errors.As(err, &r) {
			return stream.Refuse(string(r.Reason), r.Error())
		}
		return &stream.Malformed{Reason: err.Error()}
	}
	x.Book.Answered(q.Provider, time.Now(), 0)
	return nil
}

// reply returns the key that quotes for the order with a nonce are sealed to.
func (cfg *Config) reply(n market.Nonce) sealed.Reply {
	return sealed.Reply(sign.Sum([]byte("starling/reply/v1"), cfg.Secret[:], n[:]))
}

// ReplyKey returns the public half of the key that quotes for the order with a nonce are sealed to.
func (x *Exchange) ReplyKey(n market.Nonce) market.ReplyKey {
	return market.ReplyKey(x.cfg.reply(n).Public())
}

// take checks a quote and the offer beside it and adds them to their auction.
func (x *Exchange) take(a *auction, from sign.Key, got Quoted, offer []byte) error {
	now, q := time.Now(), got.Quote
	if q.Provider != from {
		return fmt.Errorf("%w: a quote of %s sent by %s", market.ErrMalformed, q.Provider.Short(), from.Short())
	}
	if err := q.CheckFor(a.order); err != nil {
		return err
	}
	var err error
	if got.Offer, err = market.DecodeOffer(x.domain, offer, now); err != nil {
		return err
	}
	if err := q.CheckOffer(got.Offer); err != nil {
		return err
	}
	if err := got.Offer.CheckGenesis(x.cfg.Genesis); err != nil {
		return err
	}
	x.Book.Add(got.Offer)
	if _, err := x.cfg.Host.Remember(from, slices.Concat(q.Addrs, got.Offer.Addrs)); err != nil {
		return err
	}
	if err := a.add(got); err != nil {
		return err
	}
	x.proveFor(a, got.Offer)
	a.trace.Add(trace.Step{At: now, Kind: trace.Quoted, Provider: from.String(), Route: got.Route, Took: got.Took,
		Price:  x.cfg.Genesis.FormatAmount(market.Amount(q.Price)),
		Detail: fmt.Sprintf("%d leases in %s%s", q.Leases, q.Region, units(q, a.order))})
	return nil
}

// units describes the units of a quote where the order does not.
func units(q market.Quote, o market.Order) string {
	text := ""
	if q.Class != o.Class || q.Simulated {
		text = " of " + string(q.Class)
		if q.Model != "" {
			text += ", " + q.Hardware()
		} else if q.Simulated {
			text += " (simulated)"
		}
	}
	return text
}
