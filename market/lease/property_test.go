package lease_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// shell carries out effects the way a peer does: one by one, the journal being the only thing that outlives a crash.
type shell struct {
	t        *rapid.T
	units    []market.Unit
	book     lease.Book
	now      lease.Now
	journal  map[market.HoldID][]byte
	prefixes []map[market.HoldID][]byte // the journal after every write
	signed   map[market.HoldID]market.LeaseCore
	promised map[market.HoldID][]market.UnitID // what AnswerHeld told a buyer
	running  map[market.LeaseID]bool           // executions, which outlive a crash of the peer
}

func clone(journal map[market.HoldID][]byte) map[market.HoldID][]byte {
	out := make(map[market.HoldID][]byte, len(journal))
	for k, v := range journal {
		out[k] = v
	}
	return out
}

func (s *shell) do(effects []lease.Effect, stopAfter int) {
	for i, e := range effects {
		if i >= stopAfter {
			return
		}
		switch e := e.(type) {
		case lease.Persist:
			b, err := e.Record.Marshal()
			if err != nil {
				s.t.Fatal(err)
			}
			s.journal[e.Record.ID] = b
			s.prefixes = append(s.prefixes, clone(s.journal))
		case lease.Forget:
			delete(s.journal, e.Hold)
			s.prefixes = append(s.prefixes, clone(s.journal))
		case lease.AnswerHeld:
			r := s.record(e.Hold)
			if !r.State.Live() || !slices.Equal(r.Units, e.Units) {
				s.t.Fatalf("safety: hold %s was answered before it was journalled", e.Hold.Short())
			}
			if before, ok := s.promised[e.Hold]; ok && !slices.Equal(before, e.Units) {
				s.t.Fatalf("safety: hold %s was answered with two lists of units", e.Hold.Short())
			}
			s.promised[e.Hold] = e.Units
		case lease.AnswerSigned:
			if r := s.record(e.Hold); r.Core == nil || *r.Core != e.Core {
				s.t.Fatalf("safety: hold %s was signed before it was journalled", e.Hold.Short())
			}
			if before, ok := s.signed[e.Hold]; ok && before != e.Core {
				s.t.Fatalf("safety: two cores signed for hold %s", e.Hold.Short())
			}
			s.signed[e.Hold] = e.Core
		case lease.Activate:
			s.running[e.Record.Lease] = true
		}
	}
}

func (s *shell) record(hold market.HoldID) lease.Record {
	r, err := lease.UnmarshalRecord(s.journal[hold])
	if err != nil {
		s.t.Fatalf("safety: hold %s is not in the journal: %v", hold.Short(), err)
	}
	return r
}

func (s *shell) step(ev lease.Event, crash bool) []lease.Effect {
	next, effects, err := s.book.Step(s.now, ev)
	var invalid *lease.InvalidTransition
	if err != nil && !errors.As(err, &invalid) && !errors.Is(err, lease.ErrUnknownLease) {
		s.t.Fatal(err)
	}
	if crash {
		done := rapid.IntRange(0, len(effects)).Draw(s.t, "crash after effect")
		s.do(effects, done)
		s.restart()
		return nil
	}
	s.book = next
	s.do(effects, len(effects))
	return effects
}

func (s *shell) restart() {
	s.book = restore(s.t, s.units, s.journal)
	s.do(s.book.Resume(), 1<<30)
}

func restore(t rapid.TB, units []market.Unit, journal map[market.HoldID][]byte) lease.Book {
	var recs []lease.Record
	for _, b := range journal {
		r, err := lease.UnmarshalRecord(b)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	book, err := lease.NewBook(units, testLimits()).Restore(recs)
	if err != nil {
		t.Fatalf("safety: the journal cannot be restored: %v", err)
	}
	noUnitTwice(t, book)
	return book
}

// noUnitTwice is the safety property the market rests on, checked from the records alone.
func noUnitTwice(t rapid.TB, book lease.Book) {
	holder := map[market.UnitID]market.HoldID{}
	live := 0
	for r := range book.Records() {
		if !r.State.Live() {
			continue
		}
		for _, u := range r.Units {
			if other, twice := holder[u]; twice {
				t.Fatalf("safety: unit %s is in holds %s and %s", u.Short(), other.Short(), r.ID.Short())
			}
			holder[u] = r.ID
			live++
		}
	}
	if free := book.Free("cpu"); free+live != len(book.Units()) {
		t.Fatalf("safety: %d units free, %d held, %d in all", free, live, len(book.Units()))
	}
}

// TestBookProperties: whatever buyers, time and crashes do, a unit is in at most one live record, one hold has at most
// one signed core, nothing is answered before it is journalled (safety); and once time has passed and executions have
// stopped, every unit is free again (liveness).
func TestBookProperties(t *testing.T) {
	t.Parallel()
	units := testUnits(t, 4)
	rapid.Check(t, func(t *rapid.T) {
		s := &shell{t: t, units: units, book: lease.NewBook(units, testLimits()), now: lease.Now{Time: epoch, Slot: 1000},
			journal: map[market.HoldID][]byte{}, signed: map[market.HoldID]market.LeaseCore{},
			promised: map[market.HoldID][]market.UnitID{}, running: map[market.LeaseID]bool{}}
		orders := map[market.HoldID]market.Order{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			who := rapid.IntRange(0, 1).Draw(t, "buyer")
			hold := market.HoldID{byte(rapid.IntRange(1, 8).Draw(t, "hold"))}
			ev := randomEvent(t, s, orders, buyers[who], hold)
			before := s.book
			beforeFree := before.Free("cpu")
			s.step(ev, rapid.IntRange(0, 5).Draw(t, "crash") == 0)
			if before.Free("cpu") != beforeFree {
				t.Fatal("safety: Step changed the book it was called on")
			}
			noUnitTwice(t, s.book)
		}
		for _, journal := range s.prefixes {
			restore(t, units, journal)
		}
		s.now.Time, s.now.Slot = s.now.Time.Add(time.Hour), s.now.Slot+100_000
		s.step(lease.Ticked{}, false)
		for r := range s.book.Records() {
			if r.State == lease.Ending {
				s.step(lease.LeaseEnded{Lease: r.Lease, Reason: "stopped"}, false)
			}
		}
		s.step(lease.Ticked{}, false)
		if free := s.book.Free("cpu"); free != len(units) || len(s.journal) != 0 {
			t.Fatalf("liveness: %d of %d units free in the end, %d records left", free, len(units), len(s.journal))
		}
	})
}

func randomEvent(t *rapid.T, s *shell, orders map[market.HoldID]market.Order, buyer sign.Private, hold market.HoldID) lease.Event {
	known, exists := s.book.Hold(hold)
	switch rapid.IntRange(0, 7).Draw(t, "event") {
	case 0, 1:
		o := testOrder(buyer, byte(rapid.IntRange(1, 3).Draw(t, "order")), 3, uint32(rapid.IntRange(1, 2).Draw(t, "units per")))
		o.ID[1], o.ID[2] = byte(o.UnitsPer), buyer.Key()[0]
		o.Expires = s.now.Time.Truncate(time.Minute).Add(2 * time.Minute)
		orders[hold] = o
		return lease.ReserveRequested{Hold: hold, Order: o, Price: 45, Rank: uint32(rapid.IntRange(0, 2).Draw(t, "rank"))}
	case 2, 3:
		o := orders[hold]
		if !exists || o.ID != known.Order {
			return lease.Ticked{}
		}
		if known.Buyer != buyer.Key() && rapid.Bool().Draw(t, "as its buyer") {
			buyer = buyers[slices.IndexFunc(buyers, func(p sign.Private) bool { return p.Key() == known.Buyer })]
		}
		return signRequest(hold, buyer, draft(o, known.Units, known.Rank, known.Price, s.now, byte(rapid.IntRange(0, 2).Draw(t, "nonce"))))
	case 4:
		return lease.FundingSeen{Lease: known.Lease, Landed: s.now.Slot - market.Slot(rapid.IntRange(0, 5).Draw(t, "landed ago"))}
	case 5:
		return lease.ReleaseRequested{Hold: hold, By: buyer.Key()}
	case 6:
		if rapid.Bool().Draw(t, "lost") {
			return lease.ExecutionLost{Lease: known.Lease, Reason: "killed"}
		}
		return lease.LeaseEnded{Lease: known.Lease, Reason: "done"}
	default:
		s.now.Time = s.now.Time.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
		s.now.Slot += market.Slot(rapid.IntRange(0, 40).Draw(t, "slots"))
		return lease.Ticked{}
	}
}
