package lease

import (
	"bytes"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// records are all records of a book, ascending by hold id.
type records []*Record

func compareHold(r *Record, id market.HoldID) int { return bytes.Compare(r.ID[:], id[:]) }

// find returns the record of a hold, or nil.
func (rs records) find(id market.HoldID) *Record {
	if i, found := slices.BinarySearchFunc(rs, id, compareHold); found {
		return rs[i]
	}
	return nil
}

// lease returns the record of a lease, or nil.
func (rs records) lease(id market.LeaseID) *Record {
	if id.IsZero() {
		return nil
	}
	for _, r := range rs {
		if r.Lease == id {
			return r
		}
	}
	return nil
}

// put adds the record, or replaces the one with its id. Only on a copy.
func (rs *records) put(r *Record) {
	i, found := slices.BinarySearchFunc(*rs, r.ID, compareHold)
	if found {
		(*rs)[i] = r
	} else {
		*rs = slices.Insert(*rs, i, r)
	}
}

// drop removes the record of a hold. Only on a copy.
func (rs *records) drop(id market.HoldID) {
	if i, found := slices.BinarySearchFunc(*rs, id, compareHold); found {
		*rs = slices.Delete(*rs, i, i+1)
	}
}

// newcomers is the number of units of the class that unpaid holds of newcomers have.
func (rs records) newcomers(class market.Class) int {
	n := 0
	for _, r := range rs {
		if r.open() && r.Newcomer && r.Class == class {
			n += len(r.Units)
		}
	}
	return n
}

// counts are the records that fall under a limit.
type counts struct {
	unfunded int // holds that are not paid for
	ofBuyer  int // of them, the buyer's
	ofOrder  int // live ones of the order
	live     int // live ones of the buyer
	members  int // live ones with an overlay key
}

// count counts the records. A waiting successor uses only its predecessor's resources.
func (rs records) count(buyer sign.Key, order market.OrderID) counts {
	var n counts
	for _, r := range rs {
		if rs.waits(r) {
			continue
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
