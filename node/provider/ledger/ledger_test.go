package ledger

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/provider/providertest"
	"github.com/starling-network/starling/node/store"
)

// clock is a clock whose slot may be unknown.
type clock struct {
	mu   sync.Mutex
	slot market.Slot
}

var errUnknown = errors.New("the slot is unknown")

func (c *clock) set(s market.Slot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slot = s
}

func (c *clock) Now(time.Time) (market.Slot, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.slot == 0 {
		return 0, errUnknown
	}
	return c.slot, nil
}

// carried counts the effects that were carried out.
type carried struct {
	mu             sync.Mutex
	steps, changes int
}

func (c *carried) Stepped(lease.Book, lease.Event, []lease.Effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps++
}
func (c *carried) Activate(lease.Record)    {}
func (c *carried) End(lease.Record, string) {}
func (c *carried) Changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
}

// gated is a journal whose writes take the token of its gate.
type gated struct {
	store.Store
	gate   chan struct{}
	mu     sync.Mutex
	writes int
}

func (g *gated) Write(ctx context.Context, puts ...store.Put) error {
	<-g.gate
	defer func() { g.gate <- struct{}{} }()
	g.mu.Lock()
	g.writes++
	g.mu.Unlock()
	return g.Store.Write(ctx, puts...)
}

// rig is a ledger of eight units.
type rig struct {
	*Ledger
	t       *testing.T
	clock   *clock
	journal *gated
	carried *carried
	stop    func()
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, clock: &clock{slot: 1000}, journal: &gated{Store: store.NewMemory(), gate: make(chan struct{}, 1)}, carried: &carried{}}
	r.journal.gate <- struct{}{}
	r.load()
	return r
}

// load begins a process, which start runs.
func (r *rig) load() {
	r.t.Helper()
	key, g := sign.Key{8}, providertest.Genesis
	book := lease.NewBook(providertest.Units(r.t, key, 8), lease.Limits{
		Provider: key, Payout: sign.Key{9}, Domain: g.Domain(), SlotMillis: g.SlotMillis, Region: "eu",
		Asks: map[market.Class]market.Price{"cpu": 0}, Runtimes: []string{"wasm"}, MinSlots: 1, MaxSlots: 100_000,
		HoldTTL: 10 * time.Second, SignTTL: 20 * time.Second, MaxHolds: 8, MaxHoldsPerBuyer: 8, StartWithin: 100,
		ActivateWithin: 100, MarginSlots: g.IntervalSlots,
	})
	var err error
	r.Ledger, err = New(r.t.Context(), Config{
		Store: r.journal, Clock: r.clock, Book: book, Carrier: r.carried, Every: time.Second, Lapses: true,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) start() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	}
	if err := r.Resumed(ctx); err != nil {
		r.t.Fatal(err)
	}
}

var buyer = sign.NewPrivate([32]byte{1})

// reserve asks for a unit.
func (r *rig) reserve(hold byte) (lease.Effect, error) {
	o, _, err := market.SealOrder(providertest.Genesis.Domain(), market.Order{
		Buyer: buyer.Key(), Nonce: market.Nonce{hold}, Class: "cpu", Count: 1, UnitsPer: 1, Runtime: "wasm", Slots: 1000,
		Expires: time.Now().Add(time.Minute), ReplyKey: market.ReplyKey{1}, Draw: 1<<32 - 1, JobTerms: sign.Hash{4},
	}, buyer)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.Step(r.t.Context(), lease.ReserveRequested{
		Hold: market.HoldID{hold}, Class: "cpu", Order: o, Backing: &lease.Backing{Newcomer: true, Funds: 1 << 60},
	})
}

// The steps of many buyers that come during a write share the next one, and each gets its own answer.
func TestStepsShareAWrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		defer r.stop()
		<-r.journal.gate
		var all sync.WaitGroup
		for i := range byte(8) {
			all.Go(func() {
				answer, err := r.reserve(i + 1)
				if held, ok := answer.(lease.AnswerHeld); err != nil || !ok || held.Hold != (market.HoldID{i + 1}) {
					t.Errorf("hold %d: %+v, %v", i+1, answer, err)
				}
			})
		}
		time.Sleep(time.Millisecond)
		if r.Book().Free("cpu") != 8 || r.carried.steps > 0 {
			t.Error("units are promised before the journal has them")
		}
		r.journal.gate <- struct{}{}
		all.Wait()
		if n := r.journal.writes; n != 2 || r.carried.steps != 8 || r.Book().Free("cpu") != 0 {
			t.Errorf("%d writes, %d steps, %d units free, want 2, 8, 0", n, r.carried.steps, r.Book().Free("cpu"))
		}
	})
}

// Holds expire by themselves, those of one buyer as one lapse each, and the next process has the rest.
func TestHoldsExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		time.Sleep(time.Minute)
		idle := r.carried.steps
		for range 2 {
			for i := range byte(3) {
				if _, err := r.reserve(i + 1 + byte(time.Now().Second())); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(12 * time.Second)
		}
		if idle != 0 || r.Book().Free("cpu") != 8 || !r.Lapses().Wary(time.Now()) {
			t.Errorf("%d steps of an idle book, %d units free, wary %t", idle, r.Book().Free("cpu"), r.Lapses().Wary(time.Now()))
		}
		wait, _ := r.Lapses().Wait(buyer.Key(), time.Now())
		if _, err := r.reserve(99); err != nil {
			t.Fatal(err)
		}
		r.stop()
		r.load()
		if again, _ := r.Lapses().Wait(buyer.Key(), time.Now()); r.Book().Free("cpu") != 7 || !again.Equal(wait) {
			t.Errorf("after a restart: %d units free, the buyer waits until %v, want 7, %v", r.Book().Free("cpu"), again, wait)
		}
		if err := r.Paid(t.Context(), buyer.Key()); err != nil {
			t.Fatal(err)
		}
		if r.start(); r.Lapses().Len() > 0 {
			t.Error("a buyer that paid before the start has lapses")
		}
		r.stop()
	})
}

// Without a slot nothing is promised and nothing expires, but settings change.
func TestUnknownSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		if err := r.Change(func(b lease.Book) (lease.Book, error) { return b.WithShown(nil), nil }); err != nil {
			t.Fatal(err)
		}
		r.start()
		defer r.stop()
		if r.Book().Shown("cpu") != 0 {
			t.Error("a setting of before the start is lost")
		}
		if err := r.Change(func(b lease.Book) (lease.Book, error) { return b.WithShown(ids(b)), nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := r.reserve(1); err != nil {
			t.Fatal(err)
		}
		r.clock.set(0)
		time.Sleep(time.Minute)
		if _, err := r.reserve(2); !errors.Is(err, errUnknown) {
			t.Errorf("a hold without a slot: %v", err)
		}
		if r.Book().Free("cpu") != 7 {
			t.Error("a hold expired without a slot")
		}
		changes, wrong := r.carried.changes, errors.New("wrong")
		if err := r.Change(func(b lease.Book) (lease.Book, error) { return b, wrong }); !errors.Is(err, wrong) {
			t.Errorf("a wrong setting: %v", err)
		}
		err := r.Change(func(b lease.Book) (lease.Book, error) { return b.WithWithdrawn([]market.UnitID{b.Units()[7].ID}), nil })
		if err != nil || r.Book().Free("cpu") != 6 || r.carried.changes == changes {
			t.Errorf("a unit withdrawn: %v, %d free", err, r.Book().Free("cpu"))
		}
		r.clock.set(2000)
		time.Sleep(2 * time.Second)
		if r.Book().Free("cpu") != 7 {
			t.Errorf("%d units free with a slot, want 7", r.Book().Free("cpu"))
		}
	})
}

func ids(b lease.Book) (out []market.UnitID) {
	for _, u := range b.Units() {
		out = append(out, u.ID)
	}
	return out
}
