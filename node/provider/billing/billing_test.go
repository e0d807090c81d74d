package billing_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/provider/billing"
	"github.com/starling-network/starling/node/provider/ledger"
	"github.com/starling-network/starling/node/provider/providertest"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/p2p/stream"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/meter"
)

// rig has the meters of a provider with two units, and one buyer, in a synctest bubble.
type rig struct {
	*billing.Meters
	*providertest.Buyer
	t     *testing.T
	host  *p2p.Host
	key   sign.Private
	clock *slots.Clock
	disk  *store.Memory
	store journal.Store // of the next process
	books *ledger.Ledger
	stop  func()

	mu     sync.Mutex
	filed  []verify.Receipt
	failed []market.LeaseID
	ended  []market.LeaseID
	opened int
	earned int
	free   int // times that units changed
}

func newRig(t *testing.T) *rig {
	t.Helper()
	nw := p2ptest.NewNet(t, 2, 2*time.Millisecond) // 0 buys, 1 sells
	nw.ConnectAll()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	clock, err := providertest.Clock(ctx, &wg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, host: nw.Hosts[1], key: providertest.KeyOf(t, 1), clock: clock, disk: store.NewMemory(), stop: func() {}}
	r.store = r.disk
	r.Buyer = providertest.NewBuyer(t, nw.Hosts[0], clock, r.key.Key(), sign.Key{9})
	r.start()
	t.Cleanup(func() {
		r.stop()
		cancel()
		wg.Wait()
	})
	return r
}

// start begins a process on the journal of an earlier one.
func (r *rig) start() {
	r.t.Helper()
	g := providertest.Genesis
	units := providertest.Units(r.t, r.key.Key(), 2)
	book := lease.NewBook(units, lease.Limits{
		Provider: r.key.Key(), Payout: sign.Key{9}, Domain: g.Domain(), SlotMillis: g.SlotMillis,
		Asks: map[market.Class]market.Price{"cpu": 0}, Region: "eu", Runtimes: []string{"wasm"}, MinSlots: 1, MaxSlots: 100_000,
		HoldTTL: 10 * time.Second, SignTTL: 20 * time.Second, MaxHolds: 8, MaxHoldsPerBuyer: 4,
		StartWithin: 100, ActivateWithin: 100, MarginSlots: g.IntervalSlots,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if r.books, err = ledger.New(ctx, ledger.Config{
		Store: r.store, Clock: r.clock, Book: book, Carrier: carrier{r}, Every: time.Second,
		Log: slog.New(slog.DiscardHandler),
	}); err != nil {
		r.t.Fatal(err)
	}
	r.Meters, err = billing.New(ctx, billing.Config{
		Host: r.host, Genesis: g, Domain: g.Domain(), Tag: g.Tag(), Key: r.key, Store: r.store, Slots: r.clock,
		Ledger: r.books, Work: r, Money: r, Filed: r, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Restart(ctx)
	kept, stop := context.WithCancel(context.Background())
	var run sync.WaitGroup
	books := r.books
	run.Go(func() { _ = books.Run(kept) }) // the journal may be one that crashes
	if err := r.books.Resumed(ctx); err != nil {
		r.t.Fatal(err)
	}
	if err := r.Resume(ctx); err != nil {
		r.t.Fatal(err)
	}
	m := r.Meters
	r.stop = sync.OnceFunc(func() {
		cancel()
		m.Wait()
		stop()
		run.Wait()
	})
}

// carrier carries out the effects of the book.
type carrier struct{ r *rig }

func (c carrier) Stepped(lease.Book, lease.Event, []lease.Effect) {}
func (c carrier) Activate(l lease.Record)                         { c.r.Open(l, "") }
func (c carrier) End(l lease.Record, reason string)               { c.r.Meters.End(l, reason) }
func (c carrier) Changed()                                        { c.r.note(func() { c.r.free++ }) }

func (r *rig) CPUMillis(context.Context, market.LeaseID) uint64 { return 7 }
func (r *rig) Digest(market.LeaseID) sign.Hash                  { return sign.Hash{5} }
func (r *rig) Opened(context.Context, *billing.Meter)           { r.note(func() { r.opened++ }) }
func (r *rig) Earned(*billing.Meter)                            { r.note(func() { r.earned++ }) }

func (r *rig) End(_ context.Context, l market.LeaseID, _ time.Duration) error {
	r.note(func() { r.ended = append(r.ended, l) })
	return nil
}

func (r *rig) Failed(c market.LeaseCore, _ market.Amount) {
	r.note(func() { r.failed = append(r.failed, c.ID()) })
}

func (r *rig) Filed(_ market.Lease, _ []market.UnitID, x verify.Receipt) {
	r.note(func() { r.filed = append(r.filed, x) })
}

func (r *rig) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// receipts returns the receipts that both have signed, each once.
func (r *rig) receipts() (out []verify.Receipt) {
	r.note(func() {
		for _, x := range r.filed {
			if !slices.ContainsFunc(out, func(y verify.Receipt) bool { return y.Hash() == x.Hash() }) {
				out = append(out, x)
			}
		}
	})
	return out
}

// step takes a step of the book.
func (r *rig) step(ev lease.Event) lease.Effect {
	r.t.Helper()
	answer, err := r.books.Step(r.t.Context(), ev)
	if err != nil {
		r.t.Fatal(err)
	}
	if no, refused := answer.(lease.AnswerRefused); refused {
		r.t.Fatal(no.Refusal)
	}
	return answer
}

// signed reserves a unit and signs its lease.
func (r *rig) signed(hold byte) providertest.Signed {
	r.t.Helper()
	o, _ := r.Order(nil)
	held := r.step(lease.ReserveRequested{Hold: market.HoldID{hold}, Order: o, Class: "cpu"}).(lease.AnswerHeld)
	l := r.Sign(o, held.Units)
	r.step(lease.SignRequested{Hold: held.Hold, By: r.Key.Key(), Core: l.Core, Keys: r.Keys, BuyerSig: l.Sig})
	return l
}

// begin takes a first voucher.
func (r *rig) begin(l providertest.Signed, voucher []byte) (*billing.Meter, error) {
	r.t.Helper()
	v, err := verify.UnmarshalSignedVoucher(voucher)
	if err != nil {
		r.t.Fatal(err)
	}
	now, err := r.clock.Now(time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	rec, _ := r.books.Book().Lease(l.ID)
	return r.Begin(r.t.Context(), rec, now, v)
}

// lease reserves, signs and activates a lease.
func (r *rig) lease(hold byte) providertest.Signed {
	r.t.Helper()
	l := r.signed(hold)
	m, err := r.begin(l, r.First(l))
	if err != nil {
		r.t.Fatal(err)
	}
	now, _ := r.clock.Now(time.Now())
	r.step(lease.FundingSeen{Lease: l.ID, Landed: max(now, m.Start())})
	return l
}

func (r *rig) state(l market.LeaseID) lease.State {
	rec, _ := r.books.Book().Lease(l)
	return rec.State
}

// gapless fails the test if the receipts of a lease leave out or repeat a slot.
func gapless(t *testing.T, all []verify.Receipt) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		if all[i].From != all[i-1].To || all[i].Seq != all[i-1].Seq+1 {
			t.Errorf("receipt %d is of slots %d to %d, the one before ended with %d", all[i].Seq, all[i].From, all[i].To, all[i-1].To)
		}
	}
}

// A lease is billed in receipts without gaps until its buyer releases it, also over a restart; then its work ends before
// its units are free.
func TestReceiptsUntilRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.lease(1)
		time.Sleep(30 * time.Second)
		before := len(r.receipts())
		r.stop()
		time.Sleep(2 * time.Second)
		r.start()
		time.Sleep(30 * time.Second)
		all := r.receipts()
		gapless(t, all)
		if before < 5 || len(all) < 2*before-2 {
			t.Errorf("%d receipts before a restart, %d after", before, len(all))
		}
		if len(r.ended) != 0 || r.state(l.ID) != lease.Active {
			t.Errorf("work has ended: %v, the lease is %s", r.ended, r.state(l.ID))
		}
		if m := r.Find(l.ID); m == nil || m.Claimed() != (billing.Claimed{}) || m.Record().Lease != l.ID {
			t.Error("its meter is gone")
		}
		if over := r.Over([]market.LeaseID{l.ID, {9}}); !slices.Equal(over, []market.LeaseID{{9}}) {
			t.Errorf("over are %v", over)
		}
		r.step(lease.ReleaseRequested{Lease: l.ID, By: r.Key.Key()})
		time.Sleep(10 * time.Second)
		all = r.receipts()
		gapless(t, all)
		if last := all[len(all)-1]; !slices.Contains(r.ended, l.ID) || last.Output != (sign.Hash{5}) {
			t.Errorf("work has ended: %v, its output is %v", r.ended, last.Output)
		}
		if r.state(l.ID) != lease.Ended || r.books.Book().Free("cpu") != 2 || r.free == 0 || r.earned == 0 || r.opened != 2 {
			t.Errorf("the lease is %s, opened %d times, earned %d times", r.state(l.ID), r.opened, r.earned)
		}
		if s := r.Payer(l.ID).State(); s != meter.PayerSettled || len(r.failed) != 0 {
			t.Errorf("the payments are %v, broken are %v", s, r.failed)
		}
		n := 0
		if err := r.Receipts(t.Context(), l.ID, func([]byte) error { n++; return nil }); err != nil || n != len(all) {
			t.Errorf("%d receipts in the journal, %d were filed: %v", n, len(all), err)
		}
		if over := r.Over(nil); !slices.Equal(over, []market.LeaseID{l.ID}) {
			t.Errorf("over are %v", over)
		}
		r.Forgotten(l.ID)
		if r.Find(l.ID) != nil || len(r.Over(nil)) != 0 {
			t.Error("a forgotten lease is kept")
		}
	})
}

// A buyer that is silent for a while is billed for all of it later, and one that stays silent loses its lease.
func TestSilentBuyer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.lease(1)
		time.Sleep(10 * time.Second)
		r.SetSilent(true)
		time.Sleep(6 * time.Second)
		r.SetSilent(false)
		time.Sleep(20 * time.Second)
		gapless(t, r.receipts())
		if r.state(l.ID) != lease.Active {
			t.Fatalf("after a short silence the lease is %s", r.state(l.ID))
		}
		r.SetSilent(true)
		time.Sleep(10 * time.Minute)
		if r.state(l.ID) == lease.Active || !slices.Contains(r.ended, l.ID) || r.books.Book().Free("cpu") != 2 {
			t.Errorf("after a long silence the lease is %s, ended are %v", r.state(l.ID), r.ended)
		}
	})
}

// A buyer may take an interval for an answer. One that comes a little later brings the next voucher, and the work
// goes on.
func TestSlowBuyer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ silent, slow time.Duration }{
		"a long answer": {0, 1800 * time.Millisecond},
		"a late answer": {6500 * time.Millisecond, 1500 * time.Millisecond}, // to the call of 17 s
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			l := r.lease(1)
			time.Sleep(10 * time.Second)
			if c.silent > 0 {
				r.SetSilent(true)
				time.Sleep(c.silent)
				r.SetSilent(false)
			}
			r.SetSlow(c.slow)
			time.Sleep(8500*time.Millisecond - c.silent)
			r.SetSlow(0) // the receipt is of 12 s, the grace is over at 18 s
			time.Sleep(30 * time.Second)
			all := r.receipts()
			gapless(t, all)
			if r.state(l.ID) != lease.Active || len(r.ended) != 0 || len(all) < 10 {
				t.Errorf("%s: the lease is %s after %d receipts, ended are %v", name, r.state(l.ID), len(all), r.ended)
			}
		})
	}
}

// A buyer that takes its time does not keep a lease from being released.
func TestReleaseWhileBuyerIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l := r.lease(1)
		time.Sleep(10 * time.Second)
		r.SetSlow(time.Minute)
		time.Sleep(3 * time.Second) // the call of 12 s is under way
		r.step(lease.ReleaseRequested{Lease: l.ID, By: r.Key.Key()})
		time.Sleep(time.Second)
		if !slices.Contains(r.ended, l.ID) {
			t.Error("its work goes on")
		}
		r.SetSlow(0)
		time.Sleep(30 * time.Second)
		gapless(t, r.receipts())
		if s := r.Payer(l.ID).State(); s != meter.PayerSettled || r.state(l.ID) != lease.Ended {
			t.Errorf("the payments are %s, the lease is %s", s, r.state(l.ID))
		}
	})
}

// A first voucher that pays nothing, or is another lease's, begins nothing, and the next one does.
func TestFirstVoucher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		first, second := r.signed(1), r.signed(2)
		var no *stream.Refused
		if _, err := r.begin(first, r.First(second)); !errors.As(err, &no) || no.Code != "voucher" {
			t.Errorf("another lease's voucher: %v", err)
		}
		if r.Find(first.ID) != nil {
			t.Error("a lease that was not paid for is metered")
		}
		rec, _ := r.books.Book().Lease(first.ID)
		if err := r.Taken(rec); !errors.As(err, &no) {
			t.Errorf("commands under a lease that is not paid for: %v", err)
		}
		m, err := r.begin(first, r.First(first))
		if err != nil || m.Promised() != 0 || m.Signed() != 0 {
			t.Fatalf("its own voucher: %v", err)
		}
		again, err := r.begin(first, r.First(first))
		if err != nil || again != m {
			t.Errorf("the same again: %v", err)
		}
		select {
		case <-m.Funding():
			t.Error("its escrow is not looked for")
		default:
			m.Funded()
		}
		r.HandTo(first.ID)
		if n, earned := m.Account(); n != 0 || earned != 0 {
			t.Errorf("%d receipts, %d earned before it runs", n, earned)
		}
	})
}

// Power is cut before and after each of the first writes. After the next start no slot is billed twice or left out.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, when := range []store.When{store.Before, store.After} {
		for n := 1; n <= 8; n++ {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				l := r.lease(1)
				r.stop()
				power := store.NewCrashing(r.disk)
				power.CrashAt(n, when)
				r.store = power
				r.start()
				time.Sleep(40 * time.Second)
				select {
				case <-power.Crashed():
				default:
					t.Fatalf("write %d did not come", n)
				}
				r.stop()
				r.store = r.disk
				r.start()
				time.Sleep(40 * time.Second)
				gapless(t, r.receipts())
				if r.state(l.ID) != lease.Active && len(r.ended) == 0 {
					t.Errorf("write %d, side %d: the lease is %s and its work goes on", n, when, r.state(l.ID))
				}
			})
		}
	}
}
