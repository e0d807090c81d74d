package lease

import (
	"fmt"
	"math"
	"slices"

	"github.com/starling-network/starling/market"
)

// Quoted is the provider's terms for an order.
type Quoted struct {
	Class  market.Class // of the units, all of one
	Leases uint32       // how many leases of the order it could take now
	Price  market.Price
}

// Quote returns the provider's terms for the order, or the reason for a refusal. It reserves nothing.
func (b Book) Quote(now Now, o market.Order, backing *Backing) (Quoted, *market.Refusal) {
	if refusal := b.limits.feasible(now, o); refusal != nil {
		return Quoted{}, refusal
	}
	class, free, refusal := b.choose(o, math.MaxUint64, "")
	if refusal != nil {
		return Quoted{}, refusal
	}
	n := b.records.count(o.Buyer, o.ID)
	room := min(b.limits.MaxHolds-n.unfunded, b.limits.MaxHoldsPerBuyer-n.ofBuyer, int(o.Count)-n.ofOrder)
	if most := b.limits.MaxLeasesPerBuyer; most > 0 {
		if n.live >= most {
			return Quoted{}, b.limits.enough(n)
		}
		room = min(room, most-n.live)
	}
	if room < 1 {
		return Quoted{}, market.Refuse(market.ReasonLimit, "too many open holds")
	}
	backed, refusal := b.backed(o, class, b.limits.Asks[class], backing)
	if refusal != nil {
		return Quoted{}, refusal
	}
	room = min(room, backed)
	return Quoted{Class: class, Leases: uint32(min(len(free)/int(o.UnitsPer), room)), Price: b.limits.Asks[class]}, nil
}

// choose returns the class for the order, and its fitting free units, at least as many as one lease takes. The class is
// the named one, or the cheapest that fits the order at up to price.
func (b Book) choose(
	o market.Order, price market.Price, named market.Class,
) (market.Class, []market.UnitID, *market.Refusal) {
	classes := b.limits.sold(o.Class)
	if named != "" {
		if !o.Class.Accepts(named) {
			return "", nil, market.Refuse(market.ReasonClass, "the order is for class %s, not %s", o.Class, named)
		}
		classes = slices.DeleteFunc(classes, func(c market.Class) bool { return c != named })
		if len(classes) == 0 {
			return "", nil, market.Refuse(market.ReasonClass, "class %s is not sold here", named)
		}
	}
	var best *market.Refusal
	for _, c := range classes {
		refusal := b.limits.checkPrice(c, price)
		if refusal == nil {
			var units []market.UnitID
			if units, refusal = b.stock.fit(o, c); refusal == nil {
				return c, units, nil
			}
		}
		if len(classes) > 1 {
			refusal.Detail = fmt.Sprintf("%s: %s", c, refusal.Detail)
		}
		if best == nil || near[refusal.Reason] > near[best.Reason] {
			best = refusal
		}
	}
	return "", nil, best
}

// near ranks the reasons of fit by their distance to a sale. Of several classes the closest one gives the answer.
var near = map[market.Reason]int{market.ReasonPrice: 1, market.ReasonResources: 2, market.ReasonCapability: 2,
	market.ReasonUnproven: 3, market.ReasonCapacity: 3}
