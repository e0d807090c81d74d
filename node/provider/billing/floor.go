package billing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/slots"
)

// floorTable has the highest slot in which anything was metered, under one key.
var floorTable = journal.Define[string, metered]("metered")

const floorKey = "slot"

// metered is the journal's record of a floor.
type metered struct {
	Slot market.Slot `json:"slot"`
	At   time.Time   `json:"at"` // when it was written
}

// floor keeps slots from being billed twice after this peer's view of the slot went back. Two receipts for one slot of
// a unit would prove a double sale.
type floor struct {
	mu    sync.Mutex
	floor market.Slot                   // nothing new is billed from an earlier slot
	ends  market.Slot                   // end of the paid time of all units
	until map[market.UnitID]market.Slot // and of each: a lease pays for the whole slot in which its work ends
}

// loadFloor reads the record, and bounds the first slot that the clock believes by it. clock may be nil.
func loadFloor(ctx context.Context, s journal.Store, clock *slots.Clock) (*floor, error) {
	f := &floor{until: map[market.UnitID]market.Slot{}}
	err := floorTable.List(ctx, s, floorKey, func(_ string, m metered) error {
		f.floor = m.Slot
		if clock != nil {
			clock.Reached(m.Slot, m.At)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the last metered slot: %w", err)
	}
	return f, nil
}

// meter records the highest slot with metering here, which is at most slots.Margin past the newest final one, and until
// when the units of a lease with ended work were sold; until is 0 while it has not ended.
func (f *floor) meter(b *journal.Batch, slot, until market.Slot, units []market.UnitID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.floor, f.ends = max(f.floor, slot), max(f.ends, until)
	for _, u := range units {
		f.until[u] = max(f.until[u], until)
	}
	floorTable.Put(b, floorKey, metered{Slot: max(f.floor, f.ends), At: time.Now()})
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
