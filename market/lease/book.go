package lease

import (
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
	stock   stock
	records records
	over    []market.HoldID // the last holds that were forgotten, the latest last; shared, never changed
}

// NewBook is a book with all units free. Units are handed out in the order given. It panics on limits that Validate
// refuses or a unit listed twice, which no configuration that was checked can bring.
func NewBook(units []market.Unit, limits Limits) Book {
	if err := limits.Validate(); err != nil {
		panic(err)
	}
	return Book{limits: limits, stock: newStock(units)}
}

// Restore is the book with the journal's records in it, in any order. A record may name units that are no longer in the
// inventory. ErrRecord or ErrDoubleSale for a journal that this package did not write. Carry out Resume next.
func (b Book) Restore(recs []Record) (Book, error) {
	next := NewBook(b.stock.units, b.limits)
	next.stock.out, next.stock.shown = b.stock.out, b.stock.shown
	held := map[market.UnitID][]*Record{}
	for _, r := range recs {
		if err := r.validate(); err != nil {
			return b, err
		}
		if next.records.find(r.ID) != nil {
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
	b.stock.out = b.stock.marked(ids)
	return b
}

// Withdrawn reports whether the unit is withdrawn.
func (b Book) Withdrawn(id market.UnitID) bool { return b.stock.withdrawn(id) }

// WithShown returns the book with exactly the listed units proven by audits. Only orders that take unproven units get
// others. Ids of unknown units are ignored. Existing holds and leases stay as they are.
func (b Book) WithShown(ids []market.UnitID) Book {
	b.stock.shown = b.stock.marked(ids)
	return b
}

// Shown is the number of free units of the class that audits have proven.
func (b Book) Shown(class market.Class) int {
	s := b.stock
	return s.count(class, func(i int) bool { return s.free(i) && s.shown != nil && s.shown[i] })
}

// Holder returns the live record that holds the unit.
func (b Book) Holder(id market.UnitID) (Record, bool) { return valueOf(b.stock.holds(id)) }

// Free is the number of units of the class that could be sold now.
func (b Book) Free(class market.Class) int { return b.stock.count(class, b.stock.free) }

// Total is the number of units of the class that are free or held. Withdrawn units count only while they are held.
func (b Book) Total(class market.Class) int { return b.stock.total(class) }

// Units lists the inventory in the order given.
func (b Book) Units() []market.Unit { return slices.Clone(b.stock.units) }

// Records iterates over all records, live ones and the ones kept against replay, by ascending hold id.
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
func (b Book) Hold(id market.HoldID) (Record, bool) { return valueOf(b.records.find(id)) }

// Lease looks a record up by lease id.
func (b Book) Lease(id market.LeaseID) (Record, bool) { return valueOf(b.records.lease(id)) }

// valueOf returns the value of a record; false if it is nil.
func valueOf(r *Record) (Record, bool) {
	if r == nil {
		return Record{}, false
	}
	return *r, true
}

// NextDeadline is the earliest clock time at which a hold needs Ticked; false if there is none. Leases depend on slots,
// so tick on new slots too.
func (b Book) NextDeadline() (time.Time, bool) {
	var at time.Time
	for _, r := range b.records {
		if end, ok := b.limits.expires(r); ok && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at, !at.IsZero()
}

// edit returns a copy that set can change.
func (b Book) edit() Book {
	b.stock, b.records = b.stock.edit(), slices.Clone(b.records)
	return b
}

// set puts the record in, and its units under it or free. Only on a copy made by edit.
func (b *Book) set(r Record) {
	kept := &r
	b.records.put(kept)
	heir := b.records.heir(kept)
	if r.State.Live() && (heir == nil || kept.Core.Start < heir.Core.Start) {
		heir = kept
	}
	b.stock.assign(kept, heir)
}
