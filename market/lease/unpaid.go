package lease

import (
	"fmt"
	"math"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Holds are free until they are paid for. So the total cost of one peer's holds is bounded by its spendable balance.
// After recent holds without payment, all buyers that never paid here share a part of the units.

const (
	// newcomersPercent is the part of a class's units that the unpaid holds of newcomers may have while the provider is
	// wary.
	newcomersPercent = 40
	// maxOver bounds the remembered holds that ended unsigned or unpaid.
	maxOver = 1024
)

// Backing is the security behind an order, by the chain and the provider's journal.
type Backing struct {
	Funds    market.Amount // spendable balance of the order's peer
	Newcomer bool          // it never paid for a lease here
	Wary     bool          // units were recently held without payment
}

// open reports whether the record has unpaid units.
func (r *Record) open() bool {
	return r.Root.IsZero() && (r.State == Held || r.State == Signed || r.State == Active && r.FundBy > 0)
}

// Owed is the most that the unpaid holds and leases which a peer commands can cost together.
func (b Book) Owed(peer sign.Key) market.Amount {
	var sum market.Amount
	for _, r := range b.records {
		if !r.open() || r.Peer() != peer {
			continue
		}
		cost, err := b.limits.cost(r.Price, len(r.Units), r.Slots)
		if err != nil {
			return math.MaxUint64
		}
		sum = sum.Plus(cost)
	}
	return sum
}

// backed returns the number of additional leases of a class that an order's backing covers, or the reason if it covers
// none. If leases are free, it covers all.
func (b Book) backed(o market.Order, class market.Class, price market.Price, with *Backing) (int, *market.Refusal) {
	if with == nil {
		return math.MaxInt, nil
	}
	cost, err := b.limits.cost(price, int(o.UnitsPer), o.Slots)
	if err != nil {
		return 0, market.Refuse(market.ReasonPrice, "maximum cost of the lease: %v", err)
	}
	owed := b.Owed(o.Peer())
	if owed > with.Funds || with.Funds-owed < cost {
		amount := func(a market.Amount) string { return market.Decimal(uint64(a), b.limits.Decimals) }
		behind := ""
		if owed > 0 {
			behind = fmt.Sprintf(", of which %s are behind other holds here", amount(owed))
		}
		return 0, market.Refuse(market.ReasonFunds, "the account that pays has %s%s, a lease can cost %s",
			amount(with.Funds), behind, amount(cost))
	}
	leases := math.MaxInt
	if cost > 0 {
		leases = int(min((with.Funds-owed)/cost, math.MaxInt))
	}
	if with.Newcomer && with.Wary {
		most, taken := max(b.Total(class)*newcomersPercent/100, 1), b.records.newcomers(class)
		if taken+int(o.UnitsPer) > most {
			return 0, market.Refuse(market.ReasonLimit,
				"holds of peers that never paid here have %d units, at most %d for now", taken, most)
		}
		leases = min(leases, (most-taken)/int(o.UnitsPer))
	}
	return leases, nil
}

// unpaid emits Unpaid if the record's units were not paid for.
func (s *step) unpaid(r Record, lapsed bool) {
	if r.open() {
		s.emit(Unpaid{r.Peer(), r.Newcomer, s.now.Time.Sub(r.Made), lapsed})
	}
}

// giveUp ends a record that was never active. A successor's record stays, so that its predecessor gets no other
// successor.
func (s *step) giveUp(r Record, state State, reason string, lapsed bool) {
	if r.Root.IsZero() {
		s.forget(r, lapsed)
		return
	}
	s.finish(r, state, reason)
}

// forget drops a record that was never active, and frees its units.
func (s *step) forget(r Record, lapsed bool) {
	s.unpaid(r, lapsed)
	r.State = Released
	s.book.set(r)
	s.book.records.drop(r.ID)
	s.book.forgot(r.ID)
	s.emit(Forget{r.ID}, UnitsFreed{r.Units})
}

// forgot records that a hold has ended, so that a late request for it is refused. Call it only on a copy made by edit.
func (b *Book) forgot(id market.HoldID) {
	if !slices.Contains(b.over, id) {
		b.over = append(slices.Clone(b.over[max(0, len(b.over)+1-maxOver):]), id)
	}
}
