package policy

import (
	"fmt"
	"slices"

	"github.com/starling-network/starling/market"
)

// Lot is the inventory of one class.
type Lot struct {
	Class   market.Class
	Units   []market.Unit // each of Class and with PerUnit
	PerUnit market.Resources
	Price   market.Price // as configured; the operator may change it at run time
	Floor   market.Price // the lowest price
	// MaxSlots is the longest lease of its units; 0 means that of the provider.
	MaxSlots uint64

	Model      string // of its units, "" when they differ
	Capability market.Capability
	Simulated  bool
}

// Hardware names the lot's model for a person: "NVIDIA H200 (simulated)", or "a unit".
func (l Lot) Hardware() string {
	return market.Offer{Model: l.Model, Simulated: l.Simulated}.Hardware()
}

// Units returns all units of the lots, or an error about lots that cannot be sold on a network.
func Units(lots []Lot, g market.Genesis) ([]market.Unit, error) {
	if len(lots) == 0 || len(lots) > market.MaxOffers {
		return nil, fmt.Errorf("%d classes of units, a provider sells 1 to %d", len(lots), market.MaxOffers)
	}
	var units []market.Unit
	for i, l := range lots {
		switch {
		case len(l.Units) == 0:
			return nil, fmt.Errorf("class %s has no units", l.Class)
		case slices.ContainsFunc(lots[:i], func(other Lot) bool { return other.Class == l.Class }):
			return nil, fmt.Errorf("class %s is listed twice", l.Class)
		case g.CheckPrice(l.Price) != nil:
			return nil, fmt.Errorf("class %s: %w", l.Class, g.CheckPrice(l.Price))
		case l.Price < l.Floor:
			return nil, fmt.Errorf("class %s: price %s is under the floor %s", l.Class,
				g.FormatAmount(market.Amount(l.Price)), g.FormatAmount(market.Amount(l.Floor)))
		case l.Simulated && !g.Simulated:
			return nil, fmt.Errorf("class %s: %w: %s cannot be sold on %s",
				l.Class, market.ErrSimulated, l.Hardware(), g.Tag())
		}
		for _, u := range l.Units {
			same := u.Class == l.Class && u.Resources == l.PerUnit && u.Simulated == l.Simulated
			if !same || u.Capability < l.Capability {
				return nil, fmt.Errorf("class %s: unit %s is not like the others", l.Class, u.ID.Short())
			}
		}
		units = append(units, l.Units...)
	}
	return units, nil
}

// Of returns the lot of a class; without one, a lot with only the class.
func Of(lots []Lot, c market.Class) Lot {
	for _, l := range lots {
		if l.Class == c {
			return l
		}
	}
	return Lot{Class: c}
}

// Classes returns the classes of lots.
func Classes(lots []Lot) []market.Class {
	var out []market.Class
	for _, l := range lots {
		out = append(out, l.Class)
	}
	return out
}
