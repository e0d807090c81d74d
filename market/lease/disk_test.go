package lease_test

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

// diskBook is the book of a provider with n units of disk, leased for longer, beside one processor.
func diskBook(t testing.TB, n int) lease.Book {
	t.Helper()
	l := providerLimits(n + 1)
	l.Asks[market.Disk], l.Runtimes = 3, append(l.Runtimes, market.Volume)
	l.Longest = map[market.Class]uint64{market.Disk: 50_000}
	units := testUnits(t, 1)
	for i := range n {
		u, err := market.NewUnit(provider.Key(), market.Disk, "", "machine", uint32(i),
			market.Resources{DiskMiB: market.DiskUnitMiB})
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, u)
	}
	return lease.NewBook(units, l)
}

func diskOrder(buyer sign.Private, n byte, units uint32, slots uint64) market.Order {
	o := testOrder(buyer, n, 1, units)
	o.Class, o.Runtime, o.Slots = market.Disk, market.Volume, slots
	return o
}

// Disk is sold to volumes alone, and volumes get nothing else; its leases have their own longest time.
func TestDiskForVolumes(t *testing.T) {
	t.Parallel()
	book := diskBook(t, 4)
	rapid.Check(t, func(t *rapid.T) {
		o := diskOrder(buyers[0], 1, 1, rapid.Uint64Range(1, 60_000).Draw(t, "slots"))
		o.Class = rapid.SampledFrom([]market.Class{market.Disk, "cpu"}).Draw(t, "class")
		o.Runtime = rapid.SampledFrom([]string{market.Volume, "wasm"}).Draw(t, "runtime")
		most := map[market.Class]uint64{market.Disk: 50_000, "cpu": 1000}[o.Class]
		fits := (o.Class == market.Disk) == (o.Runtime == market.Volume) && o.Slots >= 10 && o.Slots <= most
		can, no := book.Quote(at(0), o, nil)
		if fits != (no == nil) || fits && can.Class != o.Class {
			t.Fatalf("an order of %s for %s in %d slots: %v, %v", o.Class, o.Runtime, o.Slots, can, no)
		}
		_, effects, err := book.Step(at(0), lease.ReserveRequested{Hold: market.HoldID{1}, Order: o, Price: 45})
		if held, ok := find[lease.AnswerHeld](effects); err != nil || ok != fits || ok && len(held.Units) != 1 {
			t.Fatalf("a hold of %s for %s in %d slots: %v, %v", o.Class, o.Runtime, o.Slots, effects, err)
		}
	})
}

// A thousand keys make as many volumes as there are units, and take nothing but disk.
func TestAttackManyDiskKeys(t *testing.T) {
	t.Parallel()
	const units = 8
	book, held := diskBook(t, units), 0
	for i := range 1000 {
		var seed [32]byte
		binary.LittleEndian.PutUint32(seed[:], uint32(i+100))
		o := diskOrder(sign.NewPrivate(seed), byte(i), 1, 1000)
		o.ID = market.OrderID(seed)
		next, effects, err := book.Step(at(0), lease.ReserveRequested{Hold: market.HoldID(seed[:16]), Order: o, Price: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := find[lease.AnswerHeld](effects); ok {
			held++
		}
		book = next
	}
	if held != units || book.Free(market.Disk) != 0 || book.Free("cpu") != 1 {
		t.Errorf("%d holds on %d units; free: %d of disk, %d of cpu", held, units, book.Free(market.Disk), book.Free("cpu"))
	}
}

// Limits that no lease of a class could meet are refused.
func TestLongestLimits(t *testing.T) {
	t.Parallel()
	l := testLimits()
	for _, most := range []uint64{0, 9, market.MaxLeaseSlots + 1} {
		l.Longest = map[market.Class]uint64{market.Disk: most}
		if err := l.Validate(); err == nil {
			t.Errorf("leases of %d slots at most", most)
		}
	}
}
