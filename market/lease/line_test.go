package lease_test

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

// line is a book with one active lease of units 0 and 1, slots 1000 to 1100.
type line struct {
	t     *testing.T
	units []market.Unit
	book  lease.Book
	now   lease.Now
	first lease.Record
}

func newLine(t *testing.T) *line {
	l := &line{t: t, units: testUnits(t, 3), now: lease.Now{Time: epoch, Slot: 1000}}
	l.book = lease.NewBook(l.units, testLimits())
	o := testOrder(buyers[0], 1, 1, 2)
	held, _ := find[lease.AnswerHeld](l.step(lease.ReserveRequested{Hold: market.HoldID{1}, Order: o, Price: 45}))
	l.step(signRequest(market.HoldID{1}, buyers[0], draft(o, held.Units, 0, 45, l.now, 1)))
	l.first, _ = l.book.Hold(market.HoldID{1})
	l.step(lease.FundingSeen{Lease: l.first.Lease, Landed: 1000})
	l.first, _ = l.book.Hold(market.HoldID{1})
	return l
}

func (l *line) step(ev lease.Event) []lease.Effect {
	l.t.Helper()
	next, effects, err := l.book.Step(l.now, ev)
	if err != nil {
		l.t.Fatal(err)
	}
	l.book = next
	noLineTwice(l.t, l.book)
	return effects
}

func noLineTwice(t *testing.T, b lease.Book) {
	t.Helper()
	var recs []lease.Record
	for r := range b.Records() {
		raw, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := lease.UnmarshalRecord(raw)
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, back)
	}
	again, err := lease.NewBook(b.Units(), b.Limits()).Restore(recs)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range b.Units() {
		x, held := b.Holder(u.ID)
		y, still := again.Holder(u.ID)
		if held != still || x.ID != y.ID {
			t.Fatalf("restored, unit %s is held by %v %s, was by %v %s", u.ID.Short(), still, y.ID.Short(), held, x.ID.Short())
		}
	}
}

func extension(by sign.Private, before market.LeaseCore, end market.Slot, change func(*market.LeaseCore)) lease.ExtendRequested {
	core, err := before.Follow(end)
	if err != nil {
		panic(err)
	}
	id := before.ID()
	if change != nil {
		change(&core)
	}
	sig, _ := core.Sign(domain, by)
	return lease.ExtendRequested{Lease: id, By: by.Key(), Core: core, BuyerSig: sig}
}

func (l *line) extend(before market.LeaseCore, end market.Slot) lease.Record {
	l.t.Helper()
	effects := l.step(extension(buyers[0], before, end, nil))
	if p, ok := effects[0].(lease.Persist); !ok || p.Record.State != lease.Signed {
		l.t.Fatalf("not journalled before the answer: %v", effects)
	}
	a, ok := find[lease.AnswerExtended](effects)
	if !ok {
		l.t.Fatalf("not extended: %v", effects)
	}
	r, _ := l.book.Hold(a.Hold)
	return r
}

func (l *line) state(id market.LeaseID) lease.State {
	r, ok := l.book.Lease(id)
	if !ok {
		return 0
	}
	return r.State
}

// An extended lease hands over in its last slot, twice in a row, and its units are free when the last is over.
func TestExtendTwice(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	second := l.extend(*l.first.Core, 1300)
	l.step(lease.FundingSeen{Lease: second.Lease, Landed: 1010})
	third := l.extend(*second.Core, 1400)
	l.step(lease.FundingSeen{Lease: third.Lease, Landed: 1010})
	if free := l.book.Free("cpu"); free != 1 {
		t.Errorf("%d units free", free)
	}
	chain := []lease.Record{l.first, second, third}
	for i, r := range chain {
		if now, _ := l.book.Current(l.first.Lease); now.Lease != r.Lease || !l.book.Commands(r.Lease) {
			t.Fatalf("lease %d is not in force", i)
		}
		l.now.Slot, l.now.Time = r.Core.End, l.now.Time.Add(5*time.Minute)
		effects := l.step(lease.Ticked{})
		if e, ok := find[lease.EndLease](effects); !ok || e.Lease != r.Lease {
			t.Fatalf("lease %d: %v", i, effects)
		}
		if over, _ := l.book.Lease(r.Lease); over.State != lease.Ending || over.HandedTo.IsZero() != (i == 2) {
			t.Fatalf("lease %d is %s, handed to %s", i, over.State, over.HandedTo.Short())
		}
		_, freed := find[lease.UnitsFreed](l.step(lease.LeaseEnded{Lease: r.Lease, Reason: "over"}))
		if freed != (i == 2) {
			t.Fatalf("lease %d: units freed: %v", i, freed)
		}
	}
	if free := l.book.Free("cpu"); free != 3 {
		t.Errorf("%d units free in the end", free)
	}
}

// Whatever a buyer asks that is not its own lease made longer is refused, and the same request gets the same answer.
func TestExtendRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare  func(*line)
		stranger bool
		end      market.Slot
		change   func(*market.LeaseCore)
		want     market.Reason
	}{
		"someone else's":  {stranger: true, want: market.ReasonHold},
		"a wrong start":   {change: func(c *market.LeaseCore) { c.Start--; c.ActivateBefore-- }, want: market.ReasonTerms},
		"a higher rate":   {change: func(c *market.LeaseCore) { c.Rate *= 2 }, want: market.ReasonTerms},
		"a lower rate":    {change: func(c *market.LeaseCore) { c.Rate-- }, want: market.ReasonTerms},
		"other units":     {change: func(c *market.LeaseCore) { c.UnitsRoot[0]++ }, want: market.ReasonTerms},
		"more units":      {change: func(c *market.LeaseCore) { c.Units++ }, want: market.ReasonTerms},
		"another payout":  {change: func(c *market.LeaseCore) { c.Payout = sign.Key{9} }, want: market.ReasonTerms},
		"another order":   {change: func(c *market.LeaseCore) { c.Order[0]++ }, want: market.ReasonTerms},
		"another nonce":   {change: func(c *market.LeaseCore) { c.Nonce[0]++ }, want: market.ReasonTerms},
		"a larger cap":    {change: func(c *market.LeaseCore) { c.Cap++ }, want: market.ReasonTerms},
		"no successor":    {change: func(c *market.LeaseCore) { c.Flags = 0 }, want: market.ReasonTerms},
		"not signed":      {end: 1, want: market.ReasonSignature},
		"too long in all": {end: 2001, want: market.ReasonDuration},
		"dearer by now": {prepare: func(l *line) { l.limit(func(x *lease.Limits) { x.Asks = map[market.Class]market.Price{"cpu": 46} }) },
			want: market.ReasonPrice},
		"no longer sold": {prepare: func(l *line) { l.limit(func(x *lease.Limits) { x.Asks = map[market.Class]market.Price{"gpu": 1} }) },
			want: market.ReasonClass},
		"withdrawn":       {prepare: func(l *line) { l.book = l.book.WithWithdrawn([]market.UnitID{l.first.Units[0]}) }, want: market.ReasonCapacity},
		"after its end":   {prepare: func(l *line) { l.now.Slot = 1100 }, want: market.ReasonHold},
		"released":        {prepare: func(l *line) { l.step(lease.ReleaseRequested{Lease: l.first.Lease, By: buyers[0].Key()}) }, want: market.ReasonHold},
		"extended before": {prepare: func(l *line) { l.extend(*l.first.Core, 1150) }, want: market.ReasonConflict},
	} {
		l := newLine(t)
		if c.prepare != nil {
			c.prepare(l)
		}
		by, end := buyers[0], market.Slot(1300)
		if c.stranger {
			by = buyers[1]
		}
		if c.end > 1 {
			end = c.end
		}
		ev := extension(by, *l.first.Core, end, c.change)
		if c.end == 1 {
			ev.BuyerSig[0]++
		}
		effects := l.step(ev)
		no, ok := effects[len(effects)-1].(lease.AnswerRefused)
		if !ok || no.Refusal.Reason != c.want {
			t.Errorf("%s: %+v, want %s", name, effects, c.want)
		}
	}
	l := newLine(t)
	l.extend(*l.first.Core, 1300)
	if again := l.step(extension(buyers[0], *l.first.Core, 1300, nil)); len(again) != 1 {
		t.Errorf("a repeated request: %v", again)
	}
}

func (l *line) limit(change func(*lease.Limits)) {
	limits := l.book.Limits()
	change(&limits)
	var err error
	if l.book, err = l.book.WithLimits(limits); err != nil {
		l.t.Fatal(err)
	}
}

// A successor that is not paid for lapses at its start; one whose predecessor ends early ends with it; one that is given back
// leaves its predecessor as it was; and none of them can be had again.
func TestSuccessorLapses(t *testing.T) {
	t.Parallel()
	t.Run("not funded", func(t *testing.T) {
		l := newLine(t)
		next := l.extend(*l.first.Core, 1300)
		l.now.Slot = 1100
		l.step(lease.Ticked{})
		if r, _ := l.book.Lease(l.first.Lease); r.State != lease.Ending || !r.HandedTo.IsZero() || l.state(next.Lease) != lease.Released {
			t.Fatalf("%s, %s", r.State, l.state(next.Lease))
		}
		no, _ := find[lease.AnswerRefused](l.step(lease.FundingSeen{Lease: next.Lease, Landed: 1099}))
		if no.Refusal == nil || !strings.Contains(no.Refusal.Detail, "preceding lease: ended") {
			t.Errorf("%+v", no)
		}
		if _, freed := find[lease.UnitsFreed](l.step(lease.LeaseEnded{Lease: l.first.Lease})); !freed {
			t.Error("units are not free")
		}
	})
	t.Run("predecessor released", func(t *testing.T) {
		l := newLine(t)
		next := l.extend(*l.first.Core, 1300)
		l.step(lease.FundingSeen{Lease: next.Lease, Landed: 1050})
		l.step(lease.ReleaseRequested{Lease: l.first.Lease, By: buyers[0].Key()})
		if l.state(next.Lease) != lease.Ending {
			t.Fatalf("the successor is %s", l.state(next.Lease))
		}
		if _, freed := find[lease.UnitsFreed](l.step(lease.LeaseEnded{Lease: l.first.Lease})); freed || !l.book.Commands(next.Lease) {
			t.Error("units are free before both are over")
		}
		if _, freed := find[lease.UnitsFreed](l.step(lease.LeaseEnded{Lease: next.Lease})); !freed {
			t.Error("units are not free")
		}
	})
	t.Run("given back", func(t *testing.T) {
		l := newLine(t)
		next := l.extend(*l.first.Core, 1300)
		l.step(lease.FundingSeen{Lease: next.Lease, Landed: 1050})
		l.step(lease.ReleaseRequested{Lease: next.Lease, By: buyers[0].Key()})
		if l.book.Commands(next.Lease) || !l.book.Commands(l.first.Lease) || l.state(l.first.Lease) != lease.Active {
			t.Error("giving a successor back touched what runs")
		}
		if _, freed := find[lease.UnitsFreed](l.step(lease.LeaseEnded{Lease: next.Lease})); freed {
			t.Error("units are free while the first lease is active")
		}
		l.now.Time = l.now.Time.Add(time.Hour)
		no, _ := find[lease.AnswerRefused](l.step(extension(buyers[0], *l.first.Core, 1200, nil)))
		if no.Refusal == nil || no.Refusal.Reason != market.ReasonConflict {
			t.Errorf("another successor: %+v", no)
		}
	})
}

// A successor is signed by extending, never for a hold of its own.
func TestSignRefusesSuccessors(t *testing.T) {
	t.Parallel()
	l := newLine(t)
	o := testOrder(buyers[1], 2, 1, 1)
	held, _ := find[lease.AnswerHeld](l.step(lease.ReserveRequested{Hold: market.HoldID{2}, Order: o, Price: 45}))
	ev := signRequest(market.HoldID{2}, buyers[1], draft(o, held.Units, 0, 45, l.now, 1))
	ev.Core.Flags, ev.Core.ActivateBefore = market.LeaseSuccessor, ev.Core.Start
	ev.BuyerSig, _ = ev.Core.Sign(domain, buyers[1])
	no, _ := find[lease.AnswerRefused](l.step(ev))
	if no.Refusal == nil || no.Refusal.Reason != market.ReasonTerms {
		t.Errorf("%+v", no)
	}
}
