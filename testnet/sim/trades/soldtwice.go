package trades

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/testnet/sim/play"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// sale is a co-signed receipt of a lease of a provider's units.
func sale(lease byte, buyer string, units []market.UnitID, from, to market.Slot) (verify.Receipt, error) {
	by, provider := audittest.Key(buyer), audittest.Key("provider")
	r := verify.Receipt{ReceiptCore: verify.ReceiptCore{
		Version: verify.ReceiptVersion, Units: uint16(len(units)), RankEpoch: 1, Lease: market.LeaseID{lease}, Seq: 1,
		Provider: provider.Key(), Buyer: by.Key(), UnitsRoot: market.UnitsRoot(units), From: from, To: to, Amount: 5,
		Cumulative: 5,
	}}
	var err error
	if r.ProviderSig, err = r.Sign(audittest.Domain(), provider); err == nil {
		r.BuyerSig, err = r.Sign(audittest.Domain(), by)
	}
	return r, err
}

// sellsTwice sells units to two buyers, with common units and slots.
func sellsTwice(w *play.World) (play.Trial, error) {
	units := make([]market.UnitID, 8)
	for i := range units {
		units[i] = play.Random[market.UnitID](w)
	}
	k, n := w.R.IntN(8), 1+w.R.IntN(100)
	a, err := sale(1, "buyer a", units[:k+1], 1000, 1100)
	if err != nil {
		return play.Trial{}, err
	}
	b, err := sale(2, "buyer b", units[k:], market.Slot(1100-n), market.Slot(1200-n))
	if err != nil {
		return play.Trial{}, err
	}
	c, err := verify.NewConflict(audittest.Domain(), a, b, units[:k+1], units[k:])
	if err == nil {
		if c, err = verify.UnmarshalConflict(c.Marshal()); err == nil {
			err = verify.CheckConflict(audittest.Domain(), c)
		}
	}
	return play.Trial{Checks: 1, First: err == nil, Caught: err == nil}, nil
}

// A unit sold to two buyers at the same time, with receipts for both. A peer that sees both has a proof.
var soldTwiceKinds = []play.Kind{{Name: "sold-twice", Threat: 14, What: "one unit is sold to two buyers, both co-sign",
	Try: sellsTwice}}

// SellsAgain is an honest provider that was restored from a backup and lost the record of a sale: it sells the units
// again, but never a slot before its return. CheckConflict must not treat that as a lie.
func SellsAgain(w *play.World) (proven bool, err error) {
	units := []market.UnitID{play.Random[market.UnitID](w)}
	back := market.Slot(1000 + w.R.IntN(100)) // its last receipt of the lost lease ends at the crash
	a, err := sale(1, "buyer a", units, 1000-market.Slot(w.R.IntN(100)), back)
	if err != nil {
		return false, err
	}
	b, err := sale(2, "buyer b", units, back+market.Slot(w.R.IntN(3)), back+100)
	if err != nil {
		return false, err
	}
	if _, err := verify.NewConflict(audittest.Domain(), a, b, units, units); err == nil {
		return true, nil
	}
	// A second form that it signs of the lost lease is still one lease.
	again, err := sale(1, "buyer a", units, a.From, back+market.Slot(1+w.R.IntN(50)))
	if err != nil {
		return false, err
	}
	_, err = verify.NewConflict(audittest.Domain(), a, again, units, units)
	return err == nil, nil
}
