package lease

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
)

// Book is the provider's view of all its units and of every hold on them. It is a value: Step returns a new one and
// leaves the old one as it was.
type Book struct {
	limits  Limits
	units   []market.Unit         // shared by all versions, never changed
	index   map[market.UnitID]int // into units and holder; shared, never changed
	holder  []*Record             // live record by unit, of a line the first; nil when nobody holds it
	out     []bool                // units withdrawn; shared, never changed
	shown   []bool                // units with a valid audit record; nil where none are required; shared, never changed
	records []*Record             // ascending by id
	over    []market.HoldID       // the last holds that were forgotten, the latest last; shared, never changed
}

// NewBook is a book with all units free. Units are handed out in the order given. It panics on limits that Validate
// refuses or a unit listed twice, which no configuration that was checked can bring.
func NewBook(units []market.Unit, limits Limits) Book {
	if err := limits.Validate(); err != nil {
		panic(err)
	}
	b := Book{limits: limits, units: slices.Clone(units), index: make(map[market.UnitID]int, len(units)),
		holder: make([]*Record, len(units)), out: make([]bool, len(units))}
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
	next.out, next.shown = b.out, b.shown
	held := map[market.UnitID][]*Record{}
	for _, r := range recs {
		if err := r.validate(); err != nil {
			return b, err
		}
		if next.find(r.ID) != nil {
			return b, fmt.Errorf("%w: hold %s is listed twice", ErrRecord, r.ID.Short())
		}
		if r.State.Live() {
			for _, id := range r.Units {
				for _, other := range held[id] {
					if !successive(other, &r) {
						return b, fmt.Errorf("%w: unit %s, holds %s and %s",
							ErrDoubleSale, id.Short(), other.ID.Short(), r.ID.Short())
					}
				}
				held[id] = append(held[id], &r)
			}
		}
		next.set(r)
	}
	return next, nil
}

// Resume returns the effects to carry out after Restore: active leases are activated again, and ending ones ended
// again. The effects may already have been carried out before the crash.
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

// WithLimits returns the book with other limits for future orders. Existing holds and leases stay as they are.
func (b Book) WithLimits(l Limits) (Book, error) {
	if err := l.Validate(); err != nil {
		return b, err
	}
	b.limits = l
	return b, nil
}

// Limits are the limits in force.
func (b Book) Limits() Limits { return b.limits }

// WithWithdrawn returns the book with exactly the listed units withdrawn from sale. Ids of unknown units are ignored.
// Existing holds and leases stay as they are.
func (b Book) WithWithdrawn(ids []market.UnitID) Book {
	b.out = b.marked(ids)
	return b
}

// marked is true for the units listed.
func (b Book) marked(ids []market.UnitID) []bool {
	out := make([]bool, len(b.units))
	for _, id := range ids {
		if i, ok := b.index[id]; ok {
			out[i] = true
		}
	}
	return out
}

// Withdrawn reports whether the unit is withdrawn.
func (b Book) Withdrawn(id market.UnitID) bool {
	i, ok := b.index[id]
	return ok && b.out[i]
}

// WithShown returns the book with exactly the listed units proven by audits. Only orders that take unproven units get
// others. Ids of unknown units are ignored. Existing holds and leases stay as they are.
func (b Book) WithShown(ids []market.UnitID) Book {
	b.shown = b.marked(ids)
	return b
}

// Shown is the number of free units of the class that audits have proven.
func (b Book) Shown(class market.Class) int {
	n := 0
	for i := range b.units {
		if b.units[i].Class == class && b.free(i) && b.shown != nil && b.shown[i] {
			n++
		}
	}
	return n
}

func (b Book) free(i int) bool { return b.holder[i] == nil && !b.out[i] }

// Holder returns the live record that holds the unit.
func (b Book) Holder(id market.UnitID) (Record, bool) {
	if i, ok := b.index[id]; ok && b.holder[i] != nil {
		return *b.holder[i], true
	}
	return Record{}, false
}

// Free is the number of units of the class that could be sold now.
func (b Book) Free(class market.Class) int {
	n := 0
	for i := range b.units {
		if b.units[i].Class == class && b.free(i) {
			n++
		}
	}
	return n
}

// Total is the number of units of the class that are free or held; those withdrawn count only while somebody holds
// them.
func (b Book) Total(class market.Class) int {
	n := 0
	for i := range b.units {
		if b.units[i].Class == class && (b.holder[i] != nil || !b.out[i]) {
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
		if end, ok := b.expires(r); ok && (at.IsZero() || end.Before(at)) {
			at = end
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

// edit returns a copy with slices of its own.
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
	heir := b.heir(kept)
	if r.State.Live() && (heir == nil || kept.Core.Start < heir.Core.Start) {
		heir = kept
	}
	for _, id := range r.Units {
		if u, ok := b.index[id]; ok && (r.State.Live() || b.holder[u] != nil && sameLineOrHold(b.holder[u], kept)) {
			b.holder[u] = heir
		}
	}
}

// sameLineOrHold reports whether a is b, as it was before, or of its line.
func sameLineOrHold(a, b *Record) bool { return a.ID == b.ID || sameLine(a, b) }

func (b *Book) drop(id market.HoldID) {
	if i, found := slices.BinarySearchFunc(b.records, id, compareHold); found {
		b.records = slices.Delete(b.records, i, i+1)
	}
}

func (b Book) money(p market.Price) string { return market.Decimal(uint64(p), b.limits.Decimals) }

// feasible checks the conditions that do not depend on price or on other holds.
func (b Book) feasible(now Now, o market.Order) *market.Refusal {
	l := b.limits
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
	if len(b.sold(o.Class)) == 0 {
		return market.Refuse(market.ReasonClass, "class %s is not sold here", o.Class)
	}
	if len(o.Regions) > 0 && !slices.Contains(o.Regions, l.Region) {
		return market.Refuse(market.ReasonRegion, "region %s is not among %v", l.Region, o.Regions)
	}
	if !slices.Contains(l.Runtimes, o.Runtime) {
		return market.Refuse(market.ReasonRuntime, "runtime %s is not offered, %v are", o.Runtime, l.Runtimes)
	}
	if o.Slots < l.MinSlots || o.Slots > l.MaxSlots {
		return market.Refuse(market.ReasonDuration, "%s",
			market.DurationText(o.Slots, l.MinSlots, l.MaxSlots, l.SlotMillis))
	}
	if l.Stake < o.MinStake {
		return market.Refuse(market.ReasonStake, "stake %s, the order asks %s",
			market.Decimal(uint64(l.Stake), l.Decimals), market.Decimal(uint64(o.MinStake), l.Decimals))
	}
	return nil
}
