package protocol

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TestIDs: every stream carries the network in its id, and no two are the same.
func TestIDs(t *testing.T) {
	t.Parallel()
	const network = "test-12345678"
	seen := map[string]bool{}
	for _, id := range []string{
		string(Ask.ID(network)), string(Quote.ID(network)), string(Lease.ID(network)), string(Exec.ID(network)), string(Watch.ID(network)), string(Meter.ID(network)), string(Live.ID(network)), string(Rsh.ID(network)),
		string(Guard.ID(network)), string(Audit.ID(network)), string(Proof.ID(network)), string(Rewards.ID(network)), string(Anchored.ID(network)), string(Measure.ID(network)), string(Link.ID(network)), string(Coord.ID(network)),
	} {
		if seen[id] || !strings.HasPrefix(id, "/starling/") || !strings.HasSuffix(id, "/"+network) {
			t.Errorf("stream id %s", id)
		}
		seen[id] = true
	}
}

// TestMeterTerms: what both ends derive is valid for short and long intervals.
func TestMeterTerms(t *testing.T) {
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
		terms := MeterTerms(g, core, keys, sign.Key{}, market.Resources{MilliCPU: 500}, 0)
		if err := terms.Validate(); err != nil {
			t.Errorf("%s: %v", g.Network, err)
		}
		if terms.MilliCPU != 1000 || terms.GraceSlots <= terms.IntervalSlots {
			t.Errorf("%s: %+v", g.Network, terms)
		}
	}
}
