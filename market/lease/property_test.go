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
	promised map[market.HoldID][]market.UnitID   // what AnswerHeld told a buyer
	running  map[market.LeaseID]bool             // executions, which outlive a crash of the peer
	extended map[market.LeaseID]market.LeaseCore // what AnswerExtended told a buyer, by predecessor
	free     bool                                // nothing costs anything
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
			delete(s.promised, e.Hold) // until a restart a request for it is refused
			delete(s.signed, e.Hold)
			s.prefixes = append(s.prefixes, clone(s.journal))
		case lease.AnswerHeld:
			r := s.record(e.Hold)
			if !r.State.Live() || !slices.Equal(r.Units, e.Units) {
				s.t.Fatalf("safety: hold %s was answered before it was journalled", e.Hold.Short())
			}
			if before, ok := s.promised[e.Hold]; ok && !slices.Equal(before, e.Units) {
				s.t.Fatalf("safety: hold %s was answered with two lists of units", e.Hold.Short())
			}
			if r.Overlay && e.Overlay != overlayKey(e.Hold) || !r.Overlay && !e.Overlay.IsZero() {
				s.t.Fatalf("safety: hold %s was answered with overlay key %s", e.Hold.Short(), e.Overlay)
			}
			s.promised[e.Hold] = e.Units
		case lease.AnswerSigned:
			if r := s.record(e.Hold); r.Core == nil || *r.Core != e.Core {
				s.t.Fatalf("safety: hold %s was signed before it was journalled", e.Hold.Short())
			} else if r.Overlay && e.Core.Nonce != market.OverlayNonce(e.Hold, overlayKey(e.Hold)) {
				s.t.Fatalf("safety: the lease of hold %s does not commit to its overlay key", e.Hold.Short())
			}
			if before, ok := s.signed[e.Hold]; ok && before != e.Core {
				s.t.Fatalf("safety: two cores signed for hold %s", e.Hold.Short())
			}
			s.signed[e.Hold] = e.Core
		case lease.AnswerExtended:
			r := s.record(e.Hold)
			if *r.Core != e.Core {
				s.t.Fatalf("safety: extension %s was signed before it was journalled", r.Lease.Short())
			}
			if before, ok := s.extended[r.Previous]; ok && before != e.Core {
				s.t.Fatalf("safety: two successors signed for lease %s", r.Previous.Short())
			}
			s.extended[r.Previous] = e.Core
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
	book, err := lease.NewBook(units, classLimits()).Restore(recs)
	if err != nil {
		t.Fatalf("safety: the journal cannot be restored: %v", err)
	}
	noUnitTwice(t, book)
	return book
}

func classLimits() lease.Limits {
	l := testLimits()
	l.Asks = map[market.Class]market.Price{"cpu": 40, "gpu/a": 30, "gpu/b": 45}
	l.MaxHolds, l.MaxLeasesPerBuyer = 8, 5
	return l
}

// noUnitTwice is the safety property the market rests on, checked from the records alone.
func noUnitTwice(t rapid.TB, book lease.Book) {
	holder := map[market.UnitID][]lease.Record{}
	live := 0
	for r := range book.Records() {
		if !r.State.Live() {
			continue
		}
		for _, u := range r.Units {
			for _, other := range holder[u] {
				if r.Core == nil || other.Core == nil || first(r) != first(other) || r.Core.Start < other.Core.End && other.Core.Start < r.Core.End {
					t.Fatalf("safety: unit %s is in holds %s and %s", u.Short(), other.ID.Short(), r.ID.Short())
				}
			}
			if holder[u] = append(holder[u], r); len(holder[u]) == 1 {
				live++
			}
		}
	}
	oneInCommand(t, book)
	free, out, classOf := 0, 0, map[market.UnitID]market.Class{}
	for _, class := range []market.Class{"cpu", "gpu/a", "gpu/b"} {
		free += book.Free(class)
	}
	for _, u := range book.Units() {
		classOf[u.ID] = u.Class
		if _, held := holder[u.ID]; book.Withdrawn(u.ID) && !held {
			out++
		}
	}
	if free+live+out != len(book.Units()) {
		t.Fatalf("safety: %d units free, %d held, %d withdrawn, %d in all", free, live, out, len(book.Units()))
	}
	for r := range book.Records() {
		for _, u := range r.Units {
			if classOf[u] != r.Class {
				t.Fatalf("safety: a hold of %s has a unit of %s", r.Class, classOf[u])
			}
		}
	}
}

func first(r lease.Record) market.LeaseID {
	if r.Root.IsZero() {
		return r.Lease
	}
	return r.Root
}

// oneInCommand checks that of a line that is live exactly one lease ends what runs, and that a lease has one successor at most.
func oneInCommand(t rapid.TB, book lease.Book) {
	commanding, live, after := map[market.LeaseID]int{}, map[market.LeaseID]bool{}, map[market.LeaseID]market.HoldID{}
	for r := range book.Records() {
		if !r.Previous.IsZero() {
			if other, twice := after[r.Previous]; twice {
				t.Fatalf("safety: holds %s and %s follow on one lease", other.Short(), r.ID.Short())
			}
			after[r.Previous] = r.ID
		}
		if r.Core == nil || !r.State.Live() {
			continue
		}
		live[first(r)] = true
		if book.Commands(r.Lease) {
			commanding[first(r)]++
		}
		if now, ok := book.Current(first(r)); !ok || !now.State.Live() {
			t.Fatalf("safety: a live line has no current lease")
		}
	}
	for id := range live {
		if commanding[id] != 1 {
			t.Fatalf("safety: %d leases command the line of %s", commanding[id], id.Short())
		}
	}
}

// classUnits are units of three classes, two of them of one family.
func classUnits(t testing.TB) []market.Unit {
	units := testUnits(t, 2)
	for i, class := range []market.Class{"gpu/a", "gpu/a", "gpu/b", "gpu/b", "gpu/b"} {
		u, err := market.NewUnit(provider.Key(), class, "a GPU", "GPU-1", uint32(i), market.Resources{MilliCPU: 1000, MemoryMiB: 512, VRAMMiB: 1024})
		if err != nil {
			t.Fatal(err)
		}
		u.Capability = map[market.Class]market.Capability{"gpu/a": 80, "gpu/b": 90}[class]
		units = append(units, u)
	}
	return units
}

// randomBacking is what an order may be backed by: nothing is asked for on a free network.
func randomBacking(t *rapid.T, free bool) *lease.Backing {
	if free {
		return nil
	}
	return &lease.Backing{Funds: market.Amount(rapid.IntRange(0, 4).Draw(t, "funds")), Newcomer: rapid.Bool().Draw(t, "newcomer"), Wary: rapid.Bool().Draw(t, "wary")}
}

// withinBacking checks what was granted: the unpaid holds of the order's peer cost no more than it has, and newcomers have their part.
func withinBacking(t *rapid.T, after lease.Book, o market.Order, with *lease.Backing, r lease.Record) {
	if with == nil {
		return
	}
	if owed := after.Owed(o.Peer()); owed > with.Funds {
		t.Fatalf("safety: unpaid holds can cost %d, their peer has %d", owed, with.Funds)
	}
	taken := 0
	for x := range after.Records() {
		unpaid := x.State == lease.Held || x.State == lease.Signed || x.State == lease.Active && x.FundBy > 0
		if x.Root.IsZero() && unpaid && x.Newcomer && x.Class == r.Class {
			taken += len(x.Units)
		}
	}
	if most := max(after.Total(r.Class)*40/100, 1); with.Newcomer && with.Wary && taken > most {
		t.Fatalf("safety: newcomers have %d units of %s, at most %d", taken, r.Class, most)
	}
}

// cheapest checks that a new hold for an order has units of the cheapest class that could do it.
func cheapest(t *rapid.T, before lease.Book, ev lease.ReserveRequested, r lease.Record) {
	if !ev.Order.Class.Accepts(r.Class) || ev.Class != "" && r.Class != ev.Class || before.Limits().Asks[r.Class] > ev.Price {
		t.Fatalf("safety: an order for %s got %s at %d", ev.Order.Class, r.Class, ev.Price)
	}
	for class, ask := range before.Limits().Asks {
		if ev.Class == "" && ev.Order.Class.Accepts(class) && ask < before.Limits().Asks[r.Class] && before.Free(class) >= int(ev.Order.UnitsPer) &&
			(class != "gpu/a" || ev.Order.MinCapability <= 80) {
			t.Fatalf("liveness: an order for %s got %s though %s is cheaper and free", ev.Order.Class, r.Class, class)
		}
	}
}

// TestBookProperties: whatever buyers, time and crashes do, a unit is in at most one live record, one hold has at most
// one signed core, nothing is answered before it is journalled (safety); and once time has passed and executions have
// stopped, every unit is free again (liveness).
func TestBookProperties(t *testing.T) {
	t.Parallel()
	units := classUnits(t)
	free := func(b lease.Book) int { return b.Free("cpu") + b.Free("gpu/a") + b.Free("gpu/b") }
	rapid.Check(t, func(t *rapid.T) {
		s := &shell{t: t, units: units, book: lease.NewBook(units, classLimits()), now: lease.Now{Time: epoch, Slot: 1000},
			journal: map[market.HoldID][]byte{}, signed: map[market.HoldID]market.LeaseCore{},
			promised: map[market.HoldID][]market.UnitID{}, running: map[market.LeaseID]bool{}, extended: map[market.LeaseID]market.LeaseCore{}, free: rapid.Bool().Draw(t, "free")}
		orders := map[market.HoldID]market.Order{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			who := rapid.IntRange(0, 1).Draw(t, "buyer")
			hold := market.HoldID{byte(rapid.IntRange(1, 8).Draw(t, "hold"))}
			ev := randomEvent(t, s, orders, buyers[who], hold)
			before := s.book
			swept, _, err := before.Step(s.now, lease.Ticked{}) // holds whose time is over are free for this event
			if err != nil {
				t.Fatal(err)
			}
			beforeFree := free(before)
			effects := s.step(ev, rapid.IntRange(0, 5).Draw(t, "crash") == 0)
			if free(before) != beforeFree {
				t.Fatal("safety: Step changed the book it was called on")
			}
			if ev, ok := ev.(lease.ReserveRequested); ok {
				if _, before := before.Hold(ev.Hold); !before {
					if p, ok := find[lease.Persist](slices.DeleteFunc(effects, func(e lease.Effect) bool {
						p, ok := e.(lease.Persist)
						return ok && p.Record.ID != ev.Hold
					})); ok {
						cheapest(t, swept, ev, p.Record)
						withinBacking(t, s.book, ev.Order, ev.Backing, p.Record)
					}
				}
			}
			noUnitTwice(t, s.book)
		}
		for _, journal := range s.prefixes {
			restore(t, units, journal)
		}
		s.book = s.book.WithWithdrawn(nil)
		s.now.Time, s.now.Slot = s.now.Time.Add(time.Hour), s.now.Slot+100_000
		s.step(lease.Ticked{}, false)
		for r := range s.book.Records() {
			if r.State == lease.Ending {
				s.step(lease.LeaseEnded{Lease: r.Lease, Reason: "stopped"}, false)
			}
		}
		s.step(lease.Ticked{}, false)
		s.step(lease.Ticked{}, false) // what follows on a lease is forgotten after it
		if free := free(s.book); free != len(units) || len(s.journal) != 0 {
			t.Fatalf("liveness: %d of %d units free in the end, %d records left", free, len(units), len(s.journal))
		}
	})
}

func randomEvent(t *rapid.T, s *shell, orders map[market.HoldID]market.Order, buyer sign.Private, hold market.HoldID) lease.Event {
	known, exists := s.book.Hold(hold)
	switch rapid.IntRange(0, 11).Draw(t, "event") {
	case 11:
		return lease.FundingPromised{Lease: known.Lease, Escrow: sign.Key{byte(rapid.IntRange(0, 2).Draw(t, "escrow"))}, Funding: []byte{1},
			By: s.now.Slot + market.Slot(rapid.IntRange(0, 30).Draw(t, "in"))}
	case 9, 10:
		return randomExtension(t, s, buyer)
	case 0, 1:
		o := testOrder(buyer, byte(rapid.IntRange(1, 3).Draw(t, "order")), 3, uint32(rapid.IntRange(1, 2).Draw(t, "units per")))
		o.Class = rapid.SampledFrom([]market.Class{"cpu", "gpu", "gpu/a", "gpu/b"}).Draw(t, "class")
		o.MinCapability = rapid.SampledFrom([]market.Capability{0, 0, 85}).Draw(t, "min capability")
		o.ID[1], o.ID[2] = byte(o.UnitsPer), buyer.Key()[0]
		o.ID[3], o.ID[4] = o.Class[len(o.Class)-1], byte(o.MinCapability)
		o.Expires = s.now.Time.Truncate(time.Minute).Add(2 * time.Minute)
		orders[hold] = o
		return lease.ReserveRequested{Hold: hold, Order: o, Price: 45, Rank: uint32(rapid.IntRange(0, 2).Draw(t, "rank")),
			Class: rapid.SampledFrom([]market.Class{"", "", o.Class, "gpu/b"}).Draw(t, "named class"), Overlay: rapid.Bool().Draw(t, "overlay"),
			Backing: randomBacking(t, s.free)}
	case 2, 3:
		o := orders[hold]
		if !exists || o.ID != known.Order {
			return lease.Ticked{}
		}
		if known.Buyer != buyer.Key() && rapid.Bool().Draw(t, "as its buyer") {
			buyer = buyers[slices.IndexFunc(buyers, func(p sign.Private) bool { return p.Key() == known.Buyer })]
		}
		d := draft(o, known.Units, known.Rank, known.Price, s.now, byte(rapid.IntRange(0, 2).Draw(t, "nonce")))
		if known.Overlay && rapid.IntRange(0, 4).Draw(t, "other nonce") > 0 {
			d.Nonce = market.OverlayNonce(hold, overlayKey(hold))
		}
		return signRequest(hold, buyer, d)
	case 4:
		return lease.FundingSeen{Lease: known.Lease, Landed: s.now.Slot - market.Slot(rapid.IntRange(0, 5).Draw(t, "landed ago"))}
	case 5:
		return lease.ReleaseRequested{Hold: hold, By: buyer.Key()}
	case 6:
		if rapid.Bool().Draw(t, "lost") {
			return lease.ExecutionLost{Lease: known.Lease, Reason: "killed"}
		}
		return lease.LeaseEnded{Lease: known.Lease, Reason: "done"}
	case 7:
		var out []market.UnitID
		for i, u := range s.units {
			if rapid.IntRange(0, 3).Draw(t, "withdrawn") == 0 && i > 0 {
				out = append(out, u.ID)
			}
		}
		s.book = s.book.WithWithdrawn(out)
		return lease.Ticked{}
	default:
		s.now.Time = s.now.Time.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
		s.now.Slot += market.Slot(rapid.IntRange(0, 40).Draw(t, "slots"))
		return lease.Ticked{}
	}
}

// randomExtension extends, funds or releases a lease of some line, the right one or not.
func randomExtension(t *rapid.T, s *shell, buyer sign.Private) lease.Event {
	var leases []lease.Record
	for r := range s.book.Records() {
		if r.Core != nil {
			leases = append(leases, r)
		}
	}
	if len(leases) == 0 {
		return lease.Ticked{}
	}
	r := rapid.SampledFrom(leases).Draw(t, "lease")
	switch rapid.IntRange(0, 4).Draw(t, "do") {
	case 0:
		return lease.FundingSeen{Lease: r.Lease, Landed: s.now.Slot}
	case 1:
		return lease.ReleaseRequested{Lease: r.Lease, By: buyer.Key()}
	}
	if rapid.IntRange(0, 9).Draw(t, "as its buyer") > 0 {
		buyer = buyers[slices.IndexFunc(buyers, func(p sign.Private) bool { return p.Key() == r.Buyer })]
	}
	core, err := r.Core.Follow(r.Core.End + market.Slot(rapid.IntRange(1, 400).Draw(t, "longer")))
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 9).Draw(t, "bent") == 0 {
		core.Rate++
	}
	sig, _ := core.Sign(domain, buyer)
	return lease.ExtendRequested{Lease: r.Lease, By: buyer.Key(), Core: core, BuyerSig: sig}
}
