// Package book is a buyer's book of providers: the latest offers of each, and how it answers.
package book

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
)

// maxProviders bounds the providers of a book. The one with the offers that expire first goes first.
const maxProviders = 20_000

// fresh is how long an answer counts as recent. A provider without a recent answer is not shown as online, and receives
// orders after the others.
const fresh = 2 * time.Minute

// Known is the information about one provider: its latest offer of one class, and its response times.
type Known struct {
	Offer    market.Offer
	Answered time.Time     // zero: never
	RTT      time.Duration // of the last answer
	Shown    match.Shown   // of its free units; set in the results of exchange.Exchange.Offers
}

// Fresh reports whether the provider answered recently enough to be shown as there.
func (k Known) Fresh(now time.Time) bool { return now.Sub(k.Answered) < fresh }

// Book is a buyer's book of providers. It may be used by many goroutines.
type Book struct {
	mu sync.Mutex
	m  map[sign.Key]*entry
}

// entry is one provider: how it answers, and its offer of each class.
type entry struct {
	Known  // without an offer
	offers map[market.Class]market.Offer
}

func (e *entry) with(o market.Offer) Known {
	k := e.Known
	k.Offer = o
	return k
}

// expires returns when the last of the provider's offers expires.
func (e *entry) expires() time.Time {
	var last time.Time
	for _, o := range e.offers {
		if o.Expires.After(last) {
			last = o.Expires
		}
	}
	return last
}

// New returns an empty book.
func New() *Book { return &Book{m: map[sign.Key]*entry{}} }

// Add enters an offer unless the book has a newer one of the same provider and class.
func (b *Book) Add(o market.Offer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(o.Provider)
	old, held := e.offers[o.Class]
	if o.Seq < old.Seq {
		return
	}
	if !held && len(e.offers) >= market.MaxOffers { // a valid provider has fewer: drop the offer that expires first
		var first market.Class
		for c, other := range e.offers {
			if first == "" || other.Expires.Before(e.offers[first].Expires) {
				first = c
			}
		}
		delete(e.offers, first)
	}
	e.offers[o.Class] = o
}

func (b *Book) entry(p sign.Key) *entry {
	e := b.m[p]
	if e == nil {
		if len(b.m) >= maxProviders {
			b.evict()
		}
		e = &entry{offers: map[market.Class]market.Offer{}}
		b.m[p] = e
	}
	return e
}

func (b *Book) evict() {
	var oldest sign.Key
	var stalest time.Time
	first := true
	for p, e := range b.m {
		if at := e.expires(); first || at.Before(stalest) {
			oldest, stalest, first = p, at, false
		}
	}
	delete(b.m, oldest)
}

// Answered notes an answer of a provider after rtt. An rtt of 0 marks an unsolicited message.
func (b *Book) Answered(p sign.Key, now time.Time, rtt time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entry(p)
	e.Answered = now
	if rtt > 0 {
		e.RTT = rtt
	}
}

// Silent notes that a provider did not answer.
func (b *Book) Silent(p sign.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.m[p]; e != nil {
		e.Answered = time.Time{}
	}
}

// RTT returns the round trip of a provider's last answer, or 0 without one.
func (b *Book) RTT(p sign.Key) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.m[p]; e != nil {
		return e.RTT
	}
	return 0
}

// Offer returns the offer of a provider and class.
func (b *Book) Offer(p sign.Key, c market.Class) (market.Offer, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.m[p]; e != nil {
		o, ok := e.offers[c]
		return o, ok
	}
	return market.Offer{}, false
}

// Coordinate returns the network coordinate in the provider's latest offer. Zero means unknown.
func (b *Book) Coordinate(p sign.Key) market.Coordinate {
	b.mu.Lock()
	defer b.mu.Unlock()
	var c market.Coordinate
	var latest time.Time
	if e := b.m[p]; e != nil {
		for _, o := range e.offers {
			if !o.Coordinate.IsZero() && o.NotBefore.After(latest) {
				c, latest = o.Coordinate, o.NotBefore
			}
		}
	}
	return c
}

// Class returns the unexpired offers that an order of a class or family takes, or all for "". Providers with a recent
// answer come first, then the offers are in the order of their provider's key and of their class.
func (b *Book) Class(c market.Class, now time.Time) []Known {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Known
	for p, e := range b.m {
		if last := e.expires(); len(e.offers) > 0 && now.Sub(last) > time.Hour {
			delete(b.m, p)
			continue
		}
		for class, o := range e.offers {
			if !now.After(o.Expires) && (c == "" || c.Accepts(class)) {
				out = append(out, e.with(o))
			}
		}
	}
	slices.SortFunc(out, func(x, y Known) int {
		fx, fy := x.Fresh(now), y.Fresh(now)
		if fx != fy {
			if fx {
				return -1
			}
			return 1
		}
		byKey := slices.Compare(x.Offer.Provider[:], y.Offer.Provider[:])
		return cmp.Or(byKey, cmp.Compare(x.Offer.Class, y.Offer.Class))
	})
	return out
}
