package lease_test

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

// newShell is a provider with free units of three classes.
func newShell(t *rapid.T, units []market.Unit) *shell {
	return &shell{
		t: t, units: units, book: lease.NewBook(units, classLimits()), now: lease.Now{Time: epoch, Slot: 1000},
		journal: map[market.HoldID][]byte{}, signed: map[market.HoldID]market.LeaseCore{},
		promised: map[market.HoldID][]market.UnitID{}, running: map[market.LeaseID]bool{},
		extended: map[market.LeaseID]market.LeaseCore{}, free: rapid.Bool().Draw(t, "free"),
	}
}

// wander has a number of random events happen.
func (s *shell) wander(most int) {
	orders := map[market.HoldID]market.Order{}
	for range rapid.IntRange(0, most).Draw(s.t, "events") {
		buyer := buyers[rapid.IntRange(0, 1).Draw(s.t, "buyer")]
		hold := market.HoldID{byte(rapid.IntRange(1, 8).Draw(s.t, "hold"))}
		s.step(randomEvent(s.t, s, orders, buyer, hold), false)
	}
}

// bytesOf are the records of a book in the journal's form, by hold.
func bytesOf(t rapid.TB, b lease.Book) map[market.HoldID]string {
	out := map[market.HoldID]string{}
	for r := range b.Records() {
		form, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		out[r.ID] = string(form)
	}
	return out
}

// TestQuotesAreKept: a quote is for as many leases as its buyer can then reserve, one for each rank, of that class and
// at that price (liveness); and for no more units than are free (safety).
func TestQuotesAreKept(t *testing.T) {
	t.Parallel()
	units := classUnits(t)
	quotes := 0
	rapid.Check(t, func(t *rapid.T) {
		s := newShell(t, units)
		s.wander(20)
		s.step(lease.Ticked{}, false)
		o := testOrder(buyers[0], 9, uint32(rapid.IntRange(1, 5).Draw(t, "count")), uint32(rapid.IntRange(1, 3).Draw(t, "units per")))
		o.Class = rapid.SampledFrom([]market.Class{"cpu", "gpu", "gpu/a", "gpu/b"}).Draw(t, "class")
		o.Expires = s.now.Time.Add(time.Minute)
		with := randomBacking(t, s.free)
		q, refusal := s.book.Quote(s.now, o, with)
		if refusal != nil {
			if q != (lease.Quoted{}) || refusal.Reason == "" || refusal.Detail == "" {
				t.Fatalf("refused with %+v: %v", q, refusal)
			}
			return
		}
		if q.Leases == 0 || int(q.Leases*o.UnitsPer) > s.book.Free(q.Class) || q.Leases > o.Count || q.Price != s.book.Limits().Asks[q.Class] {
			t.Fatalf("safety: quoted %+v for an order of %d, %d units are free", q, o.Count, s.book.Free(q.Class))
		}
		quotes++
		for rank := range q.Leases {
			hold := market.HoldID{200, byte(rank)}
			effects := s.step(lease.ReserveRequested{Hold: hold, Order: o, Price: q.Price, Rank: rank, Class: q.Class, Backing: with}, false)
			held, ok := find[lease.AnswerHeld](effects)
			r, _ := s.book.Hold(hold)
			if !ok || len(held.Units) != int(o.UnitsPer) || r.Class != q.Class || r.Price != q.Price {
				t.Fatalf("liveness: quoted %+v, rank %d got %v", q, rank, effects)
			}
		}
		noUnitTwice(t, s.book)
	})
	if quotes == 0 {
		t.Error("nothing was quoted, so that nothing was tested")
	}
}

// TestJournalIsTheBook: after every event the journal has exactly the records of the book, so that a restart loses no
// hold and revives none; and the restored book answers the next event as the other does (safety).
func TestJournalIsTheBook(t *testing.T) {
	t.Parallel()
	units := classUnits(t)
	rapid.Check(t, func(t *rapid.T) {
		s, orders := newShell(t, units), map[market.HoldID]market.Order{}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			buyer := buyers[rapid.IntRange(0, 1).Draw(t, "buyer")]
			ev := randomEvent(t, s, orders, buyer, market.HoldID{byte(rapid.IntRange(1, 8).Draw(t, "hold"))})
			again, _, _ := s.book.Step(s.now, ev)
			s.step(ev, false)
			if !reflect.DeepEqual(bytesOf(t, again), bytesOf(t, s.book)) {
				t.Fatal("safety: one event has two outcomes")
			}
			written := map[market.HoldID]string{}
			for id, form := range s.journal {
				written[id] = string(form)
			}
			if !reflect.DeepEqual(written, bytesOf(t, s.book)) {
				t.Fatalf("safety: %d records in the journal, %d in the book, or others", len(written), len(bytesOf(t, s.book)))
			}
			restored := restore(t, units, s.journal)
			for _, u := range units {
				one, held := s.book.Holder(u.ID)
				other, after := restored.Holder(u.ID)
				if held != after || one.ID != other.ID {
					t.Fatalf("safety: unit %s is held by %s, after a restart by %s", u.ID.Short(), one.ID.Short(), other.ID.Short())
				}
			}
			a, aEffects, _ := s.book.WithWithdrawn(nil).Step(s.now, lease.Ticked{})
			b, bEffects, _ := restored.Step(s.now, lease.Ticked{})
			if !reflect.DeepEqual(bytesOf(t, a), bytesOf(t, b)) || len(aEffects) != len(bEffects) {
				t.Fatalf("safety: a tick does %v, after a restart %v", aEffects, bEffects)
			}
		}
	})
}

// TestStrangersChangeNothing: whatever a peer asks that commands no hold, however odd its numbers, no record changes, and
// nothing panics (safety).
func TestStrangersChangeNothing(t *testing.T) {
	t.Parallel()
	units, stranger := classUnits(t), sign.NewPrivate([32]byte{77})
	rapid.Check(t, func(t *rapid.T) {
		s := newShell(t, units)
		s.wander(30)
		s.step(lease.Ticked{}, false)
		ids, leases := []market.HoldID{{}, {99}}, []market.LeaseID{{}, {99}}
		var cores []market.LeaseCore
		for r := range s.book.Records() {
			ids, leases = append(ids, r.ID), append(leases, r.Lease)
			if r.Core != nil {
				cores = append(cores, *r.Core)
			}
		}
		odd := market.LeaseCore{
			Version: market.LeaseVersion, Units: math.MaxUint16, Rank: math.MaxUint32, Rate: math.MaxUint64, Cap: math.MaxUint64,
			Start: math.MaxUint64, ActivateBefore: math.MaxUint64, End: math.MaxUint64, Buyer: stranger.Key(),
		}
		cores = append(cores, market.LeaseCore{}, odd)
		before := bytesOf(t, s.book)
		for range rapid.IntRange(1, 10).Draw(t, "requests") {
			hold, id := rapid.SampledFrom(ids).Draw(t, "hold"), rapid.SampledFrom(leases).Draw(t, "lease")
			core := rapid.SampledFrom(cores).Draw(t, "core")
			sig, _ := core.Sign(domain, stranger)
			keys, err := market.NewKeySet(1, stranger.Key())
			if err != nil {
				t.Fatal(err)
			}
			ev := rapid.SampledFrom([]lease.Event{
				lease.ReleaseRequested{Hold: hold, By: stranger.Key()}, lease.ReleaseRequested{Lease: id, By: stranger.Key()},
				lease.SignRequested{Hold: hold, By: stranger.Key(), Core: core, Keys: keys, BuyerSig: sig},
				lease.SignRequested{Hold: hold, By: stranger.Key(), Core: core},
				lease.ExtendRequested{Lease: id, By: stranger.Key(), Core: core, BuyerSig: sig},
			}).Draw(t, "request")
			next, effects, err := s.book.Step(s.now, ev)
			var invalid *lease.InvalidTransition
			if err != nil && !errors.As(err, &invalid) && !errors.Is(err, lease.ErrUnknownLease) {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(bytesOf(t, next), before) {
				t.Fatalf("safety: %#v of a stranger changed a record: %v", ev, effects)
			}
			for _, e := range effects {
				switch e.(type) {
				case lease.AnswerRefused, lease.AnswerReleased:
				default:
					t.Fatalf("safety: %#v of a stranger has effect %#v", ev, e)
				}
			}
		}
	})
}

// TestDeadlinesSuffice: a shell that ticks only when NextDeadline says so ends every hold that nobody signed or paid for
// (liveness), and never before its time.
func TestDeadlinesSuffice(t *testing.T) {
	t.Parallel()
	units := classUnits(t)
	rapid.Check(t, func(t *rapid.T) {
		s := newShell(t, units)
		s.wander(25)
		s.step(lease.Ticked{}, false)
		for ticks := 0; ; ticks++ {
			at, ok := s.book.NextDeadline()
			if !ok {
				break
			}
			if !at.After(s.now.Time) || ticks > 100 {
				t.Fatalf("liveness: after %d ticks the next deadline is %v, it is %v", ticks, at, s.now.Time)
			}
			before := len(bytesOf(t, s.book))
			s.now.Time = at.Add(-time.Millisecond)
			s.step(lease.Ticked{}, false)
			if n := len(bytesOf(t, s.book)); n != before {
				t.Fatalf("a hold ended before its time: %d records, then %d", before, n)
			}
			s.now.Time = at
			s.step(lease.Ticked{}, false)
		}
		for r := range s.book.Records() {
			if r.State == lease.Held || r.State == lease.Signed && r.Root.IsZero() {
				t.Fatalf("liveness: hold %s is still %s", r.ID.Short(), r.State)
			}
		}
	})
}

// TestDraftCore: both sides compute one core of a draft, in whatever order its units are; it never costs more than its
// rate allows, and numbers that do not fit are an error.
func TestDraftCore(t *testing.T) {
	t.Parallel()
	keys, err := market.NewKeySet(1, buyers[0].Key())
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		number := func(label string) uint64 {
			return rapid.OneOf(rapid.Uint64Range(1, 2000), rapid.Just(uint64(math.MaxUint64)), rapid.Uint64()).Draw(t, label)
		}
		o := testOrder(buyers[0], 1, 3, 1)
		o.Slots = number("slots")
		ids := []market.UnitID{{3}, {1}, {2}}[:rapid.IntRange(0, 3).Draw(t, "units")]
		d := lease.Draft{
			Order: o, Provider: provider.Key(), Payout: payout, Units: ids, Price: market.Price(number("price")),
			SlotMillis: rapid.SampledFrom([]uint64{0, 1, 400, market.MaxSlotMillis, math.MaxUint64}).Draw(t, "slot"),
			Keys:       keys, Start: market.Slot(number("start")), ActivateBefore: market.Slot(number("activate before")),
		}
		core, err := d.Core()
		if err != nil {
			return
		}
		made++
		most, err := core.Rate.Owed(core.Slots())
		if err != nil || core.Cap != most || core.Slots() != o.Slots || int(core.Units) != len(ids) || core.Validate() != nil {
			t.Fatalf("core %+v of draft %+v: %v", core, d, err)
		}
		d.Units = slices.Clone(ids)
		slices.Reverse(d.Units)
		if again, err := d.Core(); err != nil || again != core {
			t.Fatalf("in another order: %+v, %v, want %+v", again, err, core)
		}
		if d.Units = append(d.Units, ids[0]); len(ids) > 0 {
			if _, err := d.Core(); err == nil {
				t.Fatal("a lease has a unit twice")
			}
		}
	})
	if made == 0 {
		t.Error("no core was made, so that nothing was tested")
	}
}

// TestWithdrawnUnitsAreNotSold: a hold that is made has none of the withdrawn units, and only units with an audit record
// unless the order takes others (safety).
func TestWithdrawnUnitsAreNotSold(t *testing.T) {
	t.Parallel()
	units := classUnits(t)
	some := func(t *rapid.T, label string) (ids []market.UnitID) {
		for _, u := range units {
			if rapid.Bool().Draw(t, label) {
				ids = append(ids, u.ID)
			}
		}
		return ids
	}
	rapid.Check(t, func(t *rapid.T) {
		out, shown := some(t, "withdrawn"), some(t, "shown")
		book := lease.NewBook(units, classLimits()).WithWithdrawn(out).WithShown(shown)
		for n := range rapid.IntRange(1, 6).Draw(t, "orders") {
			o := testOrder(buyers[n%2], byte(n), 1, uint32(rapid.IntRange(1, 2).Draw(t, "units")))
			o.Class = rapid.SampledFrom([]market.Class{"cpu", "gpu"}).Draw(t, "class")
			o.Unproven = rapid.Bool().Draw(t, "unproven")
			next, effects, err := book.Step(lease.Now{Time: epoch, Slot: 1000}, lease.ReserveRequested{Hold: market.HoldID{byte(n + 1)}, Order: o, Price: 45})
			if err != nil {
				t.Fatal(err)
			}
			if held, ok := find[lease.AnswerHeld](effects); ok {
				for _, u := range held.Units {
					if slices.Contains(out, u) || !o.Unproven && !slices.Contains(shown, u) {
						t.Fatalf("safety: unit %s was sold", u.Short())
					}
				}
			}
			book = next
		}
	})
}

// Limits by which nothing could be sold, or that are not set, are refused; the book panics on them.
func TestLimits(t *testing.T) {
	t.Parallel()
	if err := testLimits().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*lease.Limits){
		"no provider": func(l *lease.Limits) { l.Provider = sign.Key{} }, "no payout": func(l *lease.Limits) { l.Payout = sign.Key{} },
		"slots of 0 ms": func(l *lease.Limits) { l.SlotMillis = 0 }, "endless slots": func(l *lease.Limits) { l.SlotMillis = math.MaxUint64 },
		"leases of 0 slots": func(l *lease.Limits) { l.MinSlots = 0 }, "min over max": func(l *lease.Limits) { l.MinSlots = l.MaxSlots + 1 },
		"endless leases": func(l *lease.Limits) { l.MaxSlots = market.MaxLeaseSlots + 1 },
		"-1 leases":      func(l *lease.Limits) { l.MaxLeasesPerBuyer = -1 }, "-1 members": func(l *lease.Limits) { l.MaxMembers = -1 },
		"holds of 0 s": func(l *lease.Limits) { l.HoldTTL = 0 }, "leases signed in 0 s": func(l *lease.Limits) { l.SignTTL = 0 },
		"no holds": func(l *lease.Limits) { l.MaxHolds = 0 }, "no holds of one": func(l *lease.Limits) { l.MaxHoldsPerBuyer = 0 },
		"funded at once": func(l *lease.Limits) { l.ActivateWithin = 0 }, "no network": func(l *lease.Limits) { l.Domain = sign.Domain{} },
	} {
		l := testLimits()
		change(&l)
		if _, err := lease.NewBook(nil, testLimits()).WithLimits(l); !errors.Is(err, lease.ErrLimits) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
