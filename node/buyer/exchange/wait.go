package exchange

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/book"
	"github.com/starling-network/starling/p2p/stream"
)

// listen returns when the auction has enough quotes, and either their time to settle has passed and there are enough
// for standbys, too, or no provider is left whose quote would change the choice. It also returns when ctx ends. It
// reports whether there are enough.
func (a *auction) listen(ctx context.Context) (enough bool) {
	var settle <-chan time.Time
	var late func() bool
	need, members := a.need(), 1 // one provider may take all leases
	if a.ask.Spread {
		members = need
	}
	for settled := false; ; {
		leases, providers := a.leases()
		enough = leases >= need && providers >= members
		if enough && settle == nil {
			settle, late = time.After(a.ask.Settle), a.late()
		}
		if enough && (!late() || settled && providers >= members+a.ask.Standbys) {
			return true
		}
		select {
		case <-ctx.Done():
			return enough
		case <-settle:
			settled = true
		case <-a.more:
		}
	}
}

// A class of more peers than these is not counted but estimated by distances in the DHT. The estimate is off by a fifth
// or so, by the spread of the 20 nearest peers of a key.
const exactPeers, estimateOff = 20, 5

// late returns a function that reports whether a quote may still come that matters: from a provider with a known offer,
// or from an unknown peer if the class has more peers than are known, beyond the error of the estimate.
func (a *auction) late() func() bool {
	known := slices.DeleteFunc(a.best(), func(k book.Known) bool {
		as := market.Quote{Provider: k.Offer.Provider, Price: k.Offer.Price}
		return !a.ask.suits(Quoted{Offer: k.Offer, Quote: as})
	})
	strangers := a.strangers() > a.off()
	return func() bool {
		if strangers {
			return true
		}
		a.mu.Lock()
		answered := a.answered()
		a.mu.Unlock()
		open := slices.DeleteFunc(slices.Clone(known), func(k book.Known) bool { return answered[k.Offer.Provider] })
		return len(open) > 0 && (a.ask.All || a.ask.Standbys > 0 || a.better(open))
	}
}

// takes returns the number of leases that a quote could take: none if its provider does not suit the job.
func (a *auction) takes(q Quoted) uint32 {
	if q.misfit {
		return 0
	}
	return a.good(q)
}

// better reports whether one of the offers, whose providers have not answered yet, would be chosen beside the quotes. A
// provider is at most as near as the time without an answer allows, whatever its earlier answers took.
func (a *auction) better(offers []book.Known) bool {
	x, quotes := a.x, a.all()
	open := map[sign.Key]bool{}
	candidates := make([]match.Candidate, 0, len(quotes)+len(offers))
	for _, q := range quotes {
		if a.takes(q) > 0 {
			candidates = append(candidates, q.Candidate(x))
		}
	}
	for _, k := range offers {
		c := x.toAsk(k)
		if asked, ok := a.askedAt(k.Offer.Provider); ok || c.RTT == 0 {
			c.RTT = max(c.RTT, time.Since(asked))
		}
		candidates, open[k.Offer.Provider] = append(candidates, c), true
	}
	x.Rate(candidates)
	res := match.Rank(a.order, candidates, time.Now(), x.cfg.Weights)
	chosen, _, none := match.Select(a.order, res, a.need(), a.ask.Spread)
	return none != nil || slices.ContainsFunc(chosen, func(c match.Assignment) bool { return open[c.Provider] })
}

// askedAt returns the time at which a provider was asked directly; of another, the auction's start and false.
func (a *auction) askedAt(p sign.Key) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at, ok := a.asked[p]; ok {
		return at, true
	}
	return a.start, false
}

// need returns the number of leases that need quotes.
func (a *auction) need() int { return cmp.Or(a.ask.Need, int(a.order.Count)) }

// strangers returns how many peers may sell the order's class that are neither this one nor in the book.
func (a *auction) strangers() int {
	if len(a.ask.Only) > 0 {
		return 0
	}
	c, known := a.order.Class, map[sign.Key]bool{}
	for _, k := range a.x.Book.Class(c, time.Now()) {
		known[k.Offer.Provider] = true
	}
	return a.x.guess(c) - 1 - len(known)
}

// quoted reports whether a quote of the provider was taken.
func (a *auction) quoted(p sign.Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.quotes[p]
	return ok
}

// answered returns the providers whose answer is final: they quoted or declined. A timeout, "busy" and "the order's
// money is not seen yet" are not final. a.mu is held.
func (a *auction) answered() map[sign.Key]bool {
	out := map[sign.Key]bool{}
	for p := range a.quotes {
		out[p] = true
	}
	for p, r := range a.refused {
		switch r.Reason {
		case market.ReasonTimeout, market.ReasonUnseen, stream.CodeBusy:
		default:
			out[p] = out[p] || r.Route != routeOffer
		}
	}
	return out
}

// open returns the number of leases of the order that known providers without a final answer could take, by their
// offers.
func (a *auction) open() (n int) {
	known := a.best()
	a.mu.Lock()
	defer a.mu.Unlock()
	counted := a.answered()
	for _, k := range known {
		switch p := k.Offer.Provider; {
		case counted[p]:
		case a.ask.Spread:
			counted[p] = true
			n++
		default:
			n += int(k.Offer.Total / a.order.UnitsPer)
		}
	}
	return n
}

// close takes no more quotes or refusals. It returns the number of drawn providers that were asked directly, and
// neither refused nor quoted over gossip: they do not answer the gossiped order, too.
func (a *auction) close() (direct int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for p := range a.asked {
		_, refused := a.refused[p]
		if !refused && a.quotes[p].Route != RouteGossip && match.Drawn(a.order, p) {
			direct++
		}
	}
	return direct
}

// Collected is the result of Collect.
type Collected struct {
	Quotes   []Quoted
	Declined []match.Refusal // by providers without a quote
	auction  *auction
}

// Open returns the number of leases that known providers could take from which a quote may still come.
func (c Collected) Open() int { return c.auction.open() }

// Scarce reports whether quotes and Open are too few for the order, but would be enough if the class's peers without a
// known offer were like the peers with one. An uncounted class may have twice the known peers: just after the start,
// the estimate covers only peers that this peer has met. It is also true while Growing.
func (c Collected) Scarce() bool { return c.likely(true) || c.likely(false) || c.Growing() }

// Growing reports whether some leases of the order were quoted for but not all, and this peer has met peers of the
// class during the auction: one that has just joined meets the others over some seconds.
func (c Collected) Growing() bool {
	a := c.auction
	leases, providers := a.leases()
	enough := leases >= int(a.order.Count) && (!a.ask.Spread || providers >= int(a.order.Count))
	return providers > 0 && !enough && a.x.guess(a.order.Class) > a.size
}

// Likely is Scarce for an uncounted class, with at most the number of peers that the estimate and its error allow.
func (c Collected) Likely() bool { return c.auction.off() > 0 && c.likely(false) }

func (c Collected) likely(twice bool) bool {
	x, o := c.auction.x, c.auction.order
	fit, providers := c.auction.leases()
	if c.auction.ask.Spread {
		fit = providers
	}
	if fit >= int(o.Count) || len(c.auction.ask.Only) > 0 {
		return false
	}
	fit += c.Open()
	known, off := len(x.Book.Class(o.Class, time.Now())), c.auction.off()
	unknown := max(c.auction.strangers(), 0) + off
	if twice && off > 0 {
		unknown = known
	}
	lack := int(o.Count) - fit
	return lack > 0 && fit > 0 && lack*known <= unknown*fit
}

// off returns by how many peers the estimate of the class may be off.
func (a *auction) off() int {
	if n := a.x.guess(a.order.Class); n > exactPeers {
		return n / estimateOff
	}
	return 0
}
