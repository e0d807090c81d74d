package buyer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/marketpb"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/stream"
)

// The routes by which a quote reaches a buyer.
const (
	RouteDirect = "direct" // the provider was known and asked over a stream
	RouteGossip = "gossip" // the provider heard the order on its class's topic

	routeOffer = "offer" // none came: what it offers says enough
)

const (
	// askTimeout is how long a provider that is asked directly may take; one that
	// takes longer is dropped from this order, never waited for.
	askTimeout = 1500 * time.Millisecond
	// maxAsked bounds how many known providers are asked at once unless Config says otherwise.
	maxAsked = 48
	// settleQuotes is how much longer quotes are listened for once there are
	// enough: it lets a better one that is a moment late take part.
	settleQuotes = 20 * time.Millisecond
	// settleCluster is that for a cluster: those that are near to one another are chosen among all.
	settleCluster = 150 * time.Millisecond
	// findAfter is how long known providers have to answer before the DHT is asked for others.
	findAfter = 100 * time.Millisecond
	// findTimeout bounds the look-up of offers in the DHT for one order.
	findTimeout = time.Second
)

// quoted is one quote as it came in.
type quoted struct {
	quote market.Quote
	offer market.Offer
	route string
	via   peer.ID       // the neighbour that brought it; none: it was asked for
	took  time.Duration // since the order went out; of a direct one, since it was asked
}

// auction collects what comes in for one order.
type auction struct {
	order   market.Order
	cluster bool // providers that take part in none are not asked
	spread  bool // one rank for each provider
	start   time.Time
	trace   *trace
	good    func(q quoted) uint32 // how many leases a quote is good for

	mu     sync.Mutex
	asked  map[sign.Key]bool // directly
	quotes map[sign.Key]quoted
	more   chan struct{} // holds one token when something came in
}

func (a *auction) add(q quoted) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.quotes[q.quote.Provider]; !ok && len(a.quotes) >= match.MaxQuotes(a.order.Count) && !a.makeRoom(q.via) {
		return market.Refuse(market.ReasonLimit, "the order has enough quotes")
	}
	if old, ok := a.quotes[q.quote.Provider]; ok && old.quote.Price <= q.quote.Price {
		return nil
	}
	a.quotes[q.quote.Provider] = q
	a.wake()
	return nil
}

func (a *auction) wake() {
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// leases is how many leases the quotes so far could take, and how many providers could take any.
func (a *auction) leases() (n int, providers int) {
	for _, q := range a.all() {
		if leases := int(a.good(q)); leases > 0 {
			n, providers = n+leases, providers+1
		}
	}
	return n, providers
}

func (a *auction) all() []quoted {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]quoted, 0, len(a.quotes))
	for _, q := range a.quotes {
		out = append(out, q)
	}
	return out
}

// collect publishes the order on its class's topic, in parallel asks the best
// known providers directly, and returns the quotes: as soon as there are enough
// of them, when everybody who was asked has answered and gossip has had its time,
// or when the window is over.
func (b *Buyer) collect(ctx context.Context, t *trace, o market.Order, envelope []byte, how asking) ([]quoted, []match.Refusal, error) {
	a := &auction{order: o, spread: how.spread, cluster: how.cluster, good: func(q quoted) uint32 { return b.leasesOf(o, q) }, start: time.Now(), trace: t, asked: map[sign.Key]bool{}, quotes: map[sign.Key]quoted{}, more: make(chan struct{}, 1)}
	b.mu.Lock()
	b.auctions[o.ID] = a
	b.mu.Unlock()
	b.sizes.asked(o, a.start)
	defer func() {
		b.mu.Lock()
		delete(b.auctions, o.ID)
		b.mu.Unlock()
	}()
	ctx, cancel := context.WithTimeout(ctx, b.cfg.QuoteWindow)
	defer cancel()
	var refused refusals
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel() // before the waiting: nobody is waited for any longer
	t.add(Step{At: a.start, Kind: StepOrdered, Detail: fmt.Sprintf("order %s for %d × %d units of %s, at most %s per unit-hour",
		o.ID.Short(), o.Count, o.UnitsPer, o.Class, b.cfg.Genesis.FormatAmount(market.Amount(o.Ceiling)))})
	wg.Go(func() { // it may first have to look for neighbours to gossip with
		if err := b.publish(ctx, o, envelope); err != nil {
			t.add(Step{At: time.Now(), Kind: StepOrdered, Detail: "not gossiped: " + err.Error()})
		}
	})
	asked := make(chan struct{})
	wg.Add(1)
	go func() {
		defer wg.Done()
		defer close(asked)
		if how.direct {
			b.askKnown(ctx, t, a, envelope, &refused)
		}
	}()
	b.listen(ctx, a, asked, how)
	no := refused.list()
	for _, r := range no {
		switch r.Reason {
		case market.ReasonUnwanted:
			t.add(Step{At: time.Now(), Kind: StepBlocked, Provider: r.Provider.String(), Detail: r.Detail})
		case market.ReasonUnproven:
			a.mu.Lock()
			silent := r.Route == routeOffer && !a.asked[r.Provider] && a.quotes[r.Provider].route == ""
			a.mu.Unlock()
			if silent { // nothing else is said of it
				t.add(Step{At: time.Now(), Kind: StepInfeasible, Provider: r.Provider.String(), Detail: r.Detail})
			}
		}
	}
	return a.all(), no, nil
}

// blocked reports whether a provider is on the user's block list, in the words of `why`.
func (b *Buyer) blocked(p sign.Key) (why string, blocked bool) {
	reason, no := b.cfg.Blocked(p)
	return strings.TrimSuffix("blocked by you: "+reason, ": "), no
}

// asking says which ways an order may take. Gossip is always one of them.
type asking struct {
	direct bool
	spread bool
	// cluster leaves those out who take part in none.
	cluster bool
	settle  time.Duration // how much longer quotes are listened for once there are enough
}

// listen returns when the auction has what it needs or can have.
func (b *Buyer) listen(ctx context.Context, a *auction, asked <-chan struct{}, how asking) {
	var settle <-chan time.Time
	for {
		leases, providers := a.leases()
		enough := leases >= int(a.order.Count) && (!how.spread || providers >= int(a.order.Count))
		if enough && settle == nil {
			settle = time.After(how.settle)
		}
		select {
		case <-ctx.Done():
			return
		case <-settle:
			return
		case <-asked:
			asked = nil // gossip has the rest of the window
		case <-a.more:
		}
	}
}

// askKnown asks the best known providers, in parallel, and looks for more in the DHT.
func (b *Buyer) askKnown(ctx context.Context, t *trace, a *auction, envelope []byte, refused *refusals) {
	var wg sync.WaitGroup
	defer wg.Wait()
	ask := func(batch []Known) {
		for _, k := range batch {
			a.mu.Lock()
			skip := a.cluster && k.Offer.NoClusters || a.asked[k.Offer.Provider] || len(a.asked) >= b.cfg.MaxAsked+3*int(a.order.Count)
			if !skip {
				a.asked[k.Offer.Provider] = true
			}
			a.mu.Unlock()
			if skip {
				continue
			}
			wg.Add(1)
			go func() {
				defer wg.Done()
				b.proveFor(a, k.Offer)
				b.askOne(ctx, t, a, k, envelope, refused)
			}()
		}
	}
	known := b.best(a.order, refused)
	ask(known)
	fresh, now := 0, time.Now()
	for _, k := range known {
		if k.Fresh(now) {
			fresh++
		}
	}
	// Looking in the DHT costs many peers a message each. It is left out when enough
	// of those that answered lately answer this order, too; newcomers hear it over gossip.
	if fresh >= freshFactor*int(a.order.Count) && pause(ctx, findAfter) != nil {
		return
	}
	fctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	if b.find(fctx, a.order.Class, a.order.Regions) > 0 {
		ask(b.best(a.order, refused))
	}
}

// best ranks the known offers that could fit the order.
func (b *Buyer) best(o market.Order, refused *refusals) []Known {
	now := time.Now()
	all := b.known.class(o.Class, now)
	type lot struct {
		provider sign.Key
		class    market.Class
	}
	lotOf := func(o *market.Offer) lot { return lot{o.Provider, o.Class} }
	byLot := make(map[lot]Known, len(all))
	cands := make([]match.Candidate, 0, len(all))
	for _, k := range all {
		if k.Offer.Provider == b.self {
			continue
		}
		if why, no := b.blocked(k.Offer.Provider); no {
			refused.add(match.Refusal{Provider: k.Offer.Provider, Reason: market.ReasonUnwanted, Detail: why})
			continue
		}
		byLot[lotOf(&k.Offer)] = k
		cands = append(cands, b.asked(k))
	}
	res := match.Rank(o, cands, now, b.cfg.Weights)
	refused.add(res.Refused...)
	// How many units are free is the oldest news in an offer: who was full is asked, too, after the others.
	full := slices.DeleteFunc(cands, func(c match.Candidate) bool {
		return c.Offer.Units >= o.UnitsPer && (c.Shown.Units >= o.UnitsPer || c.Offer.Proof.IsZero() || !b.picky(o))
	})
	for i := range full {
		full[i].Offer.Units = full[i].Offer.Total
		if !full[i].Offer.Proof.IsZero() {
			full[i].Shown.Units = full[i].Offer.Total
		}
	}
	out := make([]Known, 0, len(cands))
	for _, s := range slices.Concat(res.Ranked, match.Rank(o, full, now, b.cfg.Weights).Ranked) {
		out = append(out, byLot[lotOf(&s.Candidate.Offer)])
	}
	return out
}

func (b *Buyer) askOne(ctx context.Context, t *trace, a *auction, k Known, envelope []byte, refused *refusals) {
	p := k.Offer.Provider
	id, err := b.remember(p, k.Offer.Addrs)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	start := time.Now()
	t.add(Step{At: start, Kind: StepAsked, Provider: p.String(), Route: RouteDirect})
	resp, err := protocol.Ask.Call(ctx, b.cfg.Host, b.tag, id, &marketpb.AskRequest{Order: envelope})
	took := time.Since(start)
	var no *stream.Refused
	switch {
	case errors.As(err, &no):
		b.known.answered(p, time.Now(), took)
		refused.add(match.Refusal{Provider: p, Reason: market.Reason(no.Code), Detail: no.Reason})
		t.add(Step{At: time.Now(), Kind: StepDeclined, Provider: p.String(), Route: RouteDirect, Took: took, Detail: no.Reason})
		return
	case err != nil:
		b.known.silent(p)
		refused.add(match.Refusal{Provider: p, Reason: market.ReasonTimeout, Detail: "did not answer in time"})
		t.add(Step{At: time.Now(), Kind: StepSilent, Provider: p.String(), Route: RouteDirect, Took: took, Detail: err.Error()})
		return
	}
	b.known.answered(p, time.Now(), took)
	q, err := market.DecodeQuote(b.domain, resp.Quote, time.Now())
	if err == nil {
		err = b.take(a, p, q, resp.Offer, RouteDirect, "", took)
	}
	if err != nil {
		t.add(Step{At: time.Now(), Kind: StepInfeasible, Provider: p.String(), Route: RouteDirect, Took: took, Detail: err.Error()})
	}
}

// take checks a quote and the offer beside it and hands them to their auction.
func (b *Buyer) take(a *auction, from sign.Key, q market.Quote, offer []byte, route string, via peer.ID, took time.Duration) error {
	now := time.Now()
	if q.Provider != from {
		return fmt.Errorf("%w: a quote of %s sent by %s", market.ErrMalformed, q.Provider.Short(), from.Short())
	}
	if err := q.CheckFor(a.order); err != nil {
		return err
	}
	o, err := market.DecodeOffer(b.domain, offer, now)
	if err != nil {
		return err
	}
	if err := q.CheckOffer(o); err != nil {
		return err
	}
	if err := o.CheckGenesis(b.cfg.Genesis); err != nil {
		return err
	}
	b.known.offer(o)
	if _, err := b.remember(from, append(q.Addrs, o.Addrs...)); err != nil {
		return err
	}
	if err := a.add(quoted{quote: q, offer: o, route: route, via: via, took: took}); err != nil {
		return err
	}
	b.proveFor(a, o)
	a.trace.add(Step{At: now, Kind: StepQuoted, Provider: from.String(), Route: route, Took: took,
		Price: b.cfg.Genesis.FormatAmount(market.Amount(q.Price)), Detail: fmt.Sprintf("%d leases in %s%s", q.Leases, q.Region, units(q, a.order))})
	return nil
}

// units says of which units a quote is, where that is more than the order says.
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

// remember adds the addresses of a provider to the host's address book.
func (b *Buyer) remember(p sign.Key, addrs []string) (peer.ID, error) {
	id, err := p2p.PeerIDFromKey(p)
	if err != nil {
		return "", err
	}
	var out []ma.Multiaddr
	for _, s := range addrs {
		if a, err := ma.NewMultiaddr(s); err == nil {
			out = append(out, a)
		}
	}
	b.cfg.Host.Peerstore().AddAddrs(id, out, peerstore.TempAddrTTL)
	return id, nil
}

func keyOf(id peer.ID) (sign.Key, error) {
	k, err := p2p.KeyFromPeerID(id)
	return sign.Key(k), err
}

// refusals gathers why providers would not take an order. The last word of a
// provider counts.
type refusals struct {
	mu sync.Mutex
	m  map[sign.Key]match.Refusal
}

func (r *refusals) add(more ...match.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.m == nil {
		r.m = map[sign.Key]match.Refusal{}
	}
	for _, f := range more {
		r.m[f.Provider] = f
	}
}

func (r *refusals) list() []match.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]match.Refusal, 0, len(r.m))
	for _, f := range r.m {
		out = append(out, f)
	}
	return out
}

// publish gossips an order and fails when there is nobody to hear it.
func (b *Buyer) publish(ctx context.Context, o market.Order, envelope []byte) error {
	n, err := b.cfg.Publish(ctx, o, envelope)
	if err == nil && n == 0 {
		err = errors.New("no neighbour takes part in the topic yet")
	}
	return err
}
