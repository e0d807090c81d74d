package settle

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// counter is a machine that keeps how many leases it was told to fund, and looks at each tick until it was told to end.
type counter struct {
	funded uint8
	ended  bool
	next   time.Time
}

var errFull = errors.New("no more than three")

func (c counter) state() []byte {
	if c.ended {
		return []byte{c.funded, 1}
	}
	return []byte{c.funded, 0}
}

func (c counter) Next() time.Time { return c.next }

func (c counter) Step(now time.Time, ev escrow.Event) (counter, []escrow.Effect, error) {
	next := c
	switch ev := ev.(type) {
	case escrow.Fund:
		if next.funded += uint8(len(ev.Leases)); next.funded > 3 {
			return c, nil, errFull
		}
		return next, []escrow.Effect{escrow.Persist{State: next.state()}, escrow.Refunded{Amount: market.Amount(next.funded)}}, nil
	case escrow.End:
		next.ended, next.next = true, time.Time{}
		return next, []escrow.Effect{escrow.Persist{State: next.state()}}, nil
	case escrow.Ticked:
		next.next = now.Add(time.Second)
		return next, []escrow.Effect{escrow.Look{}}, nil
	}
	return next, nil, nil
}

// blind is a ledger on which nothing is seen; it counts how often somebody looked.
type blind struct {
	mu    sync.Mutex
	looks int
}

func (l *blind) Look(_ context.Context, _ sign.Key, _ []uint16, level escrow.Level) (escrow.View, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if level == escrow.Confirmed {
		l.looks++
	}
	return escrow.View{}, nil
}
func (l *blind) Bid(context.Context, []program.Instruction, market.Amount, uint8) ([]program.Instruction, error) {
	return nil, chain.ErrDown
}
func (l *blind) Sign(context.Context, []program.Instruction, []program.Table, ...sign.Signer) (chain.Prepared, error) {
	return chain.Prepared{}, chain.ErrDown
}
func (l *blind) Send(context.Context, chain.Prepared) error { return chain.ErrDown }
func (l *blind) Status(context.Context, chain.Prepared) (chain.TxStatus, error) {
	return chain.TxStatus{}, chain.ErrDown
}

// refusing is a journal that refuses writes while told to.
type refusing struct {
	store.Store
	mu  sync.Mutex
	err error
}

func (f *refusing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *refusing) Write(ctx context.Context, puts ...store.Put) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Store.Write(ctx, puts...)
}

type notes struct {
	mu  sync.Mutex
	all []escrow.Effect
}

func (n *notes) told(_ string, e escrow.Effect) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

// keeper runs a Keeper of counters on a journal until the test is over.
func keeper(t *testing.T, s store.Store, l *blind, n *notes) (k *Keeper[counter], stop func()) {
	t.Helper()
	k, err := NewKeeper(t.Context(), KeeperConfig[counter]{
		Kind: "counter", Ledger: l, Store: s, Told: n.told, Log: slog.New(slog.DiscardHandler),
		Over:     func(c counter) bool { return c.ended },
		Observer: Observer{Looked: func(string, escrow.View) {}, Landed: func(string, Landed) {}},
		Restore: func(_ context.Context, b []byte) (counter, error) {
			return counter{funded: b[0], ended: b[1] == 1}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	return k, func() { cancel(); <-done }
}

func fund(n int) escrow.Fund { return escrow.Fund{Leases: make([]market.LeaseCore, n)} }

// What a machine is told is in the journal when Tell returns, its refusals are Tell's, and the next process goes on from there.
func TestKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, l, n := store.NewMemory(), &blind{}, &notes{}
		k, stop := keeper(t, journal, l, n)
		if err := k.Tell(t.Context(), "a", fund(1)); !errors.Is(err, ErrUnkept) {
			t.Errorf("a machine that is not kept: %v", err)
		}
		k.Add("a", counter{})
		if err := k.Tell(t.Context(), "a", fund(2)); err != nil {
			t.Fatal(err)
		}
		if b, err := journal.Get(t.Context(), "counter", "a"); err != nil || !slices.Equal(b, []byte{2, 0}) {
			t.Errorf("the journal has %v, %v", b, err)
		}
		if err := k.Tell(t.Context(), "a", fund(2)); !errors.Is(err, errFull) {
			t.Errorf("two more than three: %v", err)
		}
		k.Add("a", counter{}) // stays what it is
		stop()
		k, stop = keeper(t, journal, l, n)
		m, err := k.Until(t.Context(), "a", func(c counter) bool { return c.funded == 2 })
		if err != nil || m.ended {
			t.Errorf("the next process has %+v, %v", m, err)
		}
		l.looks = 0
		time.Sleep(10*time.Second + time.Millisecond)
		if l.looks < 10 || l.looks > 11 {
			t.Errorf("it looked %d times in ten seconds", l.looks)
		}
		if err := k.Tell(t.Context(), "a", escrow.End{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		l.looks = 0
		time.Sleep(10 * time.Second)
		if l.looks > 0 {
			t.Errorf("it looked %d times after its end", l.looks)
		}
		stop()
		if want := []escrow.Effect{escrow.Refunded{Amount: 2}}; !slices.Equal(n.all, want) {
			t.Errorf("told were %v", n.all)
		}
	})
}

// A machine that is over still answers, in the process in which it ended and in the next: who winds up again after a crash is not
// kept waiting for ever.
func TestKeeperToldAfterItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, l, n := store.NewMemory(), &blind{}, &notes{}
		k, stop := keeper(t, journal, l, n)
		k.Add("a", counter{})
		for range 2 {
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if err := k.Tell(ctx, "a", escrow.End{}); err != nil {
					t.Errorf("told to end: %v", err)
				}
				cancel()
				synctest.Wait()
			}
			if err := k.Post("a", fund(1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if c := k.kept["a"]; len(c.inbox) > 0 || c.running {
				t.Error("what it was told after its end stays")
			}
			stop()
			k, stop = keeper(t, journal, l, n)
		}
		stop()
	})
}

// A machine that an earlier process brought to its end has one tick in the next one, for what nobody may have heard.
func TestKeeperTicksOnceAfterItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, l := store.NewMemory(), &blind{}
		if err := journal.Write(t.Context(), store.Put{Kind: "counter", Key: "a", Value: []byte{1, 1}}); err != nil {
			t.Fatal(err)
		}
		_, stop := keeper(t, journal, l, &notes{})
		time.Sleep(time.Minute)
		stop()
		if l.looks != 1 {
			t.Errorf("it had %d ticks", l.looks)
		}
	})
}

// A machine is dropped once it is over and all was told that it had to tell, and not before; back keeps it on.
func TestKeeperDrops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, l, n := store.NewMemory(), &blind{}, &notes{}
		if err := journal.Write(t.Context(), store.Put{Kind: "counter", Key: "old", Value: []byte{1, 1}}); err != nil {
			t.Fatal(err)
		}
		k, stop := keeper(t, journal, l, n)
		defer stop()
		if _, ok := k.Drop("old"); ok {
			t.Error("a machine is dropped before it had its tick")
		}
		k.Add("a", counter{})
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			if _, ok := k.Drop(name); ok {
				t.Errorf("machine %s is dropped, which is not over, or not there", name)
			}
		}
		if err := k.Tell(t.Context(), "a", escrow.End{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 2 {
			back, ok := k.Drop("a")
			if !ok {
				t.Fatal("a machine that is over stays")
			}
			if err := k.Post("a", escrow.End{}); !errors.Is(err, ErrUnkept) {
				t.Errorf("a machine that was dropped is told: %v", err)
			}
			back()
			if err := k.Tell(t.Context(), "a", escrow.End{}); err != nil {
				t.Errorf("a machine that is back is told: %v", err)
			}
			synctest.Wait()
		}
		if _, ok := k.Drop("old"); !ok || !slices.Equal(k.Names(), []string{"a"}) {
			t.Errorf("kept are %v", k.Names())
		}
	})
}

// An event that the journal does not take is refused to who waits for it, and kept for who does not; the machine is then what the
// journal has.
func TestKeeperJournalFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, full := &refusing{Store: store.NewMemory()}, errors.New("disk full")
		k, stop := keeper(t, journal, &blind{}, &notes{})
		defer stop()
		k.Add("a", counter{})
		if err := k.Tell(t.Context(), "a", fund(1)); err != nil {
			t.Fatal(err)
		}
		journal.fail(full)
		if err := k.Tell(t.Context(), "a", fund(1)); !errors.Is(err, full) {
			t.Errorf("a journal that fails: %v", err)
		}
		if err := k.Post("a", fund(2)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if m, _, err := k.Get("a"); err != nil || m.funded != 1 {
			t.Errorf("while the journal fails: %+v, %v", m, err)
		}
		journal.fail(nil)
		if _, err := k.Until(t.Context(), "a", func(c counter) bool { return c.funded == 3 }); err != nil {
			t.Error(err)
		}
		if b, err := journal.Get(t.Context(), "counter", "a"); err != nil || !slices.Equal(b, []byte{3, 0}) {
			t.Errorf("the journal has %v, %v", b, err)
		}
	})
}
