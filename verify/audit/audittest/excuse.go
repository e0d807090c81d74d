package audittest

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/tranche"
)

// Worked is a lease of units to a buyer from one slot to another at one base unit a slot, with one receipt over all of it.
func Worked(provider, buyer sign.Private, units []market.UnitID, unit market.UnitID, from, to market.Slot) (audit.Worked, error) {
	set, err := market.NewKeySet(1, buyer.Key())
	if err != nil {
		return audit.Worked{}, err
	}
	core := market.LeaseCore{
		Version: market.LeaseVersion, Units: uint16(len(units)), Order: market.OrderID{1}, Buyer: buyer.Key(), Provider: provider.Key(), Payout: sign.Key{7},
		UnitsRoot: market.UnitsRoot(units), VoucherKeys: set.Hash(), Rate: market.RateScale, Cap: market.Amount(to - from),
		Start: from, ActivateBefore: from, End: to,
	}
	w := audit.Worked{Lease: market.Lease{Core: core}}
	if w.In, err = market.ProveUnit(units, unit); err != nil {
		return w, err
	}
	r, err := verify.NewChain(core).Next(from, to, func(*verify.ReceiptCore) {})
	if err != nil {
		return w, err
	}
	w.Receipt.ReceiptCore = r
	for _, s := range []struct {
		to   *sign.Signature
		by   sign.Private
		sign func(sign.Domain, sign.Signer) (sign.Signature, error)
	}{
		{&w.Lease.ProviderSig, provider, core.Sign}, {&w.Lease.BuyerSig, buyer, core.Sign},
		{&w.Receipt.ProviderSig, provider, r.Sign}, {&w.Receipt.BuyerSig, buyer, r.Sign},
	} {
		if *s.to, err = s.sign(Domain(), s.by); err != nil {
			return w, err
		}
	}
	t, err := tranche.Build([]tranche.Leaf{tranche.LeafOf(core, 0)})
	if err != nil {
		return w, err
	}
	w.Funded = audit.Funded{Opened: uint64(from), Buyer: buyer.Key(), Order: core.Order}
	w.Funded.Proof, err = t.Prove(0)
	return w, err
}

// Later is the same lease with a receipt for slots from to to, which brings it to an amount.
func Later(w audit.Worked, provider, buyer sign.Private, from, to market.Slot, amount market.Amount) (audit.Worked, error) {
	r := w.Receipt.ReceiptCore
	r.Seq, r.From, r.To, r.Cumulative = r.Seq+uint64(from), from, to, amount
	w.Receipt.ReceiptCore = r
	var err error
	if w.Receipt.ProviderSig, err = r.Sign(Domain(), provider); err == nil {
		w.Receipt.BuyerSig, err = r.Sign(Domain(), buyer)
	}
	return w, err
}
