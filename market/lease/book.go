package lease

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Book is the provider's view of all its units and of every hold on them. It is a value: Step returns a new one and leaves
// the old one as it was.
type Book struct {
	limits  Limits
	units   []market.Unit         // shared by all versions, never changed
	index   map[market.UnitID]int // into units and holder; shared, never changed
	holder  []*Record             // live record by unit, nil when free
	records []*Record             // ascending by id
}

// NewBook is a book with all units free. Units are handed out in the order given. It panics on limits that Validate
// refuses or a unit listed twice, which no configuration that was checked can bring.
func NewBook(units []market.Unit, limits Limits) Book {
	if err := limits.Validate(); err != nil {
		panic(err)
	}
	b := Book{limits: limits, units: slices.Clone(units), index: make(map[market.UnitID]int, len(units)), holder: make([]*Record, len(units))}
	for i, u := range b.units {
		if _, twice := b.index[u.ID]; twice {
			panic(fmt.Errorf("%w: unit %s is listed twice", market.ErrUnits, u.ID.Short()))
		}
		b.index[u.ID] = i
	}
	return b
}

// Restore is the book with the journal's records in it, in any order. A record may name units that are no longer in the
// inventory. ErrRecord or ErrDoubleSale for a journal that this package did not write. Carry out Resume next.
func (b Book) Restore(recs []Record) (Book, error) {
	next := NewBook(b.units, b.limits)
	gone := map[market.UnitID]market.HoldID{}
	for _, r := range recs {
		if err := r.validate(); err != nil {
			return b, err
		}
		if next.find(r.ID) != nil {
			return b, fmt.Errorf("%w: hold %s is listed twice", ErrRecord, r.ID.Short())
		}
		if r.State.Live() {
			for _, id := range r.Units {
				if i, ok := next.index[id]; ok && next.holder[i] != nil {
					return b, fmt.Errorf("%w: unit %s, holds %s and %s", ErrDoubleSale, id.Short(), next.holder[i].ID.Short(), r.ID.Short())
				}
				if other, ok := gone[id]; ok {
					return b, fmt.Errorf("%w: unit %s, holds %s and %s", ErrDoubleSale, id.Short(), other.Short(), r.ID.Short())
				}
				gone[id] = r.ID
			}
		}
		next.set(r)
	}
	return next, nil
}

// Resume is what to carry out after Restore: active leases are activated again, and ending ones ended again. Both are
// repeats of effects that may have been carried out before the crash.
func (b Book) Resume() []Effect {
	var out []Effect
	for _, r := range b.records {
		switch r.State {
		case Active:
			out = append(out, Activate{*r})
		case Ending:
			out = append(out, EndLease{r.Lease, r.EndReason})
		case Held, Signed, Ended, Released, Void:
		}
	}
	return out
}

// WithLimits is the book under other limits, for orders to come. What is promised stays promised.
func (b Book) WithLimits(l Limits) (Book, error) {
	if err := l.Validate(); err != nil {
		return b, err
	}
	b.limits = l
	return b, nil
}

// Limits are the limits in force.
func (b Book) Limits() Limits { return b.limits }

// Free is the number of units of the class that nobody holds.
func (b Book) Free(class market.Class) int {
	n := 0
	for i := range b.units {
		if b.units[i].Class == class && b.holder[i] == nil {
			n++
		}
	}
	return n
}

// Total is the number of units of the class.
func (b Book) Total(class market.Class) int {
	n := 0
	for i := range b.units {
		if b.units[i].Class == class {
			n++
		}
	}
	return n
}

// Units lists the inventory in the order given.
func (b Book) Units() []market.Unit { return slices.Clone(b.units) }

// Records goes through all records, live ones and those kept against replay, by ascending hold id.
func (b Book) Records() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		for _, r := range b.records {
			if !yield(*r) {
				return
			}
		}
	}
}

// Hold looks a record up by hold id.
func (b Book) Hold(id market.HoldID) (Record, bool) {
	if r := b.find(id); r != nil {
		return *r, true
	}
	return Record{}, false
}

// Lease looks a record up by lease id.
func (b Book) Lease(id market.LeaseID) (Record, bool) {
	if r := b.findLease(id); r != nil {
		return *r, true
	}
	return Record{}, false
}

// NextDeadline is the earliest clock time at which Ticked has something to do with a hold; false if there is none.
// Leases wait for slots, so tick on new slots too.
func (b Book) NextDeadline() (time.Time, bool) {
	var at time.Time
	for _, r := range b.records {
		if r.State == Held && (at.IsZero() || r.HoldExpires.Before(at)) {
			at = r.HoldExpires
		}
	}
	return at, !at.IsZero()
}

func compareHold(r *Record, id market.HoldID) int { return bytes.Compare(r.ID[:], id[:]) }

func (b Book) find(id market.HoldID) *Record {
	if i, found := slices.BinarySearchFunc(b.records, id, compareHold); found {
		return b.records[i]
	}
	return nil
}

func (b Book) findLease(id market.LeaseID) *Record {
	if id.IsZero() {
		return nil
	}
	for _, r := range b.records {
		if r.Lease == id {
			return r
		}
	}
	return nil
}

// edit is a copy whose slices may be changed.
func (b Book) edit() Book {
	b.holder, b.records = slices.Clone(b.holder), slices.Clone(b.records)
	return b
}

// set puts the record in, and its units under it or free. Only on a copy made by edit.
func (b *Book) set(r Record) {
	kept := &r
	i, found := slices.BinarySearchFunc(b.records, r.ID, compareHold)
	if found {
		b.records[i] = kept
	} else {
		b.records = slices.Insert(b.records, i, kept)
	}
	for _, id := range r.Units {
		u, ok := b.index[id]
		switch {
		case !ok:
		case r.State.Live():
			b.holder[u] = kept
		case b.holder[u] != nil && b.holder[u].ID == r.ID:
			b.holder[u] = nil
		}
	}
}

func (b *Book) drop(id market.HoldID) {
	if i, found := slices.BinarySearchFunc(b.records, id, compareHold); found {
		b.records = slices.Delete(b.records, i, i+1)
	}
}

// Quote says how many leases of the order the provider could take now, and at what price; or why none. It promises nothing.
func (b Book) Quote(now Now, o market.Order) (leases uint32, price market.Price, refusal *market.Refusal) {
	if refusal := b.feasible(now, o); refusal != nil {
		return 0, 0, refusal
	}
	ask := b.limits.Asks[o.Class]
	if ask > o.Ceiling {
		return 0, 0, market.Refuse(market.ReasonPrice, "price %s is over the ceiling %s", b.money(ask), b.money(o.Ceiling))
	}
	free, refusal := b.pick(o, int(o.UnitsPer))
	if refusal != nil {
		return 0, 0, refusal
	}
	unfunded, ofBuyer, ofOrder := b.unfunded(o.Buyer, o.ID)
	room := min(b.limits.MaxHolds-unfunded, b.limits.MaxHoldsPerBuyer-ofBuyer, int(o.Count)-ofOrder)
	if room < 1 {
		return 0, 0, market.Refuse(market.ReasonLimit, "too many holds are open already")
	}
	return uint32(min(len(free)/int(o.UnitsPer), room)), ask, nil
}

func (b Book) money(p market.Price) string { return market.Decimal(uint64(p), b.limits.Decimals) }

// feasible asks what does not depend on price or on other holds.
func (b Book) feasible(now Now, o market.Order) *market.Refusal {
	l := b.limits
	if o.Buyer == l.Provider {
		return market.Refuse(market.ReasonOwn, "a peer does not sell to itself")
	}
	if slices.Contains(o.Exclude, l.Provider) {
		return market.Refuse(market.ReasonExcluded, "the order excludes this provider")
	}
	if !o.Expires.After(now.Time) {
		return market.Refuse(market.ReasonExpired, "the order expired %s ago", now.Time.Sub(o.Expires).Round(time.Millisecond))
	}
	if _, sold := l.Asks[o.Class]; !sold {
		return market.Refuse(market.ReasonClass, "class %s is not sold here", o.Class)
	}
	if len(o.Regions) > 0 && !slices.Contains(o.Regions, l.Region) {
		return market.Refuse(market.ReasonRegion, "region %s is not among %v", l.Region, o.Regions)
	}
	if !slices.Contains(l.Runtimes, o.Runtime) {
		return market.Refuse(market.ReasonRuntime, "runtime %s is not offered, %v are", o.Runtime, l.Runtimes)
	}
	if o.Slots < l.MinSlots || o.Slots > l.MaxSlots {
		return market.Refuse(market.ReasonDuration, "%d slots asked, %d to %d are sold", o.Slots, l.MinSlots, l.MaxSlots)
	}
	if l.RequireFunds {
		cost, err := o.MaxCost(l.SlotMillis)
		if err != nil {
			return market.Refuse(market.ReasonFunds, "what the order can cost: %v", err)
		}
		if o.Funds < cost {
			return market.Refuse(market.ReasonFunds, "the order can cost %s and claims funds of %s",
				market.Decimal(uint64(cost), l.Decimals), market.Decimal(uint64(o.Funds), l.Decimals))
		}
	}
	return nil
}

// pick lists the free units that fit the order, at least need of them.
func (b Book) pick(o market.Order, need int) ([]market.UnitID, *market.Refusal) {
	var fit []market.UnitID
	short, free := "", 0
	for i := range b.units {
		u := &b.units[i]
		if u.Class != o.Class || b.holder[i] != nil {
			continue
		}
		free++
		if !u.Covers(o.Min) {
			short = u.Shortfall(o.Min)
			continue
		}
		fit = append(fit, u.ID)
	}
	switch {
	case len(fit) >= need:
		return fit, nil
	case free >= need:
		return nil, market.Refuse(market.ReasonResources, "a unit has %s", short)
	}
	return nil, market.Refuse(market.ReasonCapacity, "%d units asked, %d of %d are free", need, free, b.Total(o.Class))
}

// unfunded counts the holds that nobody has paid for: all, the buyer's, and those of the order.
func (b Book) unfunded(buyer sign.Key, order market.OrderID) (all, ofBuyer, ofOrder int) {
	for _, r := range b.records {
		if r.Order == order && r.State.Live() {
			ofOrder++
		}
		if r.State != Held && r.State != Signed {
			continue
		}
		all++
		if r.Buyer == buyer {
			ofBuyer++
		}
	}
	return all, ofBuyer, ofOrder
}
