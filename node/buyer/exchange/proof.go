package exchange

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/book"
	"github.com/starling-network/starling/verify/audit"
)

// Proofs has the proven properties of the units on offer; node/audit implements it. No offer is believed without one.
type Proofs interface {
	// Shown returns the proven properties of an offer's units, free or not, without any request.
	Shown(o market.Offer) match.Shown
	// Check fetches and checks the records that an offer names until need units are proven or no record is left.
	Check(ctx context.Context, o market.Offer, need int)
	// CheckUnits verifies that units are proven by the records that an offer names.
	CheckUnits(ctx context.Context, o market.Offer, units []market.UnitID) error
	// Rate returns the least that any of a provider's units was proven to compute, int8 operations a second. It is 0 if
	// one's is not known.
	Rate(provider sign.Key, units []market.UnitID) uint64
	// Next returns the average time until the next audit. 0 means unknown.
	Next() time.Duration
}

const (
	// proveTime bounds fetching and checking the records of one offer.
	proveTime = 10 * time.Second
	// maxProving is how many offers are checked at a time.
	maxProving = 16
)

// errNoProofs is returned where units may be proven and this peer cannot check that.
var errNoProofs = errors.New("this peer cannot check audit records: its view of the chain has no blocks")

// picky reports whether an order's units must be proven.
func (x *Exchange) picky(o market.Order) bool { return x.cfg.Weights.Audited && !o.Unproven }

// Shown returns the proven properties of an offer's units, all of them.
func (x *Exchange) Shown(o market.Offer) match.Shown {
	switch {
	case !x.cfg.Weights.Audited:
		return match.Shown{}
	case x.cfg.Proofs == nil:
		return match.Shown{Doubt: errNoProofs.Error()}
	}
	s := x.cfg.Proofs.Shown(o)
	s.Class = audit.ProvenAs(o.Class)
	return s
}

// candidate returns an offer without a quote as matching needs it, but for its reputation. Of its proven units those
// count that are free.
func (x *Exchange) candidate(k book.Known) match.Candidate {
	c := match.Candidate{Offer: k.Offer, RTT: k.RTT, Shown: x.Shown(k.Offer)}
	if c.Shown.Units > k.Offer.Proven {
		c.Shown.Units, c.Shown.Doubt = k.Offer.Proven, "the others that have are not free"
	}
	return c
}

// Candidate returns a quote to x as matching needs it, but for its provider's reputation.
func (q Quoted) Candidate(x *Exchange) match.Candidate {
	return match.Candidate{Offer: q.Offer, RTT: x.Book.RTT(q.Quote.Provider), Shown: x.Shown(q.Offer), Quote: &q.Quote,
		Route: q.Route}
}

// toAsk returns a candidate for a request for a quote. Its records are checked while it answers, so its own claim
// counts here.
func (x *Exchange) toAsk(k book.Known) match.Candidate {
	shown := match.Shown{Class: audit.ProvenAs(k.Offer.Class), Units: k.Offer.Proven}
	if k.Offer.Proof.IsZero() {
		shown = x.Shown(k.Offer)
	}
	return match.Candidate{Offer: k.Offer, RTT: k.RTT, Route: routeOffer, Shown: shown}
}

// prove checks the records that an offer names in the background until need units are proven, and then calls then. It
// returns false if there is nothing to check.
func (x *Exchange) prove(o market.Offer, need int, then func()) bool {
	x.mu.Lock()
	ctx := x.run
	begin := x.cfg.Proofs != nil && x.cfg.Weights.Audited && !o.Proof.IsZero() && ctx != nil && !x.closed
	if begin {
		x.wg.Add(1)
	}
	x.mu.Unlock()
	if !begin {
		return false
	}
	go func() {
		defer x.wg.Done()
		defer then()
		ctx, cancel := context.WithTimeout(ctx, proveTime)
		defer cancel()
		select {
		case x.proving <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-x.proving }()
		x.cfg.Proofs.Check(ctx, o, need)
	}()
	return true
}

// proveNow is prove for a caller that waits a little for it.
func (x *Exchange) proveNow(ctx context.Context, o market.Offer) {
	done := make(chan struct{})
	if !x.prove(o, 0, func() { close(done) }) {
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

// proveFor checks the records of the units that an order may take of one provider, if it needs proof. It wakes the
// order's auction afterwards.
func (x *Exchange) proveFor(a *auction, o market.Offer) {
	if x.picky(a.order) {
		x.prove(o, a.wants(), a.wake)
	}
}

// wants returns the maximum number of units of one provider for the order.
func (a *auction) wants() int {
	if a.ask.Spread {
		return int(a.order.UnitsPer)
	}
	return min(int(a.order.UnitsPer)*int(a.order.Count), market.MaxShown)
}

// leasesOf returns how many leases a quote is good for: of proven units, where the order needs those.
func (x *Exchange) leasesOf(o market.Order, q Quoted) uint32 {
	if !x.picky(o) {
		return q.Quote.Leases
	}
	if !o.Class.Accepts(audit.ProvenAs(q.Offer.Class)) {
		return 0
	}
	return min(q.Quote.Leases, x.Shown(q.Offer).Units/o.UnitsPer)
}

// ProvenRate returns the operations a second that audits proved of units, or 0 if that is not known.
func (x *Exchange) ProvenRate(provider sign.Key, units []market.UnitID) uint64 {
	if x.cfg.Proofs == nil || len(units) == 0 {
		return 0
	}
	return x.cfg.Proofs.Rate(provider, units)
}

// CheckUnits verifies that the units that a provider set aside for a quote are proven, if the order needs proof.
func (x *Exchange) CheckUnits(ctx context.Context, o market.Order, q Quoted, units []market.UnitID) error {
	if !x.picky(o) {
		return nil
	}
	if x.cfg.Proofs == nil {
		return errNoProofs
	}
	offer := q.Offer
	if q.Route == RouteStandby { // its quote came long ago, and the offer beside it is as old
		var ok bool
		if offer, ok = x.Book.Offer(q.Quote.Provider, q.Quote.Class); !ok {
			fctx, cancel := context.WithTimeout(ctx, FindTimeout)
			x.Find(fctx, q.Quote.Class, nil, 0)
			cancel()
			if offer, ok = x.Book.Offer(q.Quote.Provider, q.Quote.Class); !ok {
				return fmt.Errorf("the provider's offer, which names its records, is not to be found")
			}
		}
	}
	if as := audit.ProvenAs(offer.Class); !o.Class.Accepts(as) {
		return fmt.Errorf("class %s: cannot be proven by audit records: they prove only %s", offer.Class, as)
	}
	return x.cfg.Proofs.CheckUnits(ctx, offer, units)
}

// whenProven returns advice about an order that found too few proven units, or "" if it failed for another reason.
func (x *Exchange) whenProven(o market.Order, counts map[market.Reason]int) string {
	if counts[market.ReasonUnproven] == 0 || !x.picky(o) || x.cfg.Proofs == nil {
		return ""
	}
	text := "; units are sold once an audit has proven their class"
	if next := x.cfg.Proofs.Next(); next > 0 {
		text += fmt.Sprintf(", and the next audit is expected in %s", next.Round(time.Second))
	}
	return text + ": wait for it, or take units as they are (--unproven, or resources.unproven: true)"
}
