package metering

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// The terms that both ends of a lease derive are valid for short and long intervals.
func TestTerms(t *testing.T) {
	t.Parallel()
	buyer, provider := sign.NewPrivate([32]byte{1}).Key(), sign.NewPrivate([32]byte{2}).Key()
	keys, err := market.NewKeySet(1, buyer)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []market.Genesis{
		{Network: "a", Symbol: "STAR", SlotMillis: 400, IntervalSlots: 25, Simulated: true},
		{Network: "b", Symbol: "STAR", SlotMillis: 100, IntervalSlots: 10, Simulated: true},
		{Network: "c", Symbol: "STAR", SlotMillis: 60_000, IntervalSlots: 1, Simulated: true},
	} {
		core := market.LeaseCore{
			Version: market.LeaseVersion, Units: 2, Order: market.OrderID{1}, Buyer: buyer, Provider: provider, Payout: provider,
			VoucherKeys: keys.Hash(), Rate: 1_000_000, Cap: 1000, Start: 10, ActivateBefore: 20, End: 1010,
		}
		terms := Terms(g, core, keys, sign.Key{}, market.Resources{MilliCPU: 500}, 0)
		if err := terms.Validate(); err != nil {
			t.Errorf("%s: %v", g.Network, err)
		}
		if terms.MilliCPU != 1000 || terms.GraceSlots <= terms.IntervalSlots || terms.ReceiptSlots < terms.GraceSlots {
			t.Errorf("%s: %+v", g.Network, terms)
		}
	}
}
