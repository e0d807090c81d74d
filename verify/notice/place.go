package notice

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// PlaceSize is the size of a place's layout, in bytes.
const PlaceSize = sign.KeySize + sign.HashSize + 4 + 1

const hoursPerDay = 24

// Place is the key of a notice:
//
//	offset  size  field
//	     0    32  provider
//	    32    32  unit id
//	    64     4  day: slot / (24 · slots of an hour)
//	    68     1  hour of it, below 24
type Place struct {
	Provider sign.Key      `json:"provider"`
	Unit     market.UnitID `json:"unit"`
	Day      uint32        `json:"day"`
	Hour     uint8         `json:"hour"`
}

// Marshal returns the layout.
func (p Place) Marshal() []byte {
	b := append(make([]byte, 0, PlaceSize), p.Provider[:]...)
	b = append(b, p.Unit[:]...)
	return append(binary.LittleEndian.AppendUint32(b, p.Day), p.Hour)
}

// UnmarshalPlace decodes the layout without trailing bytes.
func UnmarshalPlace(b []byte) (Place, error) {
	if len(b) != PlaceSize || b[68] >= hoursPerDay {
		return Place{}, malformed("place", "%d bytes", len(b))
	}
	return Place{Provider: sign.Key(b[:32]), Unit: market.UnitID(b[32:64]), Day: binary.LittleEndian.Uint32(b[64:]),
		Hour: b[68]}, nil
}

// Calendar counts the hours of a network by its slots, which have a constant nominal length. It reads no clock.
type Calendar struct {
	hour uint64 // slots, at least 1
}

// CalendarOf is the calendar of a network.
func CalendarOf(g market.Genesis) Calendar {
	return Calendar{hour: max(1, 3_600_000/max(1, g.SlotMillis))}
}

// HourSlots is the length of an hour, in slots.
func (c Calendar) HourSlots() uint64 { return c.hour }

// At is the place of a unit in the hour of a slot. ErrMalformed for slots beyond the last day that can be counted.
func (c Calendar) At(provider sign.Key, unit market.UnitID, s market.Slot) (Place, error) {
	n := uint64(s) / c.hour
	if n/hoursPerDay > math.MaxUint32 {
		return Place{}, malformed("place", "slot %d", s)
	}
	return Place{Provider: provider, Unit: unit, Day: uint32(n / hoursPerDay), Hour: uint8(n % hoursPerDay)}, nil
}

// Slots is the hour of a place; to is the first slot after it.
func (c Calendar) Slots(p Place) (from, to market.Slot) {
	n := uint64(p.Day)*hoursPerDay + uint64(p.Hour)
	return market.Slot(n * c.hour), market.Slot((n + 1) * c.hour)
}

func malformed(what, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", market.ErrMalformed, what, fmt.Sprintf(format, args...))
}
