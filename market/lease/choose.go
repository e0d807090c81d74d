package lease

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Quoted is the provider's terms for an order.
type Quoted struct {
	Class  market.Class // of the units, all of one
	Leases uint32       // how many leases of the order it could take now
	Price  market.Price
}

// Quote returns the provider's terms for the order, or the reason for a refusal. It reserves nothing.
func (b Book) Quote(now Now, o market.Order, backing *Backing) (Quoted, *market.Refusal) {
	if refusal := b.feasible(now, o); refusal != nil {
		return Quoted{}, refusal
	}
	class, free, refusal := b.choose(o, math.MaxUint64, "")
	if refusal != nil {
		return Quoted{}, refusal
	}
	n := b.count(o.Buyer, o.ID)
	room := min(b.limits.MaxHolds-n.unfunded, b.limits.MaxHoldsPerBuyer-n.ofBuyer, int(o.Count)-n.ofOrder)
	if most := b.limits.MaxLeasesPerBuyer; most > 0 {
		if n.live >= most {
			return Quoted{}, b.enough(n)
		}
		room = min(room, most-n.live)
	}
	if room < 1 {
		return Quoted{}, market.Refuse(market.ReasonLimit, "too many holds are open already")
	}
	backed, refusal := b.backed(o, class, b.limits.Asks[class], backing)
	if refusal != nil {
		return Quoted{}, refusal
	}
	room = min(room, backed)
	return Quoted{Class: class, Leases: uint32(min(len(free)/int(o.UnitsPer), room)), Price: b.limits.Asks[class]}, nil
}

// enough refuses a buyer that has all the leases one buyer may have.
func (b Book) enough(n counts) *market.Refusal {
	return market.Refuse(market.ReasonLimit, "this buyer has %d leases and holds here, at most %d allowed",
		n.live, b.limits.MaxLeasesPerBuyer)
}

// choose finds the class that does the order and lists its free units that fit, at least as many as one lease takes:
// the class named, or the cheapest that fits the order at up to price.
func (b Book) choose(
	o market.Order, price market.Price, named market.Class,
) (market.Class, []market.UnitID, *market.Refusal) {
	classes := b.sold(o.Class)
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
		units, refusal := b.fit(o, c, price)
		if refusal == nil {
			return c, units, nil
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

// near says how close to a sale the reasons of fit are; of several classes the closest gives the answer.
var near = map[market.Reason]int{market.ReasonPrice: 1, market.ReasonResources: 2, market.ReasonCapability: 2,
	market.ReasonUnproven: 3, market.ReasonCapacity: 3}

// sold lists the classes that an order of class c takes, cheapest first.
func (b Book) sold(c market.Class) []market.Class {
	var out []market.Class
	for class := range b.limits.Asks {
		if c.Accepts(class) {
			out = append(out, class)
		}
	}
	slices.SortFunc(out, func(x, y market.Class) int {
		return cmp.Or(cmp.Compare(b.limits.Asks[x], b.limits.Asks[y]), cmp.Compare(x, y))
	})
	return out
}

// fit lists the free units of one class that can do a lease of the order at up to price, or says why they cannot. An
// order that takes unproven units gets those first: the others are wanted by more.
func (b Book) fit(o market.Order, c market.Class, price market.Price) ([]market.UnitID, *market.Refusal) {
	if ask := b.limits.Asks[c]; ask > price {
		return nil, market.Refuse(market.ReasonPrice, "price %s is under the %s asked here",
			b.money(price), b.money(ask))
	}
	var fit, shown []market.UnitID
	var short *market.Unit
	need, free, mute := int(o.UnitsPer), 0, 0
	for i := range b.units {
		u := &b.units[i]
		if u.Class != c || !b.free(i) {
			continue
		}
		free++
		if !u.Covers(o.Min) || u.Capability < o.MinCapability {
			short = u
			continue
		}
		switch {
		case b.shown == nil || b.shown[i]:
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
		return nil, market.Refuse(market.ReasonCapacity, "%d units asked, %d of %d are free", need, free, b.Total(c))
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
func (b Book) least(ids []market.UnitID) market.Resources {
	var out market.Resources
	for n, id := range ids {
		r := b.units[b.index[id]].Resources
		if n == 0 {
			out = r
			continue
		}
		out = market.Resources{MilliCPU: min(out.MilliCPU, r.MilliCPU), MemoryMiB: min(out.MemoryMiB, r.MemoryMiB),
			DiskMiB: min(out.DiskMiB, r.DiskMiB), VRAMMiB: min(out.VRAMMiB, r.VRAMMiB)}
	}
	return out
}

// counts says how much of the book is taken up.
type counts struct {
	unfunded int // holds that nobody has paid for
	ofBuyer  int // of them, the buyer's
	ofOrder  int // live ones of the order
	live     int // live ones of the buyer
	members  int // live ones with an overlay key
}

func (b Book) count(buyer sign.Key, order market.OrderID) counts {
	var n counts
	for _, r := range b.records {
		if b.waits(r) {
			continue // it takes nothing that the lease before it does not have
		}
		if r.State.Live() {
			if r.Order == order {
				n.ofOrder++
			}
			if r.Buyer == buyer {
				n.live++
			}
			if r.Overlay {
				n.members++
			}
		}
		if r.State == Held || r.State == Signed {
			n.unfunded++
			if r.Buyer == buyer {
				n.ofBuyer++
			}
		}
	}
	return n
}
