package buyer

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/reputation"
)

// maxKnown bounds the offers a buyer remembers; the stalest goes first.
const maxKnown = 20_000

// probeFresh is how long an answer counts as recent: an offer whose provider
// has not answered for longer is not shown and is asked after those that have.
const probeFresh = 2 * time.Minute

// Known is one provider as this peer knows it: its latest offer of one class and
// how it answers.
type Known struct {
	Offer    market.Offer
	Answered time.Time     // zero: never
	RTT      time.Duration // of the last answer
	Shown    match.Shown   // what is known of its free units; of those that Buyer.Offers returns
}

// Fresh reports whether the provider answered recently enough to be shown as there.
func (k Known) Fresh(now time.Time) bool { return now.Sub(k.Answered) < probeFresh }

// rate gives candidates the reputation that their providers have here.
func (b *Buyer) rate(cands []match.Candidate) {
	keys := make([]sign.Key, len(cands))
	for i := range cands {
		keys[i] = cands[i].Offer.Provider
	}
	for i, s := range b.cfg.Reputation.Scores(reputation.Provider, keys...) {
		cands[i].Reputation, cands[i].Newcomer, cands[i].Shunned = s.Millionths, s.Newcomer(), s.Shunned()
	}
}

// known is the buyer's book of providers. It may be used by many goroutines.
type known struct {
	mu sync.Mutex
	m  map[sign.Key]*entry
}

// entry is one provider: how it answers, and its offer for each class it sells.
type entry struct {
	Known  // without an offer
	offers map[market.Class]market.Offer
}

func (e *entry) with(o market.Offer) Known {
	k := e.Known
	k.Offer = o
	return k
}

// expires is when the last of its offers does.
func (e *entry) expires() time.Time {
	var last time.Time
	for _, o := range e.offers {
		if o.Expires.After(last) {
			last = o.Expires
		}
	}
	return last
}

func newKnown() *known { return &known{m: map[sign.Key]*entry{}} }

// offer takes in an offer if it is newer than the one held of the same provider and class.
func (k *known) offer(o market.Offer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entry(o.Provider)
	old, held := e.offers[o.Class]
	if o.Seq < old.Seq {
		return
	}
	if !held && len(e.offers) >= market.MaxOffers { // it sells fewer at a time: the one that is over first is dropped
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

func (k *known) entry(p sign.Key) *entry {
	e := k.m[p]
	if e == nil {
		if len(k.m) >= maxKnown {
			k.evict()
		}
		e = &entry{offers: map[market.Class]market.Offer{}}
		k.m[p] = e
	}
	return e
}

func (k *known) evict() {
	var oldest sign.Key
	var stalest time.Time
	first := true
	for p, e := range k.m {
		if at := e.expires(); first || at.Before(stalest) {
			oldest, stalest, first = p, at, false
		}
	}
	delete(k.m, oldest)
}

// answered notes that a provider answered, after rtt, or of its own accord when that is zero.
func (k *known) answered(p sign.Key, now time.Time, rtt time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entry(p)
	e.Answered = now
	if rtt > 0 {
		e.RTT = rtt
	}
}

// silent notes that a provider did not answer.
func (k *known) silent(p sign.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.m[p]; e != nil {
		e.Answered = time.Time{}
	}
}

// get returns how a provider has behaved, without an offer of it.
func (k *known) get(p sign.Key) (Known, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, ok := k.m[p]
	if !ok {
		return Known{}, false
	}
	return e.Known, true
}

// class returns the unexpired offers that an order of a class or family takes, "" for all: those that answered recently
// first, else in the order of their provider's key and of their class.
func (k *known) class(c market.Class, now time.Time) []Known {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []Known
	for p, e := range k.m {
		if last := e.expires(); len(e.offers) > 0 && now.Sub(last) > time.Hour {
			delete(k.m, p)
			continue
		}
		for class, o := range e.offers {
			if !now.After(o.Expires) && (c == "" || c.Accepts(class)) {
				out = append(out, e.with(o))
			}
		}
	}
	slices.SortFunc(out, func(a, b Known) int {
		fa, fb := a.Fresh(now), b.Fresh(now)
		if fa != fb {
			if fa {
				return -1
			}
			return 1
		}
		return cmp.Or(slices.Compare(a.Offer.Provider[:], b.Offer.Provider[:]), cmp.Compare(a.Offer.Class, b.Offer.Class))
	})
	return out
}
