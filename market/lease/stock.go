package lease

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
)

// stock is the provider's units, and the record that holds each of them. Copies share everything; edit gives one a
// holder of its own.
type stock struct {
	units  []market.Unit         // never changed
	index  map[market.UnitID]int // into units and holder; never changed
	holder []*Record             // live record by unit, of a line its first lease; nil if the unit is free
	out    []bool                // units withdrawn; never changed
	shown  []bool                // units with a valid audit record; nil where none are required; never changed
}

// newStock is a stock with all units free. It panics on a unit listed twice.
func newStock(units []market.Unit) stock {
	s := stock{units: slices.Clone(units), index: make(map[market.UnitID]int, len(units)),
		holder: make([]*Record, len(units)), out: make([]bool, len(units))}
	for i, u := range s.units {
		if _, twice := s.index[u.ID]; twice {
			panic(fmt.Errorf("%w: unit %s is listed twice", market.ErrUnits, u.ID.Short()))
		}
		s.index[u.ID] = i
	}
	return s
}

// edit returns a copy for changes to the holders.
func (s stock) edit() stock {
	s.holder = slices.Clone(s.holder)
	return s
}

// assign transfers the units of a record to its heir, or frees them if heir is nil. A record that is not live releases
// only the units that its own line holds. Call it only on a copy made by edit.
func (s stock) assign(r, heir *Record) {
	for _, id := range r.Units {
		if i, ok := s.index[id]; ok && (r.State.Live() || s.holder[i] != nil && sameLineOrHold(s.holder[i], r)) {
			s.holder[i] = heir
		}
	}
}

// marked is true for the units listed. Ids of unknown units are ignored.
func (s stock) marked(ids []market.UnitID) []bool {
	out := make([]bool, len(s.units))
	for _, id := range ids {
		if i, ok := s.index[id]; ok {
			out[i] = true
		}
	}
	return out
}

// holds returns the record that holds the unit, nil if it is free or unknown.
func (s stock) holds(id market.UnitID) *Record {
	if i, ok := s.index[id]; ok {
		return s.holder[i]
	}
	return nil
}

// withdrawn reports whether a unit of the stock is withdrawn.
func (s stock) withdrawn(id market.UnitID) bool {
	i, ok := s.index[id]
	return ok && s.out[i]
}

// free reports whether unit i can be sold.
func (s stock) free(i int) bool { return s.holder[i] == nil && !s.out[i] }

// count returns the number of units of the class for which the condition holds.
func (s stock) count(class market.Class, holds func(i int) bool) int {
	n := 0
	for i := range s.units {
		if s.units[i].Class == class && holds(i) {
			n++
		}
	}
	return n
}

// total is the number of units of the class that are free or held; those withdrawn count only while they are held.
func (s stock) total(class market.Class) int {
	return s.count(class, func(i int) bool { return s.holder[i] != nil || !s.out[i] })
}

// fit lists the free units of one class that fit a lease of the order, or the reason why they do not. An order that
// accepts unproven units gets these first, since proven ones fit more orders.
func (s stock) fit(o market.Order, c market.Class) ([]market.UnitID, *market.Refusal) {
	var fit, shown []market.UnitID
	var short *market.Unit
	need, free, mute := int(o.UnitsPer), 0, 0
	for i := range s.units {
		u := &s.units[i]
		if u.Class != c || !s.free(i) {
			continue
		}
		free++
		if !u.Covers(o.Min) || u.Capability < o.MinCapability {
			short = u
			continue
		}
		switch {
		case s.shown == nil || s.shown[i]:
			shown = append(shown, u.ID)
		case o.Unproven:
			fit = append(fit, u.ID)
		default:
			mute++
		}
	}
	fit = append(fit, shown...)
	switch {
	case len(fit) >= need:
		return fit, nil
	case free < need:
		return nil, market.Refuse(market.ReasonCapacity, "%d units asked, %d of %d are free", need, free, s.total(c))
	case short == nil || len(fit)+mute >= need:
		return nil, market.Refuse(market.ReasonUnproven, "%d units asked, %d that are free have a fresh audit record",
			need, len(fit))
	case !short.Covers(o.Min):
		return nil, market.Refuse(market.ReasonResources, "a unit has %s", short.Shortfall(o.Min))
	}
	return nil, market.Refuse(market.ReasonCapability, "a unit has compute capability %s, asked %s",
		short.Capability, o.MinCapability)
}

// least returns the minimum of each resource over the units.
func (s stock) least(ids []market.UnitID) market.Resources {
	var out market.Resources
	for n, id := range ids {
		r := s.units[s.index[id]].Resources
		if n == 0 {
			out = r
			continue
		}
		out = market.Resources{MilliCPU: min(out.MilliCPU, r.MilliCPU), MemoryMiB: min(out.MemoryMiB, r.MemoryMiB),
			DiskMiB: min(out.DiskMiB, r.DiskMiB), VRAMMiB: min(out.VRAMMiB, r.VRAMMiB)}
	}
	return out
}
