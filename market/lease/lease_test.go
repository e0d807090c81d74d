package lease_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

var (
	provider = sign.NewPrivate([32]byte{1})
	buyers   = []sign.Private{sign.NewPrivate([32]byte{2}), sign.NewPrivate([32]byte{3})}
	domain   = sign.Domain{Network: "test", Chain: sign.Hash{9}}
	payout   = sign.Key{5}
	epoch    = time.Unix(1_000_000, 0).UTC()
)

func testLimits() lease.Limits {
	return lease.Limits{
		Provider: provider.Key(), Payout: payout, Domain: domain, SlotMillis: 400, Decimals: 2,
		Asks: map[market.Class]market.Price{"cpu": 40}, Region: "local", Runtimes: []string{"wasm"}, MinSlots: 10, MaxSlots: 1000,
		HoldTTL: 10 * time.Second, SignTTL: 20 * time.Second, MaxHolds: 6, MaxHoldsPerBuyer: 4, StartWithin: 50, ActivateWithin: 40, MarginSlots: 5, OverlayKey: overlayKey,
	}
}

func overlayKey(h market.HoldID) market.OverlayKey { return market.OverlayKey{h[0], 7} }

func testUnits(t testing.TB, n int) []market.Unit {
	var out []market.Unit
	for i := range n {
		u, err := market.NewUnit(provider.Key(), "cpu", "a CPU", "machine", uint32(i), market.Resources{MilliCPU: 1000, MemoryMiB: 512})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

func testOrder(buyer sign.Private, n byte, count, unitsPer uint32) market.Order {
	return market.Order{
		ID: market.OrderID{n, 1}, Buyer: buyer.Key(), Class: "cpu", Count: count, UnitsPer: unitsPer, Runtime: "wasm", Slots: 100,
		Expires: epoch.Add(time.Minute), JobTerms: sign.Hash{n},
	}
}

func draft(o market.Order, units []market.UnitID, rank uint32, price market.Price, now lease.Now, nonce byte) lease.Draft {
	keys, err := market.NewKeySet(1, o.Buyer)
	if err != nil {
		panic(err)
	}
	return lease.Draft{Order: o, Provider: provider.Key(), Payout: payout, Units: units, Rank: rank, Price: price, SlotMillis: 400,
		Keys: keys, Start: now.Slot, ActivateBefore: now.Slot + 20, Nonce: [16]byte{nonce}}
}

func signRequest(hold market.HoldID, buyer sign.Private, d lease.Draft) lease.SignRequested {
	core, err := d.Core()
	if err != nil {
		panic(err)
	}
	sig, _ := core.Sign(domain, buyer)
	return lease.SignRequested{Hold: hold, By: buyer.Key(), Core: core, Keys: d.Keys, BuyerSig: sig}
}

func find[E lease.Effect](effects []lease.Effect) (E, bool) {
	for _, e := range effects {
		if e, ok := e.(E); ok {
			return e, true
		}
	}
	var none E
	return none, false
}

// Every way in which a lease can differ from what was agreed is refused in words, and leaves the hold as it was.
func TestSignRefusesOtherTerms(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	o := testOrder(buyers[0], 1, 2, 2)
	book := lease.NewBook(testUnits(t, 6), testLimits())
	hold := market.HoldID{1}
	book, effects, err := book.Step(now, lease.ReserveRequested{Hold: hold, Order: o, Price: 45, Rank: 0})
	held, ok := find[lease.AnswerHeld](effects)
	if err != nil || !ok || len(held.Units) != 2 {
		t.Fatal(effects, err)
	}
	good := draft(o, held.Units, 0, 45, now, 1)
	for name, change := range map[string]func(*market.LeaseCore){
		"order":           func(c *market.LeaseCore) { c.Order[0]++ },
		"buyer":           func(c *market.LeaseCore) { c.Buyer = buyers[1].Key() },
		"provider":        func(c *market.LeaseCore) { c.Provider = buyers[1].Key() },
		"small-order key": func(c *market.LeaseCore) { c.Provider = sign.Key{1} },
		"payout":          func(c *market.LeaseCore) { c.Payout[0]++ },
		"units":           func(c *market.LeaseCore) { c.Units = 1 },
		"units root":      func(c *market.LeaseCore) { c.UnitsRoot[0]++ },
		"rank":            func(c *market.LeaseCore) { c.Rank++ },
		"terms":           func(c *market.LeaseCore) { c.Terms[0]++ },
		"keys":            func(c *market.LeaseCore) { c.VoucherKeys[0]++ },
		"rate":            func(c *market.LeaseCore) { c.Rate-- },
		"cap":             func(c *market.LeaseCore) { c.Cap-- },
		"longer":          func(c *market.LeaseCore) { c.End++ },
		"far start":       func(c *market.LeaseCore) { c.Start += 51; c.End += 51 },
		"late funding":    func(c *market.LeaseCore) { c.ActivateBefore = 1041 },
		"past funding":    func(c *market.LeaseCore) { c.ActivateBefore = 1000 },
		"version":         func(c *market.LeaseCore) { c.Version = 2 },
		"flags":           func(c *market.LeaseCore) { c.Flags = 1 },
	} {
		core, err := good.Core()
		if err != nil {
			t.Fatal(err)
		}
		change(&core)
		sig, _ := core.Sign(domain, buyers[0])
		next, effects, err := book.Step(now, lease.SignRequested{Hold: hold, By: buyers[0].Key(), Core: core, Keys: good.Keys, BuyerSig: sig})
		refused, ok := find[lease.AnswerRefused](effects)
		if err != nil || !ok || refused.Refusal.Reason != market.ReasonTerms || len(effects) != 1 {
			t.Errorf("%s: %v, %v", name, effects, err)
		}
		if r, _ := next.Hold(hold); r.State != lease.Held {
			t.Errorf("%s: hold is %s", name, r.State)
		}
	}
	request := signRequest(hold, buyers[0], good)
	request.BuyerSig[3] ^= 1
	_, effects, _ = book.Step(now, request)
	if refused, ok := find[lease.AnswerRefused](effects); !ok || refused.Refusal.Reason != market.ReasonSignature {
		t.Errorf("bad signature: %v", effects)
	}
	_, effects, _ = book.Step(now, signRequest(hold, buyers[0], good))
	if _, ok := find[lease.AnswerSigned](effects); !ok {
		t.Errorf("the agreed lease: %v", effects)
	}
}

func TestReserveRefusals(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	limits := testLimits()
	book := lease.NewBook(testUnits(t, 3), limits)
	for _, c := range []struct {
		reason market.Reason
		text   string
		change func(*lease.ReserveRequested)
	}{
		{market.ReasonOwn, "a peer does not sell to itself", func(e *lease.ReserveRequested) { e.Order.Buyer = provider.Key() }},
		{market.ReasonExcluded, "the order excludes this provider", func(e *lease.ReserveRequested) { e.Order.Exclude = []sign.Key{provider.Key()} }},
		{market.ReasonExpired, "the order expired 1s ago", func(e *lease.ReserveRequested) { e.Order.Expires = epoch.Add(-time.Second) }},
		{market.ReasonClass, "class gpu/h200 is not sold here", func(e *lease.ReserveRequested) { e.Order.Class = "gpu/h200" }},
		{market.ReasonRegion, "region local is not among [eu-west]", func(e *lease.ReserveRequested) { e.Order.Regions = []market.Region{"eu-west"} }},
		{market.ReasonRuntime, "runtime docker is not offered, [wasm] are", func(e *lease.ReserveRequested) { e.Order.Runtime = "docker" }},
		{market.ReasonDuration, "6m40.4s requested, want 4s to 6m40s", func(e *lease.ReserveRequested) { e.Order.Slots = 1001 }},
		{market.ReasonStake, "stake: got 0.00, want 1.00", func(e *lease.ReserveRequested) { e.Order.MinStake = 100 }},
		{market.ReasonCapability, "a unit has compute capability unknown, asked 8.0", func(e *lease.ReserveRequested) { e.Order.MinCapability = 80 }},
		{market.ReasonPrice, "price: got 0.39, want at least 0.40", func(e *lease.ReserveRequested) { e.Price = 39 }},
		{market.ReasonResources, "a unit has memory 512 MiB, asked 1024 MiB", func(e *lease.ReserveRequested) { e.Order.Min.MemoryMiB = 1024 }},
		{market.ReasonCapacity, "4 units asked, 3 of 3 are free", func(e *lease.ReserveRequested) { e.Order.UnitsPer = 4 }},
		{market.ReasonHold, "the hold id is not set", func(e *lease.ReserveRequested) { e.Hold = market.HoldID{} }},
	} {
		ev := lease.ReserveRequested{Hold: market.HoldID{1}, Order: testOrder(buyers[0], 1, 1, 1), Price: 45}
		c.change(&ev)
		_, effects, err := book.Step(now, ev)
		refused, ok := find[lease.AnswerRefused](effects)
		if err != nil || !ok || len(effects) != 1 || refused.Refusal.Reason != c.reason || refused.Refusal.Error() != c.text {
			t.Errorf("%s: %+v, %v", c.text, effects, err)
		}
	}
}

// An order for a family gets units of one class: the cheapest that fits, and has enough free.
func TestFamilyOrders(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	units := classUnits(t) // 2 × gpu/a at 30 with 8.0, 3 × gpu/b at 45 with 9.0
	for _, c := range []struct {
		name   string
		change func(*market.Order)
		class  market.Class
		price  market.Price
		leases uint32
		refuse string
	}{
		{"cheapest", func(*market.Order) {}, "gpu/a", 30, 2, ""},
		{"too few of the cheapest", func(o *market.Order) { o.UnitsPer = 3 }, "gpu/b", 45, 1, ""},
		{"capability", func(o *market.Order) { o.MinCapability = 90 }, "gpu/b", 45, 3, ""},
		{"no class fits", func(o *market.Order) { o.MinCapability = 100 }, "", 0, 0, "gpu/a: a unit has compute capability 8.0, asked 10.0"},
		{"one class", func(o *market.Order) { o.Class = "gpu/b" }, "gpu/b", 45, 3, ""},
	} {
		book := lease.NewBook(units, classLimits())
		o := testOrder(buyers[0], 1, 4, 1)
		o.Class = "gpu"
		c.change(&o)
		q, refusal := book.Quote(now, o, nil)
		switch {
		case refusal != nil && refusal.Error() != c.refuse || refusal == nil && c.refuse != "":
			t.Errorf("%s: %v", c.name, refusal)
		case q != (lease.Quoted{Class: c.class, Leases: c.leases, Price: c.price}):
			t.Errorf("%s: %+v", c.name, q)
		case refusal == nil:
			_, effects, _ := book.Step(now, lease.ReserveRequested{Hold: market.HoldID{1}, Order: o, Price: q.Price, Class: q.Class})
			if p, ok := find[lease.Persist](effects); !ok || p.Record.Class != c.class || p.Record.PerUnit.VRAMMiB != 1024 {
				t.Errorf("%s: %+v", c.name, effects)
			}
		}
	}
	book := lease.NewBook(units, classLimits())
	o := testOrder(buyers[0], 1, 4, 1)
	o.Class = "gpu"
	for named, want := range map[market.Class]string{
		"cpu": "class: the order is for class gpu, not cpu", "gpu/x": "class: class gpu/x is not sold here", "gpu/b": "price: price: got 0.40, want at least 0.45",
	} {
		_, effects, _ := book.Step(now, lease.ReserveRequested{Hold: market.HoldID{1}, Order: o, Price: 40, Class: named})
		if r, ok := find[lease.AnswerRefused](effects); !ok || string(r.Refusal.Reason)+": "+r.Refusal.Error() != want {
			t.Errorf("%s: %+v", named, effects)
		}
	}
}

// What is withdrawn is sold to nobody; who has it keeps it.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	units := testUnits(t, 2)
	book := lease.NewBook(units, testLimits())
	hold := market.HoldID{1}
	book, _, _ = book.Step(now, lease.ReserveRequested{Hold: hold, Order: testOrder(buyers[0], 1, 1, 1), Price: 45})
	book = book.WithWithdrawn([]market.UnitID{units[0].ID, units[1].ID, {9}})
	if r, _ := book.Holder(units[0].ID); r.ID != hold || book.Free("cpu") != 0 || book.Total("cpu") != 1 {
		t.Error(r, book.Free("cpu"), book.Total("cpu"))
	}
	if _, refusal := book.Quote(now, testOrder(buyers[1], 2, 1, 1), nil); refusal == nil || refusal.Error() != "1 units asked, 0 of 1 are free" {
		t.Error(refusal)
	}
	book, _, _ = book.Step(now, lease.ReleaseRequested{Hold: hold, By: buyers[0].Key()})
	if book.Free("cpu") != 0 || book.Total("cpu") != 0 || !book.Withdrawn(units[0].ID) {
		t.Error(book.Free("cpu"), book.Total("cpu"))
	}
	if book = book.WithWithdrawn(nil); book.Free("cpu") != 2 {
		t.Error(book.Free("cpu"))
	}
}

// Units that have shown nothing go to orders that take them, and to those first; the others get none.
func TestShownUnits(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	units := testUnits(t, 4)
	book := lease.NewBook(units, testLimits())
	if book.Shown("cpu") != 0 {
		t.Errorf("%d units have shown something where none need to", book.Shown("cpu"))
	}
	book = book.WithShown(nil)
	choosy, easy := testOrder(buyers[0], 1, 1, 2), testOrder(buyers[1], 2, 4, 1)
	easy.Unproven = true
	if _, refusal := book.Quote(now, choosy, nil); refusal == nil || refusal.Reason != market.ReasonUnproven || refusal.Error() != "2 units asked, 0 that are free have a fresh audit record" {
		t.Error(refusal)
	}
	book, err := book.WithShown([]market.UnitID{units[0].ID, units[2].ID, {9}}).Restore(nil)
	if err != nil || book.Free("cpu") != 4 || book.Shown("cpu") != 2 {
		t.Fatal(err, book.Free("cpu"), book.Shown("cpu"))
	}
	if q, refusal := book.Quote(now, choosy, nil); refusal != nil || q.Leases != 1 {
		t.Error(q, refusal)
	}
	if q, refusal := book.Quote(now, easy, nil); refusal != nil || q.Leases != 4 {
		t.Error(q, refusal)
	}
	take := func(o market.Order, rank uint32, want ...market.UnitID) {
		t.Helper()
		var effects []lease.Effect
		book, effects, err = book.Step(now, lease.ReserveRequested{Hold: market.HoldID{byte(rank + 1)}, Order: o, Price: 45, Rank: rank})
		if err != nil {
			t.Fatal(err)
		}
		var got []market.UnitID
		for _, e := range effects {
			if held, ok := e.(lease.AnswerHeld); ok {
				got = held.Units
			}
		}
		want, _ = market.SortUnits(want)
		if !slices.Equal(got, want) {
			t.Errorf("rank %d was given %v of %v, %v expected", rank, got, units, want)
		}
	}
	take(easy, 0, units[1].ID)
	take(choosy, 7, units[0].ID, units[2].ID)
	take(easy, 1, units[3].ID)
	if _, refusal := book.Quote(now, easy, nil); refusal == nil || refusal.Reason != market.ReasonCapacity {
		t.Error(refusal)
	}
}

func TestLeasesOfOneBuyer(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	limits := testLimits()
	limits.MaxLeasesPerBuyer = 2
	book := lease.NewBook(testUnits(t, 4), limits)
	o := testOrder(buyers[0], 1, 4, 1)
	if q, refusal := book.Quote(now, o, nil); refusal != nil || q.Leases != 2 {
		t.Error(q, refusal)
	}
	for i := range 3 {
		var effects []lease.Effect
		book, effects, _ = book.Step(now, lease.ReserveRequested{Hold: market.HoldID{byte(i + 1)}, Order: o, Price: 45, Rank: uint32(i)})
		refused, ok := find[lease.AnswerRefused](effects)
		if ok != (i == 2) || ok && refused.Refusal.Error() != "this buyer has 2 leases and holds here, at most 2 allowed" {
			t.Error(effects)
		}
	}
	if _, refusal := book.Quote(now, o, nil); refusal == nil || refusal.Reason != market.ReasonLimit {
		t.Error(refusal)
	}
	if _, refusal := book.Quote(now, testOrder(buyers[1], 2, 1, 1), nil); refusal != nil {
		t.Error(refusal)
	}
}

// Holds and leases that are members of clusters are bounded, whoever buys them; what asks for no overlay key is not.
func TestMembersOfClusters(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	limits := testLimits()
	limits.MaxMembers = 2
	book := lease.NewBook(testUnits(t, 6), limits)
	refused := func(id byte, buyer int, overlay bool) string {
		next, effects, err := book.Step(now, lease.ReserveRequested{Hold: market.HoldID{id}, Order: testOrder(buyers[buyer], id, 1, 1), Price: 45, Overlay: overlay})
		if err != nil {
			t.Fatal(err)
		}
		book = next
		no, ok := find[lease.AnswerRefused](effects)
		if !ok {
			return ""
		}
		return no.Refusal.Error()
	}
	const full = "this provider has 2 members of clusters, at most 2 allowed"
	for id, c := range []struct {
		buyer   int
		overlay bool
		want    string
	}{{0, true, ""}, {0, false, ""}, {1, true, ""}, {0, true, full}, {1, true, full}, {1, false, ""}} {
		if got := refused(byte(id+1), c.buyer, c.overlay); got != c.want {
			t.Errorf("reservation %d: %q, want %q", id, got, c.want)
		}
	}
	if got := refused(1, 0, true); got != "" {
		t.Errorf("the first, asked again: %s", got)
	}
	book, _, _ = book.Step(now, lease.ReleaseRequested{Hold: market.HoldID{1}, By: buyers[0].Key()})
	if got := refused(7, 1, true); got != "" {
		t.Errorf("after one was released: %s", got)
	}
}

func TestImpossibleNewsIsAnError(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	o := testOrder(buyers[0], 1, 1, 1)
	book := lease.NewBook(testUnits(t, 1), testLimits())
	hold := market.HoldID{1}
	book, effects, _ := book.Step(now, lease.ReserveRequested{Hold: hold, Order: o, Price: 45})
	held, _ := find[lease.AnswerHeld](effects)
	request := signRequest(hold, buyers[0], draft(o, held.Units, 0, 45, now, 1))
	book, _, _ = book.Step(now, request)
	_, _, err := book.Step(now, lease.LeaseEnded{Lease: request.Core.ID()})
	var invalid *lease.InvalidTransition
	if !errors.As(err, &invalid) || invalid.From != lease.Signed || invalid.To != lease.Ended {
		t.Error(err)
	}
	if _, _, err := book.Step(now, lease.ExecutionLost{Lease: market.LeaseID{1}}); !errors.Is(err, lease.ErrUnknownLease) {
		t.Error(err)
	}
}

// A request that is repeated word for word is answered as the first time, also after a restart.
func TestRepeatedRequestsGetTheSameAnswer(t *testing.T) {
	t.Parallel()
	units := testUnits(t, 2)
	now := lease.Now{Time: epoch, Slot: 1000}
	o := testOrder(buyers[0], 1, 1, 1)
	hold := market.HoldID{1}
	journal := map[market.HoldID][]byte{}
	book := lease.NewBook(units, testLimits())
	var request lease.SignRequested
	play := func(ev lease.Event) string {
		next, effects, err := book.Step(now, ev)
		if err != nil {
			t.Fatal(err)
		}
		book = next
		for _, e := range effects {
			if p, ok := e.(lease.Persist); ok {
				journal[p.Record.ID], _ = p.Record.Marshal()
			}
		}
		if held, ok := find[lease.AnswerHeld](effects); ok && request.Hold.IsZero() {
			request = signRequest(hold, buyers[0], draft(o, held.Units, 0, 45, now, 1))
		}
		return fmt.Sprintf("%v", effects[len(effects)-1])
	}
	reserve := lease.ReserveRequested{Hold: hold, Order: o, Price: 45}
	first := []string{play(reserve), play(request), play(lease.FundingSeen{Lease: request.Core.ID(), Landed: 1001})}
	for range 2 {
		again := []string{play(reserve), play(request), play(lease.FundingSeen{Lease: request.Core.ID(), Landed: 1001})}
		if !slices.Equal(first, again) {
			t.Errorf("first %q\nagain %q", first, again)
		}
		book = restore(t, units, journal)
	}
}

func TestRestoreRefusesADoubleSale(t *testing.T) {
	t.Parallel()
	now := lease.Now{Time: epoch, Slot: 1000}
	units := testUnits(t, 1)
	record := func(hold byte) lease.Record {
		_, effects, _ := lease.NewBook(units, testLimits()).Step(now,
			lease.ReserveRequested{Hold: market.HoldID{hold}, Order: testOrder(buyers[0], 1, 1, 1), Price: 45})
		p, _ := find[lease.Persist](effects)
		return p.Record
	}
	book := lease.NewBook(units, testLimits())
	if _, err := book.Restore([]lease.Record{record(1), record(2)}); !errors.Is(err, lease.ErrDoubleSale) {
		t.Error(err)
	}
	if _, err := book.Restore([]lease.Record{record(1), record(1)}); !errors.Is(err, lease.ErrRecord) {
		t.Error(err)
	}
	// Units that left the inventory stay promised, and the book still works.
	bare, err := lease.NewBook(nil, testLimits()).Restore([]lease.Record{record(1)})
	if err != nil || bare.Free("cpu") != 0 {
		t.Error(err)
	}
	if _, err := lease.NewBook(nil, testLimits()).Restore([]lease.Record{record(1), record(2)}); !errors.Is(err, lease.ErrDoubleSale) {
		t.Error(err)
	}
}

func FuzzRecord(f *testing.F) {
	now := lease.Now{Time: epoch, Slot: 1000}
	o := testOrder(buyers[0], 1, 1, 1)
	hold := market.HoldID{1}
	book, effects, _ := lease.NewBook(testUnits(f, 1), testLimits()).Step(now, lease.ReserveRequested{Hold: hold, Order: o, Price: 45})
	add := func(effects []lease.Effect) {
		p, _ := find[lease.Persist](effects)
		b, err := p.Record.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(effects)
	held, _ := find[lease.AnswerHeld](effects)
	book, effects, _ = book.Step(now, signRequest(hold, buyers[0], draft(o, held.Units, 0, 45, now, 1)))
	add(effects)
	signed, _ := book.Hold(hold)
	book, _, _ = book.Step(now, lease.FundingSeen{Lease: signed.Lease, Landed: now.Slot})
	book, effects, _ = book.Step(now, extension(buyers[0], *signed.Core, signed.Core.End+10, nil))
	add(effects)
	next, _ := find[lease.AnswerExtended](effects)
	book, _, _ = book.Step(now, lease.FundingSeen{Lease: next.Core.ID(), Landed: now.Slot})
	now.Slot = signed.Core.End
	_, effects, _ = book.Step(now, lease.Ticked{})
	add(effects)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := lease.UnmarshalRecord(b)
		if err != nil {
			return
		}
		once, err := r.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := lease.UnmarshalRecord(once)
		if err != nil {
			t.Fatal(err)
		}
		twice, _ := again.Marshal()
		if !bytes.Equal(once, twice) {
			t.Fatal("decode, encode, decode differ")
		}
	})
}

func BenchmarkReserve(b *testing.B) {
	limits := testLimits()
	limits.MaxHolds, limits.MaxHoldsPerBuyer = 10_000, 10_000
	book := lease.NewBook(testUnits(b, 1000), limits)
	now := lease.Now{Time: epoch, Slot: 1000}
	for i := range 500 {
		o := testOrder(buyers[0], 1, 1, 1)
		o.ID[5], o.ID[6] = byte(i), byte(i>>8)
		book, _, _ = book.Step(now, lease.ReserveRequested{Hold: market.HoldID{9, byte(i), byte(i >> 8)}, Order: o, Price: 45})
	}
	ev := lease.ReserveRequested{Hold: market.HoldID{1}, Order: testOrder(buyers[1], 2, 1, 1), Price: 45}
	b.ReportAllocs()
	for b.Loop() {
		_, effects, _ := book.Step(now, ev)
		if len(effects) != 2 {
			b.Fatal(effects)
		}
	}
}
