package provider

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/runtimetest"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p/overlay/egress"
)

// shelf is a lease book that an operator changes.
type shelf struct {
	book lease.Book
	err  error // of the next changes
}

func (s *shelf) Book() lease.Book { return s.book }

func (s *shelf) Change(f func(lease.Book) (lease.Book, error)) error {
	if s.err != nil {
		return s.err
	}
	next, err := f(s.book)
	if err == nil {
		s.book = next
	}
	return err
}

// full is a journal that has no room while err is set.
type full struct {
	store.Store
	err error
}

func (f *full) Write(ctx context.Context, puts ...store.Put) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Write(ctx, puts...)
}

// shop is an operator of two units of a class at 100, with a floor of 40.
type shop struct {
	*Operator
	shelf   *shelf
	journal *full
	changes int
}

const shopClass = market.Class("gpu/h100")

func openShop(t *testing.T, journal *full, price market.Price) *shop {
	t.Helper()
	s := &shop{journal: journal}
	lot := Lot{Class: shopClass, Price: price, Floor: 40, PerUnit: market.Resources{MilliCPU: 1}}
	for i := range uint32(2) {
		u, err := market.NewUnit(sign.Key{1}, shopClass, "a model", []string{"first", "second"}[i], i, lot.PerUnit)
		if err != nil {
			t.Fatal(err)
		}
		lot.Units = append(lot.Units, u)
	}
	var err error
	s.Operator, err = newOperator(t.Context(), Config{
		Store: journal, Lots: []Lot{lot}, Log: slog.New(slog.DiscardHandler),
		Genesis: market.Genesis{Network: "test", Decimals: 2, Symbol: "T"},
	})
	if err != nil {
		t.Fatal(err)
	}
	genesis := market.Genesis{
		Network: "test", Chain: sign.Hash{1}, SlotMillis: 400, IntervalSlots: 10, Decimals: 2, Symbol: "T",
	}
	p := &Provider{Operator: s.Operator, self: sign.Key{1}, domain: genesis.Domain(), cfg: Config{
		Lots: s.lots, MinSlots: 1, MaxSlots: 10, HoldTTL: time.Second, Owner: sign.Key{2}, Region: "eu",
		Genesis: genesis, Runtimes: map[string]runtime.Runtime{"wasm": nil}, Policy: Policy{MaxLeasesPerBuyer: 1},
	}}
	s.shelf = &shelf{book: lease.NewBook(lot.Units, p.limits(2))}
	s.book, s.changed = s.shelf, func() { s.changes++ }
	return s
}

// asked is the price of the book.
func (s *shop) asked() market.Price { return s.shelf.book.Limits().Asks[shopClass] }

// A price that was set at run time holds after a restart, until the configuration has another one, and never goes
// below the floor.
func TestPrices(t *testing.T) {
	t.Parallel()
	journal := &full{Store: store.NewMemory()}
	s := openShop(t, journal, 100)
	for _, c := range []struct {
		class market.Class
		price market.Price
		want  error
		asked market.Price
	}{
		{shopClass, 39, ErrFloor, 100}, {shopClass, 0, ErrFloor, 100}, {"cpu", 100, ErrNotSold, 100}, {"", 100,
			ErrNotSold, 100},
		{shopClass, 40, nil, 40}, {shopClass, 1 << 63, nil, 1 << 63}, {shopClass, 60, nil, 60},
	} {
		before := s.changes
		if err := s.SetPrice(t.Context(), c.class, c.price); !errors.Is(err, c.want) || s.asked() != c.asked {
			t.Errorf("%s at %d: %v, asked are %d", c.class, c.price, err, s.asked())
		}
		if notified := s.changes > before; notified != (c.want == nil) {
			t.Errorf("%s at %d: offers notified %v", c.class, c.price, notified)
		}
	}
	if s = openShop(t, journal, 100); s.asked() != 60 {
		t.Errorf("after a restart %d are asked, want 60", s.asked())
	}
	if s = openShop(t, journal, 90); s.asked() != 90 {
		t.Errorf("with another price in the configuration %d are asked, want 90", s.asked())
	}
	if s = openShop(t, journal, 10); s.asked() != 40 {
		t.Errorf("with a configured price under the floor %d are asked, want 40", s.asked())
	}
	if s = openShop(t, journal, 100); s.asked() != 60 {
		t.Errorf("with the first price again %d are asked, want 60", s.asked())
	}
}

// A setting that could not be journalled does not hold, and one whose caller gave up is not waited for.
func TestSettingsAreJournalledFirst(t *testing.T) {
	t.Parallel()
	journal := &full{Store: store.NewMemory()}
	s := openShop(t, journal, 100)
	journal.err = errors.New("disk full")
	for name, err := range map[string]error{
		"pause": s.Pause(t.Context()), "drain": s.Drain(t.Context()), "price": s.SetPrice(t.Context(), shopClass, 50),
	} {
		if !errors.Is(err, journal.err) {
			t.Errorf("%s: %v, want the journal's error", name, err)
		}
	}
	if s.Paused() || s.settings().Draining || s.asked() != 100 || s.changes != 0 {
		t.Errorf("settings %+v, asked %d, %d changes: want none", s.settings(), s.asked(), s.changes)
	}
	journal.err = nil
	<-s.turn // somebody changes a setting, and waits for the disk
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Pause(ctx); !errors.Is(err, context.Canceled) || s.Paused() {
		t.Errorf("a change that nobody waits for: %v, paused %v", err, s.Paused())
	}
	s.turn <- struct{}{}
	s.shelf.err = errors.New("a broken book")
	if err := s.Pause(t.Context()); !errors.Is(err, s.shelf.err) || !s.Paused() || s.changes != 1 {
		t.Errorf("the pause of a broken book: %v, paused %v, %d changes", err, s.Paused(), s.changes)
	}
}

// The last of pause, drain and resume holds, also for the next process.
func TestPausesProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		journal := &full{Store: store.NewMemory()}
		s := openShop(t, journal, 100)
		want := settings{}
		for range rapid.IntRange(0, 6).Draw(rt, "steps") {
			var err error
			switch rapid.SampledFrom([]string{"pause", "drain", "resume", "restart"}).Draw(rt, "step") {
			case "pause":
				want, err = settings{Paused: true}, s.Pause(t.Context())
			case "drain":
				want, err = settings{Paused: true, Draining: true}, s.Drain(t.Context())
			case "resume":
				want, err = settings{}, s.Resume(t.Context())
			case "restart":
				s = openShop(t, journal, 100)
			}
			if got := s.settings(); err != nil || got.Paused != want.Paused || got.Draining != want.Draining {
				rt.Fatalf("got %+v, %v, want %+v", got, err, want)
			}
		}
	})
}

// Units keep their first fault, come back all or none, and free of another one's serial.
func TestReadmit(t *testing.T) {
	t.Parallel()
	s := openShop(t, &full{Store: store.NewMemory()}, 100)
	first, second := s.lots[0].Units[0].ID, s.lots[0].Units[1].ID
	s.Withdraw(map[market.UnitID]string{first: "hot"})
	s.Withdraw(map[market.UnitID]string{first: "cold", second: "gone"})
	if got := s.withdrawn(); !maps.Equal(got, map[market.UnitID]string{first: "hot", second: "gone"}) {
		t.Errorf("withdrawn are %v", got)
	}
	for _, serials := range [][]string{{"first", "third"}, {""}, {"FIRST"}} {
		if err := s.Readmit(serials); !errors.Is(err, ErrNotWithdrawn) || !s.shelf.book.Withdrawn(first) {
			t.Errorf("%q: %v, the first is withdrawn: %v", serials, err, s.shelf.book.Withdrawn(first))
		}
	}
	if err := s.Readmit([]string{"first", "first"}); err != nil || s.shelf.book.Withdrawn(first) ||
		!s.shelf.book.Withdrawn(second) {
		t.Errorf("the first: %v", err)
	}
	if err := s.Readmit([]string{"first"}); !errors.Is(err, ErrNotWithdrawn) {
		t.Errorf("a unit that is sold: %v", err)
	}
	if err := s.Readmit(nil); err != nil || len(s.withdrawn()) != 1 {
		t.Errorf("none: %v, withdrawn are %v", err, s.withdrawn())
	}
}

// Draining comes before a pause, a pause before closed hours, and those before missing fees; every state is listed.
func TestStates(t *testing.T) {
	t.Parallel()
	paused, draining := settings{Paused: true}, settings{Paused: true, Draining: true}
	reached := map[string]bool{}
	for _, c := range []struct {
		now     settings
		leases  int
		open    bool
		feeless string
		want    string
	}{
		{settings{}, 0, true, "", Selling}, {settings{}, 1, true, "", Selling}, {settings{}, 0, true, "poor", Feeless},
		{settings{}, 0, false, "poor", Closed}, {settings{}, 1, false, "", Closed}, {paused, 0, false, "poor", Paused},
		{paused, 1, true, "", Paused}, {draining, 1, true, "poor", Draining}, {draining, 0, false, "poor", Drained},
	} {
		state, reason := stateOf(c.now, c.leases, c.open, c.feeless)
		if state != c.want || (reason != "") != (c.want == Feeless) {
			t.Errorf("%+v is %s (%q)", c, state, reason)
		}
		reached[state] = true
	}
	if got := slices.Sorted(maps.Keys(reached)); !slices.Equal(got, slices.Sorted(slices.Values(OfferStates))) {
		t.Errorf("reached are %v, listed %v", got, OfferStates)
	}
}

// The time of so many slots is exact or a century: it never wraps around to a time that fits the operator's hours.
func TestLastsProperty(t *testing.T) {
	t.Parallel()
	century := big.NewInt(int64(100 * 365 * 24 * time.Hour))
	rapid.Check(t, func(t *rapid.T) {
		slots, millis := rapid.Uint64().Draw(t, "slots"), rapid.Uint64Range(1, 100_000).Draw(t, "slot")
		p := &Provider{cfg: Config{Genesis: market.Genesis{SlotMillis: millis}}}
		want := new(big.Int).Mul(new(big.Int).SetUint64(slots), new(big.Int).SetUint64(millis))
		if want.Mul(want, big.NewInt(int64(time.Millisecond))); want.Cmp(century) > 0 {
			want = century
		}
		if got := p.lasts(slots); big.NewInt(int64(got)).Cmp(want) != 0 {
			t.Fatalf("%d slots of %d ms last %v, want %v ns", slots, millis, got, want)
		}
	})
}

// Offers name the network access that containers have here, which is none without containers or networks.
func TestEgress(t *testing.T) {
	t.Parallel()
	engine := map[string]runtime.Runtime{"docker": imageRuntime{runtimetest.NewFake("docker", nil), nil}}
	modules := map[string]runtime.Runtime{"wasm": runtimetest.NewFake("wasm", nil)}
	for _, c := range []struct {
		runtimes map[string]runtime.Runtime
		mode     egress.Mode
		none     bool
		want     market.Egress
	}{
		{engine, egress.ModeInternet, false, market.EgressInternet}, {engine, egress.ModeAllowlist, false,
			market.EgressListed},
		{engine, "", false, market.EgressNone}, {engine, egress.ModeInternet, true, market.EgressNone},
		{modules, egress.ModeInternet, false, market.EgressNone}, {nil, egress.ModeInternet, false, market.EgressNone},
	} {
		p := &Provider{cfg: Config{Runtimes: c.runtimes, Network: c.mode}}
		p.overlays.none.Store(c.none)
		if got := (seen{p}).Egress(); got != c.want {
			t.Errorf("%v, mode %q, none %v: got %v, want %v", c.runtimes, c.mode, c.none, got, c.want)
		}
	}
}

// imageRuntime is a runtime that runs images.
type imageRuntime struct {
	runtime.Runtime
	runtime.Images
}
