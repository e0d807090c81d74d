package provider

import (
	"testing"

	"github.com/starling-network/starling/market"
)

// A lease with any unit that is no hardware gets a refusal, and not a processor in its place.
func TestSimulatedUnitsAreNotProbed(t *testing.T) {
	t.Parallel()
	p := &Provider{cfg: Config{Lots: []Lot{
		{Class: "gpu/h100", Simulated: true, Units: []market.Unit{{ID: market.UnitID{1}}, {ID: market.UnitID{2}}}},
		{Class: "cpu", Units: []market.Unit{{ID: market.UnitID{3}}}},
	}}}
	for want, units := range map[bool][]market.UnitID{true: {{9}, {2}}, false: {{3}, {4}}} {
		if got := (room{p}).Simulated(units); got != want {
			t.Errorf("%v: %t", units, got)
		}
	}
}
