package selling

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/settle"
)

// Leases that the book has forgotten are listed with their money, the newest first, and not all of many.
func TestPast(t *testing.T) {
	t.Parallel()
	accounts := map[market.LeaseID]settle.Account{}
	for i := range 2 * maxPast {
		core := market.LeaseCore{Buyer: sign.Key{1}, Start: market.Slot(i), Rank: uint32(i), Units: 2}
		accounts[core.ID()] = settle.Account{Lease: core, Owed: 9, Claimed: 7, Lost: 2}
	}
	got := past(accounts)
	if len(got) != maxPast {
		t.Fatalf("%d leases, want %d", len(got), maxPast)
	}
	for i, l := range got {
		core := market.LeaseCore{Buyer: sign.Key{1}, Start: market.Slot(2*maxPast - 1 - i), Rank: uint32(2*maxPast - 1 - i), Units: 2}
		want := api.SoldLease{
			Lease: core.ID(), Buyer: core.Buyer, State: api.LeasePast, Units: 2, Rank: core.Rank, Earned: 9, Claimed: 7, Lost: 2,
		}
		if l != want {
			t.Fatalf("lease %d: got %+v, want %+v", i, l, want)
		}
	}
	if got := past(nil); len(got) != 0 {
		t.Errorf("of no account: %v", got)
	}
}
