package gpu

import (
	"math"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/exclusive"
)

// Reported returns a unit's device in a snapshot: its current state as reported by its driver, within the layout's
// limits.
func Reported(unit market.UnitID, uuid, model string, h Health) exclusive.Device {
	d := exclusive.Device{
		Unit: unit, UUID: Plain(uuid), Model: Plain(model), Throttle: Plain(strings.Join(h.Throttle, ", ")),
	}
	if h.TemperatureC != nil {
		d.Tells |= exclusive.TellsTemperature
		d.TemperatureC = uint16(min(*h.TemperatureC, math.MaxUint16))
	}
	if h.ClockMHz != nil {
		d.Tells |= exclusive.TellsClock
		d.ClockMHz = *h.ClockMHz
	}
	if h.ECC != nil {
		d.Tells |= exclusive.TellsECC
		d.Correctable, d.Uncorrectable = h.ECC.Correctable, h.ECC.Uncorrectable
	}
	if h.Xid != nil {
		d.Tells |= exclusive.TellsXid
		d.Xids = h.Xid.Count
		d.LastXid = uint32(min(h.Xid.Last, math.MaxUint32))
		d.FaultXid = uint32(min(h.Xid.Fault, math.MaxUint32))
	}
	return d
}

// Plain is text as a snapshot can hold it.
func Plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.ToValidUTF8(s[:min(len(s), exclusive.MaxText)], "")
}
