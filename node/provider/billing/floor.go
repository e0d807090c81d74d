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
	mu       sync.Mutex
	restored market.Slot                   // floor of an earlier process: no earlier slot is billed
	floor    market.Slot                   // the highest slot with metering, or end of paid time
	until    map[market.UnitID]market.Slot // the same of each unit; work is paid for to the end of its last slot
}

// loadFloor reads the highest floor in the journal, and bounds the clock's first slot by it. Each seller has its own
// floor, since their writes are not ordered. clock is optional; if nil, no slot is bounded.
func loadFloor(ctx context.Context, s journal.Store, clock *slots.Clock) (*floor, error) {
	f := &floor{until: map[market.UnitID]market.Slot{}}
	var at time.Time // of the newest record
	err := metering.Sellers.List(ctx, s, "", func(_ market.LeaseID, rec metering.SellerRecord) error {
		f.restored = max(f.restored, rec.Floor)
		if rec.At.After(at) {
			at = rec.At
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the last metered slot: %w", err)
	}
	if clock != nil && !at.IsZero() {
		clock.Reached(f.restored, at)
	}
	f.floor = f.restored
	return f, nil
}

// meter notes a slot in which a lease of these units was metered, which is at most slots.Margin past the newest final
// one, and until when they were sold once its work ended; until is 0 before. It returns the floor for the journal.
func (f *floor) meter(slot, until market.Slot, units []market.UnitID) market.Slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.floor = max(f.floor, slot, until)
	if until == 0 {
		until = slot
	}
	for _, u := range units {
		f.until[u] = max(f.until[u], until)
	}
	return f.floor
}

// free returns the first slot in which these units are not sold already: by a lease of this process, or of one before.
func (f *floor) free(units []market.UnitID) market.Slot {
	f.mu.Lock()
	defer f.mu.Unlock()
	slot := f.restored
	for _, u := range units {
		slot = max(slot, f.until[u])
	}
	return slot
}
