package billing

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/metering"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/stream"
)

// journalFloor journals the seller of a lease with a floor.
func journalFloor(t *testing.T, disk journal.Store, l market.LeaseID, floor market.Slot) {
	t.Helper()
	var b journal.Batch
	metering.Sellers.Put(&b, l, metering.SellerRecord{Floor: floor, At: time.Now(), Meter: []byte("{}")})
	if err := b.Commit(t.Context(), disk); err != nil {
		t.Fatal(err)
	}
}

// No slot is billed twice, though the view of the current one went back with a restart.
func TestMetered(t *testing.T) {
	t.Parallel()
	units := []market.UnitID{{1}, {2}, {3}}
	disk := store.NewMemory()
	load := func() *floor {
		t.Helper()
		f, err := loadFloor(t.Context(), disk, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	meter := func(f *floor, l market.LeaseID, slot, until market.Slot, units []market.UnitID) {
		t.Helper()
		journalFloor(t, disk, l, f.meter(slot, until, units))
	}
	f := load()
	if f.free(units) != 0 {
		t.Error("units that were never sold are not free")
	}
	for _, slot := range []market.Slot{10, 30, 20} {
		meter(f, market.LeaseID{byte(slot)}, slot, 0, units[:1])
	}
	if a, b := f.free(units), f.free(units[1:]); a != 30 || b != 0 {
		t.Errorf("a unit metered until slot 30 is free from slot %d, another from %d", a, b)
	}
	next := load()
	if got := next.free(units[1:]); got != 30 {
		t.Errorf("after a restart the other one is free from slot %d", got)
	}
	// The slot in which work ended is sold to its end, of these units.
	meter(next, market.LeaseID{10}, 40, 41, units[:2])
	meter(next, market.LeaseID{10}, 44, 41, units[:2]) // its last receipt is co-signed
	if a, b := next.free(units), next.free(units[2:]); a != 41 || b != 30 {
		t.Errorf("after a lease until slot 41 its units are free from slot %d and another from %d", a, b)
	}
	if got := load().free(units[:1]); got != 44 {
		t.Errorf("after a restart they are free from slot %d", got)
	}
	broken := store.Put{Kind: metering.Sellers.Kind(), Key: market.LeaseID{1}.String(), Value: []byte{1}}
	if err := disk.Write(t.Context(), broken); err != nil {
		t.Fatal(err)
	}
	if _, err := loadFloor(t.Context(), disk, nil); err == nil {
		t.Error("a record of one byte was read")
	}
}

// Right after a restart a lease that is still active is not refused: it is asked for again.
func TestTaken(t *testing.T) {
	t.Parallel()
	p := &Meters{all: map[market.LeaseID]*Meter{}}
	var no *stream.Refused
	if err := p.Taken(lease.Record{State: lease.Active}); !errors.As(err, &no) || no.Code != stream.CodeBusy {
		t.Errorf("an active lease: %v", err)
	}
	if err := p.Taken(lease.Record{State: lease.Ended, EndReason: "its end"}); !errors.As(err, &no) || no.Code != "lease" || !strings.Contains(no.Reason, "its end") {
		t.Errorf("an ended lease: %v", err)
	}
	p.all[market.LeaseID{1}] = &Meter{}
	if err := p.Taken(lease.Record{State: lease.Active, Lease: market.LeaseID{1}}); err != nil {
		t.Error(err)
	}
}
