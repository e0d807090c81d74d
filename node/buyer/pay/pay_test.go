package pay

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/trace"
	"github.com/starling-network/starling/node/store"
)

// bubble runs a test of a world whose chain makes blocks.
func bubble(t *testing.T, run func(ctx context.Context, t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		done := make(chan struct{})
		go func() { defer close(done); w.blocks(ctx) }()
		defer func() {
			cancel()
			<-done
			if err := w.programs.Check(); err != nil {
				t.Error(err)
			}
		}()
		run(ctx, t, w)
	})
}

// pays takes a job's leases from their funding to the settlement, in one process after the other.
func pays(ctx context.Context, w *world, x *Payments, leases []Lease) error {
	x.Forsake("job")
	if len(w.peer.Of("job")) == 0 {
		sources, err := x.Fund(ctx, "job", leases)
		if err != nil {
			return err
		}
		for i := range leases {
			leases[i].Escrow = sources[i].Escrow
		}
		w.peer.mu.Lock()
		w.peer.leases = slices.Clone(leases)
		w.peer.mu.Unlock()
	}
	for i := range leases {
		w.peer.mu.Lock()
		leases[i].Settled = true
		w.peer.leases[i].Settled = true
		w.peer.mu.Unlock()
		x.Retire(leases[i])
	}
	_, _, err := x.Settle(ctx, "job", leases, billed{w.peer})
	return err
}

// settled waits until nothing of the job is left on chain, and checks that all of its money is back.
func settled(ctx context.Context, w *world, x *Payments) {
	w.t.Helper()
	open := func() bool {
		return slices.ContainsFunc(x.Escrows("job"), func(e record.Escrow) bool { return !e.Closed }) ||
			slices.ContainsFunc(x.of("job"), func(name string) bool {
				m, _, err := x.deposits.Get(name)
				return err == nil && !m.Closed()
			})
	}
	for open() && ctx.Err() == nil {
		time.Sleep(time.Second)
	}
	s := w.programs.State()
	if got := w.balance(); got != wallet || len(s.Escrows) > 0 || s.Rent[self.Key()] != 0 {
		w.t.Errorf("the wallet holds %d of %d, %d escrows are open, %d lamports of rent are out",
			got, wallet, len(s.Escrows), s.Rent[self.Key()])
	}
}

// TestPays takes the money of a job through its whole life. Nothing is claimed, so all of it comes back.
func TestPays(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T, w *world) {
		disk := store.NewMemory()
		x, stop := w.start(ctx, disk)
		defer func() { stop() }()
		leases := []Lease{w.lease(1, 0, 300), w.lease(1, 1, 400)}
		w.peer.bill = Anchoring{Root: sign.Hash{9}, Receipts: 2}
		if err := pays(ctx, w, x, leases); err != nil {
			t.Fatal(err)
		}
		settled(ctx, w, x)
		all := x.Escrows("job")
		if len(all) != 1 || all[0].Deposited != 700 || all[0].Refunded != 700 || all[0].Paid != 0 || !all[0].Closed {
			t.Errorf("the escrows are %+v", all)
		}
		if paid, held := Claimed(all); paid != 0 || held != 0 {
			t.Errorf("%d are paid and %d held", paid, held)
		}
		if took := Took(all, 1, 2); took.Rent != 0 || took.Fees == 0 {
			t.Errorf("it took %+v", took)
		}
		if len(w.peer.void) > 0 || !w.peer.leases[0].Retired || !w.peer.leases[1].Retired {
			t.Errorf("void are %v; the leases are %+v", w.peer.void, w.peer.leases)
		}
		funded := strings.Join(w.peer.noted(trace.Funded), "; ")
		for _, want := range []string{"is being opened", "2 leases are in escrow", "for good"} {
			if !strings.Contains(funded, want) {
				t.Errorf("noted was %q, without %q", funded, want)
			}
		}
		if !slices.Contains(w.programs.Calls(), "CloseAnchor") {
			t.Error("the receipts are not anchored")
		}

		stop() // the next process shows the same, and lets it go
		x, stop = w.start(ctx, disk)
		if again := x.Escrows("job"); len(again) != 1 || again[0].Address != all[0].Address || !again[0].Closed {
			t.Errorf("afterwards the escrows are %+v", again)
		}
		time.Sleep(time.Minute)
		gone, end, ok := x.LetGo("job")
		var kinds []string
		for _, p := range gone {
			kinds = append(kinds, p.Kind)
		}
		slices.Sort(kinds)
		if !ok || !slices.Equal(kinds, []string{"deposit", "escrow"}) {
			t.Fatalf("let go: %v, %v", kinds, ok)
		}
		if end(false); len(x.Escrows("job")) != 1 || len(x.of("job")) != 1 {
			t.Error("the money is not kept after all")
		}
		time.Sleep(time.Minute)
		if _, end, ok = x.LetGo("job"); !ok {
			t.Fatal("not let go")
		}
		if end(true); len(x.Escrows("job")) != 0 || len(x.of("job")) != 0 {
			t.Error("the money is in memory still")
		}
	})
}

// TestCrashAtEveryWrite: after a crash at any write, on either side of it, the next process brings all money back.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	writes := 0
	bubble(t, func(ctx context.Context, t *testing.T, w *world) {
		s := store.NewCrashing(store.NewMemory())
		x, stop := w.start(ctx, s)
		defer stop()
		w.peer.bill = Anchoring{Root: sign.Hash{9}, Receipts: 2}
		if err := pays(ctx, w, x, []Lease{w.lease(1, 0, 300), w.lease(1, 1, 400)}); err != nil {
			t.Fatal(err)
		}
		settled(ctx, w, x)
		writes = s.Count()
	})
	if writes < 5 {
		t.Fatalf("%d writes", writes)
	}
	for n := 1; n <= writes; n++ {
		for _, when := range []store.When{store.Before, store.After} {
			bubble(t, func(ctx context.Context, t *testing.T, w *world) { crashed(ctx, t, w, n, when) })
		}
	}
}

// crashed settles a job whose first process crashes at its n-th write.
func crashed(ctx context.Context, t *testing.T, w *world, n int, when store.When) {
	disk := store.NewMemory()
	s := store.NewCrashing(disk)
	s.CrashAt(n, when)
	w.peer.bill = Anchoring{Root: sign.Hash{9}, Receipts: 2}
	x, stop := w.start(ctx, s)
	first, cut := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-s.Crashed():
		case <-first.Done():
		}
		cut()
		stop()
	}()
	err := pays(first, w, x, []Lease{w.lease(1, 0, 300), w.lease(1, 1, 400)})
	if err == nil && first.Err() == nil {
		for first.Err() == nil && w.balance() != wallet {
			time.Sleep(time.Second)
		}
	}
	cut()
	<-stopped

	x, stop = w.start(ctx, disk)
	defer stop()
	leases := w.peer.Of("job")
	if len(leases) == 0 { // it did not live to take them: they are ordered again
		leases = []Lease{w.lease(2, 0, 300), w.lease(2, 1, 400)}
	}
	if err := pays(ctx, w, x, leases); err != nil {
		t.Errorf("crash at write %d, %d: %v", n, when, err)
	}
	settled(ctx, w, x)
	if t.Failed() {
		t.Fatalf("it was the crash at write %d, side %d", n, when)
	}
}

// TestUnused: the money of an order whose leases were not taken after all comes back without a settlement, unless
// standbys may be hired from its escrow.
func TestUnused(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T, w *world) {
		x, stop := w.start(ctx, store.NewMemory())
		defer stop()
		l := w.lease(1, 0, 300)
		if _, err := x.Fund(ctx, "job", []Lease{l}); err != nil {
			t.Fatal(err)
		}
		x.Retire(l)
		w.peer.guard = &Guard{Running: true, Place: &record.Place{Order: l.Core.Order}}
		x.Unused("job", l.Core.Order)
		if m, _, err := x.deposits.Get(nameOf("job", l.Core.Order)); err != nil || m.Ending() {
			t.Errorf("an escrow for standbys is wound up: %v", err)
		}
		w.peer.guard.Running = false
		x.Unused("job", l.Core.Order)
		x.Unused("job", market.OrderID{77}) // nothing was set aside for it
		settled(ctx, w, x)
	})
}

// TestGuarded: the deposit of a guarded job has the standbys' money and the guardians' wages beside the leases. The job
// knows its place before Fund returns.
func TestGuarded(t *testing.T) {
	t.Parallel()
	bubble(t, func(ctx context.Context, t *testing.T, w *world) {
		x, stop := w.start(ctx, store.NewMemory())
		defer stop()
		l, wage := w.lease(1, 0, 300), w.lease(1, 7, 50)
		spare := sign.NewPrivate([32]byte{60}).Key()
		w.peer.guard = &Guard{
			Mine: true, Key: self.Key(), Wages: []market.LeaseCore{wage.Core}, Standbys: []Standby{
				{Provider: l.Core.Provider, Payout: spare, Price: 1000, Units: 1, Budget: 4000}, // it has a lease
				{Provider: spare, Payout: spare, Price: 1000, Units: 1, Budget: 100},
			},
		}
		sources, err := x.Fund(ctx, "job", []Lease{l})
		if err != nil {
			t.Fatal(err)
		}
		p := w.peer.placed
		if len(p) != 1 || p[0].Address != sources[0].Escrow || p[0].Order != l.Core.Order ||
			p[0].Deadline < l.Core.End {
			t.Fatalf("placed is %+v", p)
		}
		if !slices.Equal(p[0].Standbys, []sign.Key{spare}) || len(p[0].Wages) != 1 || p[0].Wages[wage.ID] == nil {
			t.Errorf("others' shares are of %v and %v", p[0].Standbys, p[0].Wages)
		}
		for ctx.Err() == nil && !strings.Contains(strings.Join(w.peer.noted(trace.Funded), "; "), "for good") {
			time.Sleep(time.Second)
		}
		if all := x.Escrows("job"); len(all) != 1 || all[0].Deposited != 300+50+100 {
			t.Errorf("set aside is %+v", all)
		}
		funded := w.peer.noted(trace.Funded)
		if !strings.HasPrefix(funded[len(funded)-1], "1 leases and 1 wages are in") {
			t.Errorf("noted is %q", funded)
		}
	})
}

// TestMoved: leases that name another address of their order's escrow are void, and those of other orders are not.
func TestMoved(t *testing.T) {
	t.Parallel()
	w := &world{t: t, peer: newPeer()}
	a, b, c := w.lease(1, 0, 1), w.lease(1, 1, 1), w.lease(2, 0, 1)
	a.Escrow, b.Escrow, c.Escrow = sign.Key{1}, sign.Key{2}, sign.Key{1}
	w.peer.leases = []Lease{a, b, c}
	x := &Payments{cfg: Config{Jobs: w.peer, Leases: w.peer}}
	x.moved(nameOf("job", a.Core.Order), sign.Key{2})
	if len(w.peer.void) != 1 || w.peer.void[a.ID] != "its escrow could not be opened in time" {
		t.Errorf("void are %v", w.peer.void)
	}
}

// TestTurns: a job's second hire waits for the first, and other jobs' do not.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := &turns{busy: map[string]turn{}}
		if err := x.take(t.Context(), "a/1"); err != nil {
			t.Fatal(err)
		}
		if err := x.take(t.Context(), "b/1"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := x.take(ctx, "a/2"); err == nil {
			t.Error("two hires at once")
		}
		took := make(chan error, 1)
		go func() { took <- x.take(t.Context(), "a/2") }()
		synctest.Wait()
		x.end("a/3") // not its turn
		x.end("b/1")
		synctest.Wait()
		select {
		case err := <-took:
			t.Errorf("the turn of a/1 ended: %v", err)
		default:
		}
		if x.end("a/1"); <-took != nil {
			t.Error("a/2 has no turn")
		}
	})
}

// TestFree: nothing is paid on a free network, and each lease has a source.
func TestFree(t *testing.T) {
	t.Parallel()
	sources, err := Free{}.Fund(t.Context(), "job", make([]Lease, 3))
	if err != nil || len(sources) != 3 || !sources[0].Escrow.IsZero() {
		t.Errorf("%+v, %v", sources, err)
	}
	p := newPeer()
	p.bill = Anchoring{Receipts: 3}
	if paid, tx, err := (Free{}).Settle(t.Context(), "job", nil, billed{p}); paid != 0 || len(tx) > 0 || err != nil {
		t.Errorf("paid %d, %v, %v", paid, tx, err)
	}
	if _, _, ok := (Free{}).LetGo("job"); !ok || (Free{}).Afford(t.Context(), "", 1<<60, 9) != nil {
		t.Error("something is kept or refused")
	}
}
