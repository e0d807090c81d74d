package lease

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
)

// keepAfterOrder is the time after its order's end for which a finished record is kept against replays. Later, the
// order itself is refused as expired, whatever the error of the clocks.
const keepAfterOrder = 2 * market.MaxClockSkew

// step is one call of Step: the book and the effects so far.
type step struct {
	book    Book
	now     Now
	effects []Effect
}

// Step takes one event. Requests that cannot be granted are answered with AnswerRefused; an error means that the shell
// reported something impossible (InvalidTransition, ErrUnknownLease), and then only time has passed.
func (b Book) Step(now Now, ev Event) (Book, []Effect, error) {
	s := &step{book: b.edit(), now: now}
	s.sweep()
	var err error
	switch ev := ev.(type) {
	case ReserveRequested:
		s.reserve(ev)
	case SignRequested:
		s.sign(ev)
	case ExtendRequested:
		s.extend(ev)
	case FundingPromised:
		s.promise(ev)
	case FundingWrong:
		if r := s.book.records.lease(ev.Lease); r != nil && r.State == Active && !r.Escrow.IsZero() {
			s.unpaid(*r, true)
			s.end(*r, ev.Reason)
		}
	case FundingSeen:
		s.fund(ev)
	case Supervised:
		s.supervise(ev)
	case ReleaseRequested:
		s.release(ev)
	case ExecutionLost:
		err = s.ended(ev.Lease, ev.Reason, ev)
	case LeaseEnded:
		err = s.ended(ev.Lease, ev.Reason, ev)
	case Ticked:
	}
	return s.book, s.effects, err
}

func (s *step) emit(e ...Effect) { s.effects = append(s.effects, e...) }

// persist replaces the record, in the book and in the journal.
func (s *step) persist(r Record) {
	s.book.set(r)
	s.emit(Persist{r})
}

// finish persists the record in a state that is not live and frees its units, unless another lease of its line has
// them.
func (s *step) finish(r Record, state State, reason string) {
	r.State, r.EndReason = state, clip(reason)
	s.persist(r)
	if s.book.records.heir(&r) == nil {
		s.emit(UnitsFreed{r.Units})
	} else if r.HandedTo.IsZero() {
		s.lapse(&r, r.EndReason)
	}
}

func (s *step) refuse(hold market.HoldID, refusal *market.Refusal) {
	s.emit(AnswerRefused{hold, refusal})
}

// clip makes a reason fit a record: short, and text.
func clip(reason string) string { return market.Clean(reason, maxEndReason) }

// sweep applies due deadlines. It ends expired holds and leases, and drops finished records that cannot be replayed.
func (s *step) sweep() {
	for _, r := range inLine(s.book.records) {
		if r = s.book.records.find(r.ID); r == nil {
			continue
		}
		if end, ok := s.book.limits.expires(r); ok && !end.After(s.now.Time) {
			s.forget(*r, true)
			continue
		}
		switch r.State {
		case Held:
		case Signed:
			if s.now.Slot > r.Core.ActivateBefore &&
				uint64(s.now.Slot-r.Core.ActivateBefore) > s.book.limits.MarginSlots {
				s.giveUp(*r, Void, fmt.Sprintf("not funded up to slot %d", r.Core.ActivateBefore), true)
			}
		case Active:
			if s.now.Slot >= r.Core.End {
				s.end(*r, fmt.Sprintf("lease time ended at slot %d", r.Core.End))
			} else if r.FundBy > 0 && s.now.Slot > r.FundBy {
				s.unpaid(*r, true)
				s.end(*r, fmt.Sprintf("escrow: not on chain by slot %d", r.FundBy))
			}
		case Ended, Released, Void:
			// The record of an extended lease keeps it from being extended again.
			if s.now.Time.Sub(r.OrderExpires) > keepAfterOrder && !s.book.records.waits(r) {
				s.book.records.drop(r.ID)
				s.emit(Forget{r.ID})
			}
		case Ending:
		}
	}
}

// end begins to stop an active lease. An expired lease hands its execution over to its successor, if the successor is
// paid for.
func (s *step) end(r Record, reason string) {
	r.State, r.EndReason = Ending, clip(reason)
	if next := s.book.records.next(r.Lease); next != nil && next.State == Active && s.now.Slot >= r.Core.End {
		r.HandedTo = next.Lease
	}
	s.persist(r)
	s.emit(EndLease{r.Lease, r.EndReason})
	if r.HandedTo.IsZero() {
		s.lapse(&r, r.EndReason)
	}
}

func (s *step) reserve(ev ReserveRequested) {
	o := ev.Order
	if r := s.book.records.find(ev.Hold); r != nil {
		switch {
		case !r.Root.IsZero() || r.Buyer != o.Buyer || r.Peer() != o.Peer() || r.Order != o.ID || r.Rank != ev.Rank ||
			r.Price != ev.Price || r.Overlay != ev.Overlay || ev.Class != "" && r.Class != ev.Class:
			s.refuse(ev.Hold, market.Refuse(market.ReasonConflict, "hold id: already in use for another request"))
		case !r.State.Live():
			s.refuse(ev.Hold, market.Refuse(market.ReasonHold, "hold: ended: %s", r.EndReason))
		default:
			s.answerHeld(r)
		}
		return
	}
	if slices.Contains(s.book.over, ev.Hold) {
		s.refuse(ev.Hold, market.Refuse(market.ReasonHold, "hold: ended"))
		return
	}
	class, units, refusal := s.grant(ev)
	if refusal != nil {
		s.refuse(ev.Hold, refusal)
		return
	}
	r := Record{
		ID: ev.Hold, State: Held, Order: o.ID, OrderCount: o.Count, Buyer: o.Buyer, Agent: o.Agent, Rank: ev.Rank,
		Class: class, Units: units, PerUnit: s.book.stock.least(units), Price: ev.Price, Slots: o.Slots,
		JobTerms: o.JobTerms, Overlay: ev.Overlay, OrderExpires: o.Expires.Truncate(time.Millisecond).UTC(),
		HoldExpires: s.now.Time.Add(s.book.limits.HoldTTL).Truncate(time.Millisecond).UTC(),
		Made:        s.now.Time.Truncate(time.Millisecond).UTC(), Newcomer: ev.Backing != nil && ev.Backing.Newcomer,
	}
	s.persist(r)
	s.answerHeld(&r)
}

func (s *step) answerHeld(r *Record) {
	s.emit(AnswerHeld{r.ID, r.Units, r.HoldExpires, s.book.limits.overlayKey(r)})
}

// grant chooses the units for a new hold, or returns a refusal.
func (s *step) grant(ev ReserveRequested) (market.Class, []market.UnitID, *market.Refusal) {
	b, o := s.book, ev.Order
	if ev.Hold.IsZero() {
		return "", nil, market.Refuse(market.ReasonHold, "the hold id is not set")
	}
	if ev.Overlay && b.limits.OverlayKey == nil {
		return "", nil, market.Refuse(market.ReasonRuntime, "this provider joins no clusters")
	}
	if refusal := b.limits.feasible(s.now, o); refusal != nil {
		return "", nil, refusal
	}
	for _, r := range b.records {
		if r.State.Live() && r.Order == o.ID && r.Rank == ev.Rank {
			return "", nil, market.Refuse(market.ReasonConflict, "rank %d of this order is held already", ev.Rank)
		}
	}
	n := b.records.count(o.Buyer, o.ID)
	switch {
	case n.ofOrder >= int(o.Count):
		return "", nil, market.Refuse(market.ReasonLimit, "all %d leases of this order are held here already", o.Count)
	case b.limits.MaxLeasesPerBuyer > 0 && n.live >= b.limits.MaxLeasesPerBuyer:
		return "", nil, b.limits.enough(n)
	case ev.Overlay && b.limits.MaxMembers > 0 && n.members >= b.limits.MaxMembers:
		return "", nil, market.Refuse(market.ReasonLimit,
			"this provider has %d members of clusters, at most %d allowed", n.members, b.limits.MaxMembers)
	case n.ofBuyer >= b.limits.MaxHoldsPerBuyer:
		return "", nil, market.Refuse(market.ReasonLimit, "this buyer has %d unfunded holds, at most %d allowed",
			n.ofBuyer, b.limits.MaxHoldsPerBuyer)
	case n.unfunded >= b.limits.MaxHolds:
		return "", nil, market.Refuse(market.ReasonLimit, "%d unfunded holds are open, at most %d allowed",
			n.unfunded, b.limits.MaxHolds)
	}
	class, fit, refusal := b.choose(o, ev.Price, ev.Class)
	if refusal != nil {
		return "", nil, refusal
	}
	if _, refusal := b.backed(o, class, ev.Price, ev.Backing); refusal != nil {
		return "", nil, refusal
	}
	units, err := market.SortUnits(fit[:o.UnitsPer])
	if err != nil {
		return "", nil, market.Refuse(market.ReasonCapacity, "%v", err)
	}
	return class, units, nil
}

func (s *step) sign(ev SignRequested) {
	r := s.book.records.find(ev.Hold)
	if r == nil || r.Peer() != ev.By {
		s.refuse(ev.Hold, market.Refuse(market.ReasonHold, "no such hold of this buyer"))
		return
	}
	if !r.State.Live() {
		s.refuse(ev.Hold, market.Refuse(market.ReasonHold, "hold: ended: %s", r.EndReason))
		return
	}
	if r.Core != nil {
		if *r.Core != ev.Core {
			s.refuse(ev.Hold, market.Refuse(market.ReasonConflict, "hold: another lease is already signed"))
			return
		}
		s.emit(AnswerSigned{r.ID, *r.Core})
		return
	}
	if refusal := s.book.limits.checkTerms(s.now, r, ev); refusal != nil {
		s.refuse(ev.Hold, refusal)
		return
	}
	if other := s.book.records.lease(ev.Core.ID()); other != nil {
		s.refuse(ev.Hold, market.Refuse(market.ReasonConflict, "this very lease was signed before, under hold %s",
			other.ID.Short()))
		return
	}
	next := *r
	core := ev.Core
	next.State, next.Core, next.Lease, next.BuyerSig = Signed, &core, core.ID(), ev.BuyerSig
	next.Keys = market.KeySet{Threshold: ev.Keys.Threshold, Keys: slices.Clone(ev.Keys.Keys)}
	s.persist(next)
	s.emit(AnswerSigned{next.ID, core})
}

func (s *step) fund(ev FundingSeen) {
	r := s.book.records.lease(ev.Lease)
	switch {
	case r == nil:
		s.refuse(market.HoldID{}, market.Refuse(market.ReasonHold, "no such lease here"))
	case r.State == Active && r.FundBy > 0 && ev.Landed > r.Core.ActivateBefore:
		s.unpaid(*r, true)
		s.end(*r, fmt.Sprintf("escrow: on chain in slot %d, want by slot %d",
			ev.Landed, r.Core.ActivateBefore))
	case r.State == Active && r.FundBy > 0:
		next := *r
		next.FundBy = 0
		s.persist(next)
	case r.State == Active:
		s.emit(AnswerActivated{r.ID, r.Lease})
	case r.State != Signed:
		s.refuse(r.ID, market.Refuse(market.ReasonHold, "lease: ended: %s", r.EndReason))
	case ev.Landed > r.Core.ActivateBefore:
		s.refuse(r.ID, market.Refuse(market.ReasonUnfunded, "funded in slot %d, want by slot %d",
			ev.Landed, r.Core.ActivateBefore))
	default:
		next := *r
		next.State = Active
		s.persist(next)
		s.emit(Activate{next}, AnswerActivated{next.ID, next.Lease})
	}
}

func (s *step) promise(ev FundingPromised) {
	r := s.book.records.lease(ev.Lease)
	switch {
	case r == nil:
		s.refuse(market.HoldID{}, market.Refuse(market.ReasonHold, "no such lease here"))
	case r.State == Active && r.Escrow == ev.Escrow && bytes.Equal(r.Funding, ev.Funding):
		s.emit(AnswerActivated{r.ID, r.Lease})
	case r.State == Active:
		s.refuse(r.ID, market.Refuse(market.ReasonConflict,
			"lease: already activated with another escrow or leaf"))
	case r.State != Signed:
		s.refuse(r.ID, market.Refuse(market.ReasonHold, "lease: ended: %s", r.EndReason))
	case ev.Escrow.IsZero() || len(ev.Funding) == 0 || len(ev.Funding) > MaxFunding:
		s.refuse(r.ID, market.Refuse(market.ReasonUnfunded, "funding of %d bytes in escrow %s",
			len(ev.Funding), ev.Escrow.Short()))
	case s.now.Slot > r.Core.ActivateBefore || ev.By < s.now.Slot:
		s.refuse(r.ID, market.Refuse(market.ReasonUnfunded, "lease: activation deadline: slot %d, now slot %d",
			r.Core.ActivateBefore, s.now.Slot))
	default:
		next := *r
		next.State, next.Escrow, next.Funding, next.FundBy = Active, ev.Escrow, slices.Clone(ev.Funding), max(ev.By, 1)
		s.persist(next)
		s.emit(Activate{next}, AnswerActivated{next.ID, next.Lease})
	}
}

func (s *step) release(ev ReleaseRequested) {
	r := s.book.records.find(ev.Hold)
	if r == nil && ev.Hold.IsZero() {
		r = s.book.records.lease(ev.Lease)
	}
	if r == nil && !ev.Hold.IsZero() {
		s.book.forgot(ev.Hold) // its request may still arrive
	}
	if r == nil || r.Peer() != ev.By {
		// Nothing is held, so the release is complete. The answer does not reveal another buyer's holds.
		s.emit(AnswerReleased{ev.Hold})
		return
	}
	switch r.State {
	case Held, Signed:
		s.giveUp(*r, Released, "released by the buyer", false)
	case Active:
		s.unpaid(*r, false)
		s.end(*r, "released by the buyer")
	case Ending, Ended, Released, Void:
	}
	s.emit(AnswerReleased{r.ID})
}

func (s *step) ended(id market.LeaseID, reason string, ev Event) error {
	r := s.book.records.lease(id)
	if r == nil {
		return fmt.Errorf("%s: lease %s: %w", ev.event(), id.Short(), ErrUnknownLease)
	}
	switch r.State {
	case Active:
		s.finish(*r, Ended, reason)
	case Ending:
		s.finish(*r, Ended, r.EndReason)
	case Ended:
	case Held, Signed, Released, Void:
		return &InvalidTransition{From: r.State, To: Ended, Event: ev.event()}
	}
	return nil
}
