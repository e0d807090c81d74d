package buyer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Proofs knows what the units on offer have shown; node/audit has it. Nobody who offers is believed.
type Proofs interface {
	// Shown is what is known of an offer's units, free or not, without asking anybody.
	Shown(o market.Offer) match.Shown
	// Check fetches and checks the records that an offer names until so many units are proven or there are no more.
	Check(ctx context.Context, o market.Offer, need int)
	// CheckUnits verifies that units are proven, whose records an offer names.
	CheckUnits(ctx context.Context, o market.Offer, units []market.UnitID) error
	// Rate is the least that any of a provider's units was proven to compute, int8 operations a second; 0 where one's is not known.
	Rate(provider sign.Key, units []market.UnitID) uint64
	// Next is how long it takes, on average, until the next audit, in which units show what they are; 0: not known.
	Next() time.Duration
}

const (
	// proveTime bounds fetching and checking what one offer names.
	proveTime = 10 * time.Second
	// maxProving is how many offers are looked into at a time.
	maxProving = 16
)

// errNoProofs says that units may have shown what they are and this peer cannot tell.
var errNoProofs = errors.New("this peer cannot check audit records: its view of the chain tells no blocks")

// picky reports whether an order's units must have shown what they are.
func (b *Buyer) picky(o market.Order) bool { return b.cfg.Weights.Audited && !o.Unproven }

// shown is what this peer knows of an offer's units, all of them.
func (b *Buyer) shown(o market.Offer) match.Shown {
	switch {
	case !b.cfg.Weights.Audited:
		return match.Shown{}
	case b.cfg.Proofs == nil:
		return match.Shown{Doubt: errNoProofs.Error()}
	}
	s := b.cfg.Proofs.Shown(o)
	s.Class = audit.ProvenAs(o.Class)
	return s
}

// candidate is what matching sees of an offer that is not quoted, but for its reputation: of its proven units those are counted
// that are free.
func (b *Buyer) candidate(k Known) match.Candidate {
	c := match.Candidate{Offer: k.Offer, RTT: k.RTT, Shown: b.shown(k.Offer)}
	if c.Shown.Units > k.Offer.Proven {
		c.Shown.Units, c.Shown.Doubt = k.Offer.Proven, "the others that have are not free"
	}
	return c
}

// asked is a candidate to be asked for a quote: its records are checked while it answers, so what it says counts.
func (b *Buyer) asked(k Known) match.Candidate {
	c := match.Candidate{Offer: k.Offer, RTT: k.RTT, Route: routeOffer, Shown: match.Shown{Class: audit.ProvenAs(k.Offer.Class)}}
	if c.Shown.Units = k.Offer.Proven; k.Offer.Proof.IsZero() {
		c.Shown = b.shown(k.Offer)
	}
	return c
}

// prove has the records that an offer names checked, for as many units, in the background; then is called when it is done. False:
// there is nothing to do.
func (b *Buyer) prove(o market.Offer, need int, then func()) bool {
	b.mu.Lock()
	ctx := b.ctx
	begin := b.cfg.Proofs != nil && b.cfg.Weights.Audited && !o.Proof.IsZero() && ctx != nil && !b.closing
	if begin {
		b.wg.Add(1)
	}
	b.mu.Unlock()
	if !begin {
		return false
	}
	go func() {
		defer b.wg.Done()
		defer then()
		ctx, cancel := context.WithTimeout(ctx, proveTime)
		defer cancel()
		select {
		case b.proving <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-b.proving }()
		b.cfg.Proofs.Check(ctx, o, need)
	}()
	return true
}

// proveNow is prove for who waits a little for it.
func (b *Buyer) proveNow(ctx context.Context, o market.Offer) {
	done := make(chan struct{})
	if !b.prove(o, 0, func() { close(done) }) {
		return
	}
	t := time.NewTimer(askTimeout)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// proveFor is prove for what an order may take of one provider, if it wants proof; its auction looks again when it is done.
func (b *Buyer) proveFor(a *auction, o market.Offer) {
	if b.picky(a.order) {
		b.prove(o, a.wants(), a.wake)
	}
}

// wants is how many units of one provider the order may take.
func (a *auction) wants() int {
	if a.spread {
		return int(a.order.UnitsPer)
	}
	return min(int(a.order.UnitsPer)*int(a.order.Count), market.MaxShown)
}

// leasesOf is how many leases a quote is good for: of proven units, where the order wants those.
func (b *Buyer) leasesOf(o market.Order, q quoted) uint32 {
	if !b.picky(o) {
		return q.quote.Leases
	}
	if !o.Class.Accepts(audit.ProvenAs(q.offer.Class)) {
		return 0
	}
	return min(q.quote.Leases, b.shown(q.offer).Units/o.UnitsPer)
}

// provenRate is what audits proved of units, 0 where nothing is known.
func (b *Buyer) provenRate(provider sign.Key, units []market.UnitID) uint64 {
	if b.cfg.Proofs == nil || len(units) == 0 {
		return 0
	}
	return b.cfg.Proofs.Rate(provider, units)
}

// checkUnits verifies that the units that a provider set aside are among those that it has shown.
func (b *Buyer) checkUnits(ctx context.Context, o market.Order, q quoted, units []market.UnitID) error {
	if !b.picky(o) {
		return nil
	}
	if b.cfg.Proofs == nil {
		return errNoProofs
	}
	offer := q.offer
	if q.route == RouteStandby { // its quote came long ago, and the offer beside it says nothing any more
		var ok bool
		if offer, ok = b.known.of(q.quote.Provider, q.quote.Class); !ok {
			fctx, cancel := context.WithTimeout(ctx, findTimeout)
			b.find(fctx, q.quote.Class, nil)
			cancel()
			if offer, ok = b.known.of(q.quote.Provider, q.quote.Class); !ok {
				return fmt.Errorf("the provider's offer, which names its records, is not to be found")
			}
		}
	}
	if as := audit.ProvenAs(offer.Class); !o.Class.Accepts(as) {
		return fmt.Errorf("no record tells a unit of %s from another: it is proven as %s alone", offer.Class, as)
	}
	return b.cfg.Proofs.CheckUnits(ctx, offer, units)
}

// of is the offer held of a provider and class.
func (k *known) of(p sign.Key, c market.Class) (market.Offer, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.m[p]; e != nil {
		o, ok := e.offers[c]
		return o, ok
	}
	return market.Offer{}, false
}

// whenProven says what to do about an order that found too few units which have shown what they are; "" where that is not why.
func (b *Buyer) whenProven(o market.Order, counts map[market.Reason]int) string {
	if counts[market.ReasonUnproven] == 0 || !b.picky(o) || b.cfg.Proofs == nil {
		return ""
	}
	text := "; units are sold once an audit has shown what they are"
	if next := b.cfg.Proofs.Next(); next > 0 {
		text += fmt.Sprintf(", and the next audit is expected in %s", next.Round(time.Second))
	}
	return text + ": wait for it, or take units as they are (--unproven, or resources.unproven: true)"
}
