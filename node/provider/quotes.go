package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/provider/offers"
	"github.com/starling-network/starling/node/provider/policy"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify/reputation"
)

const (
	// quoteValidity is how long a quote may be acted on.
	quoteValidity = time.Minute
	// maxQuoteAddrs is how many bytes of addresses a quote carries.
	maxQuoteAddrs = 1024
	// maxAnswering is the number of gossiped orders that are answered at a time; all of them may wait for the chain.
	// Others wait, or are dropped if too many wait.
	maxAnswering = 32
	// maxQuoted is the number of orders with a direct quote that are remembered.
	maxQuoted = 4096

	// Limits of one buyer's requests to this provider, so that free orders cannot freeze it.
	ordersPerSecond = 20
	orderBurst      = 100
	maxBuyers       = 4096
)

// quotes answers orders.
type quotes struct {
	p      *Provider
	rates  *rates.Limiter[sign.Key]              // orders by buyer
	quoted *lru.Cache[market.OrderID, time.Time] // expiry of the direct quotes for orders
	probes probes
}

func newQuotes(p *Provider) *quotes {
	quoted, err := lru.New[market.OrderID, time.Time](maxQuoted)
	if err != nil {
		panic(err) // the size is negative
	}
	return &quotes{p: p, rates: rates.New[sign.Key](ordersPerSecond, orderBurst, maxBuyers), quoted: quoted}
}

// quote answers an order, or refuses it. direct reports that the order came from its peer itself, and not by gossip.
func (q *quotes) quote(ctx context.Context, o market.Order, direct bool) (quote, offer []byte, err error) {
	p, now := q.p, time.Now()
	defer func() { p.counts.quoted(err) }()
	if !q.rates.Allow(o.Peer(), now) {
		return nil, nil, market.Refuse(market.ReasonLimit,
			"too many orders from this buyer; at most %d a second", ordersPerSecond)
	}
	if no := q.admits(ctx, o, now); no != nil {
		return nil, nil, no
	}
	slot, err := p.cfg.Slots.Now(now)
	if err != nil {
		return nil, nil, market.Refuse(market.ReasonLimit, "%v", err)
	}
	at := lease.Now{Time: now, Slot: slot}
	if _, no := p.ledger.Book().Quote(at, o, nil); no != nil {
		return nil, nil, no
	}
	can, backing, err := q.backed(ctx, at, o, direct)
	if err != nil {
		return nil, nil, err
	}
	if id, err := p2p.PeerIDFromKey(o.Peer()); backing != nil && err == nil {
		p.cfg.Host.Fund(id)
	}
	l := policy.Of(p.cfg.Lots, can.Class)
	current, err := p.board.Current(ctx, l)
	if err != nil {
		return nil, nil, err
	}
	answer := market.Quote{
		Order: o.ID, Price: can.Price, Leases: can.Leases, Payout: p.cfg.Owner,
		Expires: now.Add(quoteValidity), Region: p.cfg.Region, OfferSeq: current.Offer.Seq, PerUnit: l.PerUnit,
		Addrs: offers.Addrs(p.cfg.Host.Addrs(), maxQuoteAddrs), Version: p.cfg.Version,
		Class: l.Class, Model: l.Model, Capability: l.Capability, Simulated: l.Simulated,
	}
	quote, err = answer.Encode(p.domain, p.cfg.Key)
	return quote, current.Envelope, err
}

// backed returns the offer to an order with the security behind it.
func (q *quotes) backed(
	ctx context.Context, at lease.Now, o market.Order, direct bool,
) (can lease.Quoted, backing *lease.Backing, err error) {
	if can, backing = q.recent(at, o); backing != nil {
		return can, backing, nil
	}
	if backing, err = q.backing(ctx, o, direct); err != nil {
		return can, nil, err
	}
	can, no := q.p.ledger.Book().Quote(at, o, backing)
	if no != nil {
		return can, nil, no
	}
	return can, backing, nil
}

// recent returns the offer to an order of a buyer that paid here, with its security of the last minute. The security is
// nil if none is known, or if it is not enough for a lease.
func (q *quotes) recent(at lease.Now, o market.Order) (lease.Quoted, *lease.Backing) {
	backing := q.p.pay.Recent(o)
	if backing == nil {
		return lease.Quoted{}, nil
	}
	can, no := q.p.ledger.Book().Quote(at, o, backing)
	if no != nil {
		return lease.Quoted{}, nil
	}
	return can, backing
}

// backing returns the security behind an order: nil on a free network, which requires only membership.
func (q *quotes) backing(ctx context.Context, o market.Order, direct bool) (*lease.Backing, error) {
	standing, from := admit.Stranger, netip.Prefix{}
	if id, err := p2p.PeerIDFromKey(o.Peer()); direct && err == nil && q.p.cfg.Escrows != nil {
		standing, from = q.p.cfg.Host.Seen(id)
	}
	return q.p.pay.Backing(ctx, o, standing, from)
}

// handleAsk answers an order that its buyer sent itself.
func (q *quotes) handleAsk(ctx context.Context, from peer.ID, req *marketpb.AskRequest) (*marketpb.AskReply, error) {
	o, err := q.orderFrom(from, req.Order)
	if err != nil {
		return nil, err
	}
	q.quoted.Add(o.ID, time.Now().Add(quoteValidity)) // before, because the gossiped copy may come meanwhile
	quote, offer, err := q.quote(ctx, o, true)
	if err != nil {
		q.quoted.Remove(o.ID)
		return nil, refusal(err)
	}
	return &marketpb.AskReply{Quote: quote, Offer: offer}, nil
}

// orderFrom decodes an order that its buyer sent itself.
func (q *quotes) orderFrom(from peer.ID, envelope []byte) (market.Order, error) {
	key, err := p2p.KeyFromPeerID(from)
	if err != nil {
		return market.Order{}, &stream.Malformed{Reason: err.Error()}
	}
	o, err := market.DecodeOrder(q.p.domain, envelope, time.Now())
	switch {
	case errors.Is(err, market.ErrExpired), errors.Is(err, market.ErrNotYet):
		return o, stream.Refuse("expired", err.Error())
	case err != nil:
		return o, &stream.Malformed{Reason: err.Error()}
	case o.Peer() != sign.Key(key):
		return o, &stream.Malformed{Reason: "the order is another buyer's"}
	}
	return o, nil
}

// refusal converts an error to a refusal that the other peer may see.
func refusal(err error) error {
	if r, ok := errors.AsType[*market.Refusal](err); ok {
		return stream.Refuse(string(r.Reason), r.Error())
	}
	return err
}

// listen answers the orders that come over gossip, a few at a time.
func (q *quotes) listen(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for range maxAnswering {
		g.Go(func() error {
			for {
				o, err := q.p.cfg.Market.Order(ctx)
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return fmt.Errorf("receiving orders: %w", err)
				}
				q.answer(ctx, o)
			}
		})
	}
	return g.Wait()
}

// answer sends a quote for a gossiped order back towards the buyer, if this provider is drawn for it and the buyer has
// no quote of it. It dials no peer.
func (q *quotes) answer(ctx context.Context, o market.Order) {
	if o.Peer() == q.p.self || !match.Drawn(o, q.p.self) {
		return
	}
	if until, ok := q.quoted.Get(o.ID); ok && time.Now().Before(until) {
		return
	}
	quote, offer, err := q.quote(ctx, o, false)
	if err == nil {
		err = q.p.cfg.Market.Reply(o, quote, offer)
	}
	if err != nil {
		q.p.cfg.Log.Debug("no quote for a gossiped order", "order", o.ID.Short(), "reason", err)
	}
}

// admits refuses an order while nothing new may be sold to its buyer.
func (q *quotes) admits(ctx context.Context, o market.Order, now time.Time) *market.Refusal {
	p := q.p
	if no := p.cfg.Policy.Serves(o.Peer()); no != nil {
		return no
	}
	if least := p.cfg.Policy.MinReputation; least > 0 {
		if s := p.cfg.Reputation.Scores(reputation.Buyer, o.Peer())[0]; s.Millionths < least {
			return market.Refuse(market.ReasonReputation,
				"your reputation as a buyer: got %.4f, want at least %.4f",
				float64(s.Millionths)/1e6, float64(least)/1e6)
		}
	}
	if p.Paused() {
		return market.Refuse(market.ReasonPaused, "this provider sells nothing new for now")
	}
	if why := p.feeless(); why != "" {
		return market.Refuse(market.ReasonPaused, "this provider sells nothing for now: %s", why)
	}
	if no := (seen{p}).Egress().Refuse(o.Egress); no != nil {
		return no
	}
	if err := p.cfg.Policy.Hours.Covers(now, now.Add(p.lasts(o.Slots))); err != nil {
		return market.Refuse(market.ReasonClosed, "%v", err)
	}
	if q.engine(ctx, o.Runtime, now) != nil {
		return market.Refuse(market.ReasonRuntime, "%s", executor.NoEngine)
	}
	return nil
}

// engine returns the error of a runtime's engine, or nil if it could start something.
func (q *quotes) engine(ctx context.Context, name string, now time.Time) error {
	prober, ok := q.p.cfg.Runtimes[name].(runtime.Prober)
	if !ok {
		return nil
	}
	return q.probes.ready(ctx, name, prober, now, q.p.cfg.Log)
}

const (
	// probeEvery is how long an answer of a runtime's engine counts, probeWait how long one is waited for.
	probeEvery = time.Second
	probeWait  = 2 * time.Second
)

// probes remember which runtimes can start programs: a provider must not be paid for work that it cannot do.
type probes struct {
	mu    sync.Mutex
	known map[string]probed // by runtime
}

type probed struct {
	at  time.Time
	err error
}

// ready probes the runtime's engine, at a limited rate, and returns its error.
func (p *probes) ready(ctx context.Context, name string, r runtime.Prober, now time.Time, log *slog.Logger) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, asked := p.known[name]
	if asked && now.Sub(last.at) < probeEvery {
		return last.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeWait)
	defer cancel()
	err := r.Probe(ctx)
	if p.known == nil {
		p.known = map[string]probed{}
	}
	p.known[name] = probed{now, err}
	switch {
	case err != nil && last.err == nil:
		log.Warn("nothing can be started; orders are refused until that changes", "runtime", name, "err", err)
	case err == nil && last.err != nil:
		log.Info("programs can be started again", "runtime", name)
	}
	return err
}
