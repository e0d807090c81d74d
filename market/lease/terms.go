package lease

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Draft is everything a lease core follows from. The buyer fills it in; the provider compares.
type Draft struct {
	Order          market.Order
	Provider       sign.Key
	Payout         sign.Key
	Units          []market.UnitID
	Rank           uint32
	RankEpoch      uint32
	Price          market.Price
	SlotMillis     uint64
	Keys           market.KeySet
	Start          market.Slot
	ActivateBefore market.Slot
	Nonce          [16]byte
}

// Core computes the lease core: rate from price and units, cap from rate and duration, both as the provider will.
func (d Draft) Core() (market.LeaseCore, error) {
	units, err := market.SortUnits(d.Units)
	if err != nil {
		return market.LeaseCore{}, err
	}
	rate, err := market.RateOf(d.Price, len(units), d.SlotMillis)
	if err != nil {
		return market.LeaseCore{}, err
	}
	most, err := rate.Owed(d.Order.Slots)
	if err != nil {
		return market.LeaseCore{}, err
	}
	if d.Start > d.Start+market.Slot(d.Order.Slots) {
		return market.LeaseCore{}, fmt.Errorf("lease end: %w", market.ErrOverflow)
	}
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: uint16(len(units)), Rank: d.Rank, RankEpoch: d.RankEpoch,
		Order: d.Order.ID, Buyer: d.Order.Buyer, Provider: d.Provider, Payout: d.Payout,
		UnitsRoot: market.UnitsRoot(units), Terms: d.Order.JobTerms, VoucherKeys: d.Keys.Hash(), Rate: rate, Cap: most,
		Start: d.Start, ActivateBefore: d.ActivateBefore, End: d.Start + market.Slot(d.Order.Slots), Nonce: d.Nonce,
	}
	return core, core.Validate()
}

// checkTerms compares a lease with the terms agreed at reserve.
func (l Limits) checkTerms(now Now, r *Record, ev SignRequested) *market.Refusal {
	c := ev.Core
	differ := func(field string, have, want any) *market.Refusal {
		return market.Refuse(market.ReasonTerms, "lease: %s: got %v, want %v", field, have, want)
	}
	if err := c.Validate(); err != nil {
		return market.Refuse(market.ReasonTerms, "%v", err)
	}
	if err := ev.Keys.Validate(); err != nil {
		return market.Refuse(market.ReasonTerms, "%v", err)
	}
	rate, err := market.RateOf(r.Price, len(r.Units), l.SlotMillis)
	if err != nil {
		return market.Refuse(market.ReasonTerms, "%v", err)
	}
	most, err := rate.Owed(r.Slots)
	if err != nil {
		return market.Refuse(market.ReasonTerms, "%v", err)
	}
	switch {
	case c.Flags != 0:
		return differ("flags", c.Flags, 0)
	case c.Order != r.Order:
		return differ("order", c.Order.Short(), r.Order.Short())
	case c.Buyer != r.Buyer:
		return differ("buyer", c.Buyer, r.Buyer)
	case c.Provider != l.Provider:
		return differ("provider", c.Provider, l.Provider)
	case c.Payout != l.Payout:
		return differ("payout", c.Payout, l.Payout)
	case c.Rank != r.Rank:
		return differ("rank", c.Rank, r.Rank)
	case int(c.Units) != len(r.Units):
		return differ("units", c.Units, len(r.Units))
	case c.UnitsRoot != market.UnitsRoot(r.Units):
		return differ("units root", c.UnitsRoot.Short(), market.UnitsRoot(r.Units).Short())
	case c.Terms != r.JobTerms:
		return differ("terms", c.Terms.Short(), r.JobTerms.Short())
	case c.VoucherKeys != ev.Keys.Hash():
		return differ("voucher keys", c.VoucherKeys.Short(), ev.Keys.Hash().Short())
	case c.Rate != rate:
		return differ("rate", c.Rate, rate)
	case c.Slots() != r.Slots:
		return differ("slots", c.Slots(), r.Slots)
	case c.Cap != most:
		return differ("cap", c.Cap, most)
	case r.Overlay && (l.OverlayKey == nil || c.Nonce != market.OverlayNonce(r.ID, l.OverlayKey(r.ID))):
		return market.Refuse(market.ReasonTerms, "the lease's nonce does not commit to the overlay key that was named")
	case apart(c.Start, now.Slot) > l.StartWithin:
		return market.Refuse(market.ReasonTerms, "the lease starts at slot %d, it is slot %d: more than %d apart",
			c.Start, now.Slot, l.StartWithin)
	case c.ActivateBefore <= now.Slot:
		return market.Refuse(market.ReasonTerms, "lease: funding deadline: slot %d, now slot %d",
			c.ActivateBefore, now.Slot)
	case uint64(c.ActivateBefore-now.Slot) > l.ActivateWithin:
		return market.Refuse(market.ReasonTerms, "the lease leaves %d slots to fund it, at most %d allowed",
			c.ActivateBefore-now.Slot, l.ActivateWithin)
	}
	if err := c.VerifyBy(l.Domain, r.Buyer, ev.BuyerSig); err != nil {
		return market.Refuse(market.ReasonSignature, "the buyer did not sign this lease: %v", err)
	}
	return nil
}

func apart(a, b market.Slot) uint64 {
	if a > b {
		return uint64(a - b)
	}
	return uint64(b - a)
}
