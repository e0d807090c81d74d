package lease

import (
	"cmp"
	"slices"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// A line is a lease and its successors, one after the other, over the same units. The units belong to the line until
// its last lease ends. At any time one of its leases is in force.

// First is the id of the first lease of the record's line; zero before there is one.
func (r Record) First() market.LeaseID {
	if r.Root.IsZero() {
		return r.Lease
	}
	return r.Root
}

// began is the slot in which the first lease of the line started. The record has a core.
func (r *Record) began() market.Slot {
	if r.Root.IsZero() {
		return r.Core.Start
	}
	return r.Since
}

// sameLine reports whether two records are about one line, so that both may have its units.
func sameLine(a, b *Record) bool {
	return a.Core != nil && b.Core != nil && a.First() == b.First()
}

// sameLineOrHold reports whether a is b, as it was before, or of its line.
func sameLineOrHold(a, b *Record) bool { return a.ID == b.ID || sameLine(a, b) }

// successive reports whether two leases of one line do not overlap.
func successive(a, b *Record) bool {
	return sameLine(a, b) && (a.Core.End <= b.Core.Start || b.Core.End <= a.Core.Start)
}

// next is the successor of a lease, nil if it has none.
func (rs records) next(id market.LeaseID) *Record {
	if id.IsZero() {
		return nil
	}
	for _, r := range rs {
		if r.Previous == id {
			return r
		}
	}
	return nil
}

// waits reports whether the lease before the record's is live still.
func (rs records) waits(r *Record) bool {
	prev := rs.lease(r.Previous)
	return prev != nil && prev.State.Live()
}

// heir is the live lease of the record's line that is next to have its units, or nil.
func (rs records) heir(r *Record) *Record {
	var out *Record
	for _, o := range rs {
		if o.ID != r.ID && o.State.Live() && sameLine(o, r) && (out == nil || o.Core.Start < out.Core.Start) {
			out = o
		}
	}
	return out
}

// Current returns the lease of a line that controls its execution: the lease in force, or the last one if the line has
// ended. A line is identified by its first lease.
func (b Book) Current(first market.LeaseID) (Record, bool) {
	var best *Record
	weight := func(r *Record) int {
		switch {
		case r.State == Active:
			return 0
		case r.State.Live():
			return 1
		}
		return 2
	}
	for _, r := range b.records {
		if r.Core == nil || r.First() != first {
			continue
		}
		if best == nil || weight(r) < weight(best) ||
			weight(r) == weight(best) && (r.Core.Start < best.Core.Start) == (weight(r) < 2) {
			best = r
		}
	}
	return valueOf(best)
}

// Extended reports whether a successor of the lease was signed.
func (b Book) Extended(id market.LeaseID) bool { return b.records.next(id) != nil }

// Commands reports whether the line's execution ends with this lease: its predecessor has ended, and no successor has
// begun.
func (b Book) Commands(id market.LeaseID) bool {
	r := b.records.lease(id)
	if r == nil {
		return false
	}
	prev := b.records.lease(r.Previous)
	waits := prev != nil && prev.State.Live() && prev.HandedTo != r.Lease
	return r.HandedTo.IsZero() && !waits
}

// supervise lets a peer command a line.
func (s *step) supervise(ev Supervised) {
	line := slices.DeleteFunc(inLine(s.book.records), func(r *Record) bool {
		return r.Core == nil || r.First() != ev.Lease
	})
	if len(line) == 0 {
		s.refuse(market.HoldID{}, market.Refuse(market.ReasonHold, "no such lease here"))
		return
	}
	for _, r := range line {
		if ev.Epoch < max(r.Supervision, 1) || ev.Epoch == r.Supervision && ev.By != r.Agent {
			s.refuse(r.ID, market.Refuse(market.ReasonSupervision, "supervision epoch %d commands this lease, not %d",
				r.Supervision, ev.Epoch))
			return
		}
	}
	for _, r := range line {
		if next := *r; next.Supervision != ev.Epoch {
			next.Agent, next.Supervision = ev.By, ev.Epoch
			s.persist(next)
		}
	}
	s.emit(AnswerSupervised{ev.Lease})
}

// extend signs the successor of a lease.
func (s *step) extend(ev ExtendRequested) {
	r := s.book.records.lease(ev.Lease)
	if r == nil || r.Peer() != ev.By {
		s.refuse(market.HoldID{}, market.Refuse(market.ReasonHold, "no such lease of this buyer"))
		return
	}
	if next := s.book.records.next(r.Lease); next != nil {
		switch {
		case *next.Core != ev.Core:
			s.refuse(next.ID, market.Refuse(market.ReasonConflict, "this lease was extended already, until slot %d",
				next.Core.End))
		case !next.State.Live():
			s.refuse(next.ID, market.Refuse(market.ReasonHold, "extension: ended: %s", next.EndReason))
		default:
			s.emit(AnswerExtended{next.ID, *next.Core})
		}
		return
	}
	if r.State != Active {
		s.refuse(r.ID, market.Refuse(market.ReasonHold, "lease: %s, want active", r.State))
		return
	}
	if refusal := s.book.checkSuccessor(r, ev); refusal != nil {
		s.refuse(r.ID, refusal)
		return
	}
	core, n := ev.Core, *r
	n.ID, n.State, n.Slots = successorHold(r.Lease), Signed, core.Slots()
	n.Core, n.Lease, n.BuyerSig = &core, core.ID(), ev.BuyerSig
	n.Root, n.Previous, n.Since = r.First(), r.Lease, r.began()
	n.Escrow, n.Funding, n.FundBy = sign.Key{}, nil, 0
	if s.book.records.find(n.ID) != nil {
		s.refuse(r.ID, market.Refuse(market.ReasonConflict, "the hold id of the extension is in use"))
		return
	}
	s.persist(n)
	s.emit(AnswerExtended{n.ID, core})
}

// successorHold is the hold id under which the one successor of a lease is kept.
func successorHold(l market.LeaseID) market.HoldID {
	h := sign.Sum([]byte("starling/successor/v1"), l[:])
	return market.HoldID(h[:len(market.HoldID{})])
}

// checkSuccessor returns a refusal if the provider does not extend an active lease by ev's.
func (b Book) checkSuccessor(r *Record, ev ExtendRequested) *market.Refusal {
	if err := ev.Core.Validate(); err != nil {
		return market.Refuse(market.ReasonTerms, "%v", err)
	}
	want, err := r.Core.Follow(ev.Core.End)
	switch {
	case err != nil:
		return market.Refuse(market.ReasonTerms, "%v", err)
	case want != ev.Core:
		return market.Refuse(market.ReasonTerms, "the extension is not the lease before it with a later end: %s",
			difference(ev.Core, want))
	}
	l := b.limits
	ask, sold := l.Asks[r.Class]
	most := l.longest(r.Class)
	switch total := uint64(ev.Core.End - r.began()); {
	case total > most:
		return market.Refuse(market.ReasonDuration, "%s",
			market.DurationText(total, l.MinSlots, most, l.SlotMillis))
	case !sold:
		return market.Refuse(market.ReasonClass, "class %s is no longer sold here", r.Class)
	case ask > r.Price:
		return market.Refuse(market.ReasonPrice, "price of the lease: got %s, want at least %s",
			l.money(r.Price), l.money(ask))
	}
	for _, id := range r.Units {
		if i, ok := b.stock.index[id]; !ok || b.stock.out[i] {
			return market.Refuse(market.ReasonCapacity, "unit %s is no longer sold", id.Short())
		}
	}
	if err := ev.Core.VerifyBy(l.Domain, r.Buyer, ev.BuyerSig); err != nil {
		return market.Refuse(market.ReasonSignature, "the buyer did not sign this lease: %v", err)
	}
	return nil
}

// difference returns the name of the first field in which two cores differ.
func difference(have, want market.LeaseCore) string {
	for _, f := range []struct {
		name       string
		have, want any
	}{
		{"flags", have.Flags, want.Flags}, {"start", have.Start, want.Start}, {"rate", have.Rate, want.Rate},
		{"cap", have.Cap, want.Cap}, {"units", have.Units, want.Units}, {"units root", have.UnitsRoot, want.UnitsRoot},
		{"rank", have.Rank, want.Rank}, {"rank epoch", have.RankEpoch, want.RankEpoch},
		{"order", have.Order, want.Order}, {"buyer", have.Buyer, want.Buyer},
		{"provider", have.Provider, want.Provider}, {"payout", have.Payout, want.Payout},
		{"terms", have.Terms, want.Terms}, {"voucher keys", have.VoucherKeys, want.VoucherKeys},
		{"nonce", have.Nonce, want.Nonce}, {"activate-before", have.ActivateBefore, want.ActivateBefore},
	} {
		if f.have != f.want {
			return f.name
		}
	}
	return "version"
}

// lapse ends the successor of a lease that ended early, or a successor that was not activated in time.
func (s *step) lapse(r *Record, reason string) {
	next := s.book.records.next(r.Lease)
	if next == nil {
		return
	}
	switch next.State {
	case Signed:
		s.finish(*next, Released, "preceding lease: ended: "+reason)
	case Active:
		s.end(*next, "preceding lease: ended: "+reason)
	case Held, Ending, Ended, Released, Void:
	}
}

// inLine orders records so that each lease follows its predecessors; otherwise the order is stable.
func inLine(records []*Record) []*Record {
	out := slices.Clone(records)
	at := func(r *Record) market.Slot {
		if r.Root.IsZero() {
			return 0
		}
		return r.Core.Start
	}
	slices.SortStableFunc(out, func(x, y *Record) int { return cmp.Compare(at(x), at(y)) })
	return out
}
