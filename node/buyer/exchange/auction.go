package exchange

import (
	"context"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/trace"
)

// The routes by which a quote reaches a buyer.
const (
	RouteDirect = "direct" // the provider was known and asked over a stream
	RouteGossip = "gossip" // the provider received the order on its class's topic
	// RouteStandby is the route of a quote for a job's first order by a provider that stands by.
	RouteStandby = "standby"

	routeOffer = "offer" // no quote came: the offer suffices
)

// Quoted is one received quote.
type Quoted struct {
	Quote market.Quote
	Offer market.Offer
	Route string
	Took  time.Duration // since the order was sent; for a direct quote, since its request

	via    peer.ID // the neighbour that brought it; empty for a requested quote
	misfit bool    // by Ask.Suits
}

// Trace receives the course of an auction.
type Trace interface {
	Add(steps ...trace.Step)
}

// Silence is a Trace without readers.
type Silence struct{}

// Add drops the steps.
func (Silence) Add(...trace.Step) {}

// Ask has the options of Collect.
type Ask struct {
	Direct  bool     // also send the order to known providers
	Spread  bool     // one rank for each provider
	Cluster bool     // leave out providers that do not join clusters
	Have    []Quoted // quotes for it that were collected before and count; their providers are not asked
	// Need is the number of leases that need quotes; 0 means all of the order's. Skip has providers that do not receive
	// the order.
	Need   int
	Skip   map[sign.Key]bool
	Settle time.Duration // additional time to collect once there are enough
	// All means that any further quote matters, also for spares. By default, only quotes that would change the choice
	// do: with none of them to come, Settle ends early.
	All bool
	// Suits returns the reason why a provider does not suit the job, or nil. Its quote does not count. It is optional.
	Suits func(q Quoted) *market.Refusal
	// Standbys is the number of providers wanted besides those of the leases. While there are fewer, quotes are
	// collected until the window ends.
	Standbys int
	// Only are the only providers that are asked, directly and known or not; none means all. The order is not gossiped.
	Only []sign.Key
}

func (a *Ask) suits(q Quoted) bool { return a.Suits == nil || a.Suits(q) == nil }

// auction collects the quotes for one order.
type auction struct {
	x     *Exchange
	order market.Order
	ask   Ask
	start time.Time
	size  int // estimate of the class's peers at the start
	trace Trace
	good  func(q Quoted) uint32 // the number of leases that a quote is good for

	mu      sync.Mutex
	closed  bool                   // its result was taken
	asked   map[sign.Key]time.Time // directly, and when
	quotes  map[sign.Key]Quoted
	refused map[sign.Key]match.Refusal // the last refusal of each provider
	more    chan struct{}              // holds one token when something came in
}

func (x *Exchange) newAuction(t Trace, o market.Order, ask Ask) *auction {
	a := &auction{
		x: x, order: o, ask: ask, good: func(q Quoted) uint32 { return x.leasesOf(o, q) }, trace: t,
		start: time.Now(), size: x.guess(o.Class),
		asked: map[sign.Key]time.Time{}, quotes: map[sign.Key]Quoted{}, refused: map[sign.Key]match.Refusal{},
		more: make(chan struct{}, 1),
	}
	for _, q := range ask.Have {
		if p := q.Quote.Provider; a.start.Before(q.Quote.Expires) {
			q.misfit = !ask.suits(q)
			a.asked[p], a.quotes[p] = a.start, q
		}
	}
	return a
}

func (a *auction) add(q Quoted) error {
	q.misfit = !a.ask.suits(q)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := q.Quote.Provider
	if a.closed {
		return market.Refuse(market.ReasonLimit, "the order takes no more quotes")
	}
	if _, ok := a.quotes[p]; !ok && len(a.quotes) >= match.MaxQuotes(a.order.Count) && !a.makeRoom(q.via) {
		return market.Refuse(market.ReasonLimit, "the order has enough quotes")
	}
	if old, ok := a.quotes[p]; ok && old.Quote.Price <= q.Quote.Price {
		return nil
	}
	a.quotes[p] = q
	a.wake()
	return nil
}

func (a *auction) wake() {
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// makeRoom drops the latest quote of the neighbour that brought most, if that is more than via will have brought. So
// one neighbour's quotes, which may all be forged, do not displace another's. Requested quotes stay. a.mu is held.
func (a *auction) makeRoom(via peer.ID) bool {
	brought := map[peer.ID]int{}
	latest := map[peer.ID]Quoted{}
	for _, q := range a.quotes {
		if q.via == "" {
			continue
		}
		brought[q.via]++
		if old, ok := latest[q.via]; !ok || q.Took > old.Took {
			latest[q.via] = q
		}
	}
	most := via
	for v, n := range brought {
		if most == "" || n > brought[most] {
			most = v
		}
	}
	if most == "" || via != "" && brought[most] <= brought[via]+1 {
		return false
	}
	delete(a.quotes, latest[most].Quote.Provider)
	return true
}

// leases returns the number of leases that the quotes could take, and the number of providers that could take any.
func (a *auction) leases() (n int, providers int) {
	for _, q := range a.all() {
		if leases := int(a.takes(q)); leases > 0 {
			n, providers = n+leases, providers+1
		}
	}
	return n, providers
}

func (a *auction) all() []Quoted {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]Quoted, 0, len(a.quotes))
	for _, q := range a.quotes {
		out = append(out, q)
	}
	return out
}

// refuse notes why providers would not take the order. An offer does not change its provider's own word.
func (a *auction) refuse(more ...match.Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	for _, r := range more {
		if old, ok := a.refused[r.Provider]; !ok || r.Route != routeOffer || old.Route == routeOffer {
			a.refused[r.Provider] = r
		}
		if r.Route != routeOffer {
			a.wake()
		}
	}
}

// refusals returns the last word of each provider that would not take the order, and traces those of which nothing else
// is in the trace.
func (a *auction) refusals() []match.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]match.Refusal, 0, len(a.refused))
	for p, r := range a.refused {
		out = append(out, r)
		step := trace.Step{At: time.Now(), Provider: p.String(), Detail: r.Detail}
		switch silent := r.Route == routeOffer && a.asked[p].IsZero() && a.quotes[p].Route == ""; {
		case r.Reason == market.ReasonUnwanted:
			step.Kind = trace.Blocked
		case r.Reason == market.ReasonUnproven && silent:
			step.Kind = trace.Infeasible
		default:
			continue
		}
		a.trace.Add(step)
	}
	return out
}

// Collect publishes an order on its class's topic, sends it to the best known providers directly, and returns the
// quotes as soon as there are enough, or when the window ends. Without enough, quotes count until all requests have
// returned, which on a busy machine may be long after the window. An order that all peers of its class receive directly
// is published only if their answers are not enough in time. An order is published once, however often it is collected.
func (x *Exchange) Collect(ctx context.Context, t Trace, o market.Order, envelope []byte, ask Ask) Collected {
	a := x.newAuction(t, o, ask)
	x.mu.Lock()
	x.auctions[o.ID] = a
	x.mu.Unlock()
	if len(ask.Only) == 0 {
		x.turnout.Ordered(o, a.start)
	}
	ctx, cancel := context.WithTimeout(ctx, x.cfg.Window)
	var requests sync.WaitGroup
	a.request(ctx, &requests, envelope)
	enough := a.listen(ctx)
	cancel()
	if !enough {
		requests.Wait()
	}
	x.turnout.Quoted(o.ID, a.close())
	x.mu.Lock()
	delete(x.auctions, o.ID)
	background := !x.closed
	if background {
		x.wg.Go(requests.Wait)
	}
	x.mu.Unlock()
	if !background {
		requests.Wait()
	}
	return Collected{Quotes: a.all(), Declined: a.refusals(), auction: a}
}
