package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Limits is the provider's inventory, and the part of it that others may hold.
type Limits struct {
	Provider   sign.Key
	Payout     sign.Key
	Domain     sign.Domain
	SlotMillis uint64
	Decimals   uint8 // how prices are written in refusals

	Asks     map[market.Class]market.Price // lowest price by class; a class not listed is not sold
	Region   market.Region
	Runtimes []string
	MinSlots uint64
	MaxSlots uint64
	Longest  map[market.Class]uint64 // MaxSlots of a class, where it is another
	Stake    market.Amount           // the provider's stake

	HoldTTL          time.Duration // how long units are set aside before the lease is signed
	SignTTL          time.Duration // and how much longer until a signed lease is activated
	MaxHolds         int           // concurrent unfunded holds
	MaxHoldsPerBuyer int           // of them, for one buyer

	MaxLeasesPerBuyer int // concurrent holds and leases of one buyer; 0 means no limit
	MaxMembers        int // concurrent holds and leases with an overlay key; 0 means no limit

	StartWithin    uint64 // slots that a lease's nominal start may lie before or after now
	ActivateWithin uint64 // slots that a lease's activate-before may lie after now
	MarginSlots    uint64 // slots after activate-before in which funding that landed in time may still be seen

	// OverlayKey is the provider's public key in the cluster of a hold, always the same; nil: it joins none.
	OverlayKey func(market.HoldID) market.OverlayKey
}

// Validate reports the first limit that cannot work.
func (l Limits) Validate() error {
	switch {
	case l.Provider.IsZero() || l.Payout.IsZero():
		return fmt.Errorf("%w: provider or payout is not set", ErrLimits)
	case l.SlotMillis < 1 || l.SlotMillis > market.MaxSlotMillis:
		return fmt.Errorf("%w: slots of %d ms", ErrLimits, l.SlotMillis)
	case l.MinSlots < 1 || l.MinSlots > l.MaxSlots || l.MaxSlots > market.MaxLeaseSlots:
		return fmt.Errorf("%w: leases of %d to %d slots", ErrLimits, l.MinSlots, l.MaxSlots)
	case slices.ContainsFunc(slices.Collect(maps.Values(l.Longest)), func(most uint64) bool {
		return most < l.MinSlots || most > market.MaxLeaseSlots
	}):
		return fmt.Errorf("%w: leases of classes of at least %d to %v slots", ErrLimits, l.MinSlots, l.Longest)
	case l.MaxLeasesPerBuyer < 0:
		return fmt.Errorf("%w: %d leases of one buyer", ErrLimits, l.MaxLeasesPerBuyer)
	case l.MaxMembers < 0:
		return fmt.Errorf("%w: %d members of clusters", ErrLimits, l.MaxMembers)
	case l.HoldTTL <= 0 || l.SignTTL <= 0 || l.MaxHolds < 1 || l.MaxHoldsPerBuyer < 1:
		return fmt.Errorf("%w: no hold could be made", ErrLimits)
	case l.ActivateWithin < 1:
		return fmt.Errorf("%w: no lease could be funded", ErrLimits)
	}
	if err := l.Domain.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrLimits, err)
	}
	return nil
}

// feasible checks the conditions that do not depend on price or on other holds.
func (l Limits) feasible(now Now, o market.Order) *market.Refusal {
	if o.Buyer == l.Provider || o.Agent == l.Provider {
		return market.Refuse(market.ReasonOwn, "a peer does not sell to itself")
	}
	if slices.Contains(o.Exclude, l.Provider) {
		return market.Refuse(market.ReasonExcluded, "the order excludes this provider")
	}
	if !o.Expires.After(now.Time) {
		return market.Refuse(market.ReasonExpired, "the order expired %s ago",
			now.Time.Sub(o.Expires).Round(time.Millisecond))
	}
	if len(l.sold(o.Class)) == 0 {
		return market.Refuse(market.ReasonClass, "class %s is not sold here", o.Class)
	}
	if len(o.Regions) > 0 && !slices.Contains(o.Regions, l.Region) {
		return market.Refuse(market.ReasonRegion, "region %s is not among %v", l.Region, o.Regions)
	}
	if !slices.Contains(l.Runtimes, o.Runtime) {
		return market.Refuse(market.ReasonRuntime, "runtime %s is not offered, %v are", o.Runtime, l.Runtimes)
	}
	if (o.Class == market.Disk) != (o.Runtime == market.Volume) {
		return market.Refuse(market.ReasonRuntime, "class %s and runtime %s do not go together", o.Class, o.Runtime)
	}
	if most := l.longest(o.Class); o.Slots < l.MinSlots || o.Slots > most {
		return market.Refuse(market.ReasonDuration, "%s",
			market.DurationText(o.Slots, l.MinSlots, most, l.SlotMillis))
	}
	if l.Stake < o.MinStake {
		return market.Refuse(market.ReasonStake, "stake: got %s, want %s",
			market.Decimal(uint64(l.Stake), l.Decimals), market.Decimal(uint64(o.MinStake), l.Decimals))
	}
	return nil
}

// longest returns the most slots that a lease of a class may have, with its successors.
func (l Limits) longest(c market.Class) uint64 {
	if most, ok := l.Longest[c]; ok {
		return most
	}
	return l.MaxSlots
}

// sold lists the classes that an order of class c takes, cheapest first.
func (l Limits) sold(c market.Class) []market.Class {
	var out []market.Class
	for class := range l.Asks {
		if c.Accepts(class) {
			out = append(out, class)
		}
	}
	slices.SortFunc(out, func(x, y market.Class) int {
		return cmp.Or(cmp.Compare(l.Asks[x], l.Asks[y]), cmp.Compare(x, y))
	})
	return out
}

// checkPrice refuses a price below the ask of the class.
func (l Limits) checkPrice(c market.Class, price market.Price) *market.Refusal {
	if ask := l.Asks[c]; ask > price {
		return market.Refuse(market.ReasonPrice, "price: got %s, want at least %s", l.money(price), l.money(ask))
	}
	return nil
}

// enough refuses a buyer that has all the leases one buyer may have.
func (l Limits) enough(n counts) *market.Refusal {
	return market.Refuse(market.ReasonLimit, "this buyer has %d leases and holds here, at most %d allowed",
		n.live, l.MaxLeasesPerBuyer)
}

// cost is the most that a lease can cost.
func (l Limits) cost(price market.Price, units int, slots uint64) (market.Amount, error) {
	rate, err := market.RateOf(price, units, l.SlotMillis)
	if err != nil {
		return 0, err
	}
	return rate.Owed(slots)
}

// expires returns the time at which an unsigned or unactivated hold expires; false for other records.
func (l Limits) expires(r *Record) (time.Time, bool) {
	switch {
	case r.State == Held:
		return r.HoldExpires, true
	case r.State == Signed && r.Root.IsZero():
		return r.HoldExpires.Add(l.SignTTL), true
	}
	return time.Time{}, false
}

// overlayKey is the overlay key of a hold; zero outside of a cluster.
func (l Limits) overlayKey(r *Record) market.OverlayKey {
	if !r.Overlay || l.OverlayKey == nil {
		return market.OverlayKey{}
	}
	return l.OverlayKey(r.ID)
}

func (l Limits) money(p market.Price) string { return market.Decimal(uint64(p), l.Decimals) }
