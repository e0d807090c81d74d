package settle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
	"github.com/starling-network/starling/node/machine"
	"github.com/starling-network/starling/node/store"
)

var counterTable = journal.Define[string, Record]("counter")

// journalled returns the state of a counter in a journal.
func journalled(t *testing.T, s journal.Store, name string) (state []byte) {
	t.Helper()
	err := counterTable.List(t.Context(), s, name, func(_ string, r Record) error { state = r.State; return nil })
	if err != nil {
		t.Error(err)
	}
	return state
}

// write journals the state of a counter.
func write(t *testing.T, s journal.Store, name, state string) {
	t.Helper()
	if err := counterTable.Write(t.Context(), s, name, Record{State: json.RawMessage(state)}); err != nil {
		t.Fatal(err)
	}
}

// counter is a machine that keeps how many leases it was told to fund, and looks at each tick until it was told to end.
type counter struct {
	funded uint8
	ended  bool
	next   time.Time
}

var errFull = errors.New("no more than three")

// unlucky is a slot over which a counter panics.
const unlucky = 100

func (c counter) state() []byte {
	return fmt.Appendf(nil, "[%d,%t]", c.funded, c.ended)
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
	case escrow.Looked: // one more lease for each slot that was seen
		if ev.Final.Slot == unlucky {
			panic("unlucky")
		}
		if next.funded = uint8(ev.Final.Slot); next.funded > c.funded {
			return next, []escrow.Effect{escrow.Persist{State: next.state()}}, nil
		}
		return c, nil, nil
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
func (l *blind) Bid(context.Context, []svm.Instruction, market.Amount, uint8) ([]svm.Instruction, error) {
	return nil, chain.ErrDown
}
func (l *blind) Sign(context.Context, []svm.Instruction, []svm.Table, ...sign.Signer) (chain.Prepared, error) {
	return chain.Prepared{}, chain.ErrDown
}
func (l *blind) Send(context.Context, chain.Prepared) error { return chain.ErrDown }
func (l *blind) Status(context.Context, chain.Prepared) (chain.TxStatus, error) {
	return chain.TxStatus{}, chain.ErrDown
}

// take returns how often somebody looked since the last call.
func (l *blind) take() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.looks
	l.looks = 0
	return n
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

// notes is an owner that keeps the effects it is notified of.
type notes struct {
	mu  sync.Mutex
	all []escrow.Effect
}

func (n *notes) Looked(string, escrow.View) {}
func (n *notes) Landed(string, Landed)      {}
func (n *notes) Over(c counter) bool        { return c.ended }

func (n *notes) Restore(_ context.Context, b []byte) (counter, error) {
	var c counter
	_, err := fmt.Sscanf(string(b), "[%d,%t]", &c.funded, &c.ended)
	return c, err
}

func (n *notes) Notify(_ string, e escrow.Effect) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, e)
}

// keeper runs a Keeper of counters on a journal until stop is called.
func keeper(t *testing.T, s store.Store, l escrow.Ledger, n *notes) (k *Keeper[counter], stop func()) {
	t.Helper()
	k = stopped(t, s, l, n)
	return k, run(k)
}

// stopped makes a Keeper of counters that does not run.
func stopped(t *testing.T, s store.Store, l escrow.Ledger, n *notes) *Keeper[counter] {
	t.Helper()
	k, err := NewKeeper(t.Context(), KeeperConfig[counter]{
		Table: counterTable, Ledger: l, Store: s, Owner: n, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// run runs a Keeper until the function that it returns is called.
func run(k *Keeper[counter]) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	return func() { cancel(); <-done }
}

func fund(n int) escrow.Fund { return escrow.Fund{Leases: make([]market.LeaseCore, n)} }

// What a machine is told is in the journal when Ask returns, its refusals are Ask's, and the next process goes on
// from there.
func TestKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, l, n := store.NewMemory(), &blind{}, &notes{}
		k, stop := keeper(t, journal, l, n)
		if err := k.Ask(t.Context(), "a", fund(1)); !errors.Is(err, machine.ErrUnknown) {
			t.Errorf("a machine that is not kept: %v", err)
		}
		k.Add("a", counter{})
		if err := k.Ask(t.Context(), "a", fund(2)); err != nil {
			t.Fatal(err)
		}
		if b := journalled(t, journal, "a"); string(b) != "[2,false]" {
			t.Errorf("the journal has %s", b)
		}
		if err := k.Ask(t.Context(), "a", fund(2)); !errors.Is(err, errFull) {
			t.Errorf("two more than three: %v", err)
		}
		k.Add("a", counter{}) // stays what it is
		stop()
		k, stop = keeper(t, journal, l, n)
		m, err := k.Until(t.Context(), "a", func(c counter) bool { return c.funded == 2 })
		if err != nil || m.ended {
			t.Errorf("the next process has %+v, %v", m, err)
		}
		l.take()
		time.Sleep(10*time.Second + time.Millisecond)
		if n := l.take(); n < 10 || n > 11 {
			t.Errorf("it looked %d times in ten seconds", n)
		}
		if err := k.Ask(t.Context(), "a", escrow.End{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		l.take()
		time.Sleep(10 * time.Second)
		if n := l.take(); n > 0 {
			t.Errorf("it looked %d times after its end", n)
		}
		stop()
		if want := []escrow.Effect{escrow.Refunded{Amount: 2}}; !slices.Equal(n.all, want) {
			t.Errorf("told were %v", n.all)
		}
	})
}

// A machine that is over still answers, in the process in which it ended and in the next: who winds up again after a
// crash is not kept waiting for ever.
func TestKeeperToldAfterItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, l, n := store.NewMemory(), &blind{}, &notes{}
		k, stop := keeper(t, journal, l, n)
		k.Add("a", counter{})
		for range 2 {
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if err := k.Ask(ctx, "a", escrow.End{}); err != nil {
					t.Errorf("told to end: %v", err)
				}
				cancel()
				synctest.Wait()
			}
			if err := k.Post("a", fund(1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if back, ok := k.Drop("a"); !ok {
				t.Error("what it was told after its end stays")
			} else {
				back()
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
		write(t, journal, "a", "[1,true]")
		_, stop := keeper(t, journal, l, &notes{})
		time.Sleep(time.Minute)
		stop()
		if n := l.take(); n != 1 {
			t.Errorf("it had %d ticks", n)
		}
	})
}

// A machine is dropped once it is over and all was told that it had to tell, and not before; back keeps it on.
func TestKeeperDrops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, l, n := store.NewMemory(), &blind{}, &notes{}
		write(t, journal, "old", "[1,true]")
		k := stopped(t, journal, l, n)
		if _, ok := k.Drop("old"); ok {
			t.Error("a machine is dropped before it had its tick")
		}
		defer run(k)()
		k.Add("a", counter{})
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			if _, ok := k.Drop(name); ok {
				t.Errorf("machine %s is dropped, which is not over, or not there", name)
			}
		}
		if err := k.Ask(t.Context(), "a", escrow.End{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 2 {
			back, ok := k.Drop("a")
			if !ok {
				t.Fatal("a machine that is over stays")
			}
			if err := k.Post("a", escrow.End{}); !errors.Is(err, machine.ErrUnknown) {
				t.Errorf("a machine that was dropped is told: %v", err)
			}
			back()
			if err := k.Ask(t.Context(), "a", escrow.End{}); err != nil {
				t.Errorf("a machine that is back is told: %v", err)
			}
			synctest.Wait()
		}
		if _, ok := k.Drop("old"); !ok || !slices.Equal(k.Names(), []string{"a"}) {
			t.Errorf("kept are %v", k.Names())
		}
	})
}

// An event that the journal does not take is refused to who waits for it, and kept for who does not; the machine is
// then what the journal has.
func TestKeeperJournalFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal, full := &refusing{Store: store.NewMemory()}, errors.New("disk full")
		k, stop := keeper(t, journal, &blind{}, &notes{})
		defer stop()
		k.Add("a", counter{})
		if err := k.Ask(t.Context(), "a", fund(1)); err != nil {
			t.Fatal(err)
		}
		journal.fail(full)
		if err := k.Ask(t.Context(), "a", fund(1)); !errors.Is(err, full) {
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
		if b := journalled(t, journal, "a"); string(b) != "[3,false]" {
			t.Errorf("the journal has %s", b)
		}
	})
}
