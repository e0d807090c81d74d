package billing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/slots"
)

// floor keeps slots from being billed twice after this peer's view of the slot went back. Two receipts for one slot of
// a unit would prove a double sale.
type floor struct {
	mu    sync.Mutex
	floor market.Slot                   // nothing new is billed from an earlier slot
	ends  market.Slot                   // end of the paid time of all units
	until map[market.UnitID]market.Slot // and of each: a lease pays for the whole slot in which its work ends
}

// loadFloor reads the highest floor in the journal, and bounds the first slot that the clock believes by it. Each
// seller has its own, because their writes have no order. clock is optional; if nil, nothing is bounded.
func loadFloor(ctx context.Context, s journal.Store, clock *slots.Clock) (*floor, error) {
	f := &floor{until: map[market.UnitID]market.Slot{}}
	var at time.Time // of the newest record
	err := metering.Sellers.List(ctx, s, "", func(_ market.LeaseID, rec metering.SellerRecord) error {
		f.floor = max(f.floor, rec.Floor)
		if rec.At.After(at) {
			at = rec.At
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the last metered slot: %w", err)
	}
	if clock != nil && !at.IsZero() {
		clock.Reached(f.floor, at)
	}
	return f, nil
}

// meter notes the highest slot with metering here, which is at most slots.Margin past the newest final one, and until
// when the units of a lease with ended work were sold; until is 0 while it has not ended. It returns the floor for the
// journal.
func (f *floor) meter(slot, until market.Slot, units []market.UnitID) market.Slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.floor, f.ends = max(f.floor, slot), max(f.ends, until)
	for _, u := range units {
		f.until[u] = max(f.until[u], until)
	}
	return max(f.floor, f.ends)
}

// free returns slot, or the first one after it in which these units are not sold already: by a lease with work that
// ended in slot, or before a restart.
func (f *floor) free(slot market.Slot, units []market.UnitID) market.Slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot = max(slot, f.floor)
	for _, u := range units {
		slot = max(slot, f.until[u])
	}
	return slot
}
