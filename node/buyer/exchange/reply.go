package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// askOne sends the order to one provider directly. A provider that does not answer within askTimeout is noted as silent
// in the book; one that the end of the auction cut short is not.
func (x *Exchange) askOne(within context.Context, a *auction, k book.Known, envelope []byte) {
	p := k.Offer.Provider
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
