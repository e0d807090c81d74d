package settle

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

// sluggish is a ledger on which everything takes ten seconds.
type sluggish struct {
	blind
	asked int
}

func (l *sluggish) Status(context.Context, chain.Prepared) (chain.TxStatus, error) {
	time.Sleep(10 * time.Second)
	l.asked++
	return chain.TxStatus{}, chain.ErrDown
}

// While the chain is slow a machine's effects wait, in order and each transaction once. Notify gets its effects even
// when the peer ends.
func TestKeeperSlowChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, n := &sluggish{}, &notes{}
		k, stop := keeper(t, store.NewMemory(), l, n)
		k.Add("a", counter{})
		synctest.Wait()
		shell := shell[counter]{k}
		var calls []func(context.Context) []escrow.Event
		for i := range 60 {
			for _, f := range []escrow.Effect{escrow.Push{No: 1}, escrow.Push{No: 2, Send: i < 30}} {
				if call := shell.Carry("b", f); call != nil {
					calls = append(calls, call)
				}
			}
		}
		shell.Carry("b", escrow.Refunded{Amount: 7})
		if len(calls) != 1 {
			t.Fatalf("%d calls of one machine", len(calls))
		}
		if got := k.queue("b").effects; len(got) != 3 {
			t.Fatalf("%d effects wait, want 3", len(got))
		} else if p := got[1].(escrow.Push); p.No != 2 || p.Send {
			t.Errorf("the second is %+v, want the newest", p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(15 * time.Second)
			cancel()
		}()
		calls[0](ctx)
		if !slices.Equal(n.all, []escrow.Effect{escrow.Refunded{Amount: 7}}) || l.asked != 2 {
			t.Errorf("notified were %v, the chain was asked %d times", n.all, l.asked)
		}
		stop()
	})
}

// faulty is an owner that panics over an effect.
type faulty struct{ *notes }

func (faulty) Notify(string, escrow.Effect) { panic("fault") }

// A fault of the code that carries effects out ends the program, as elsewhere.
func TestKeeperPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := stopped(t, store.NewMemory(), &blind{}, &notes{})
		k.cfg.Owner = faulty{&notes{}}
		k.Add("a", counter{})
		if err := k.Post("a", fund(1)); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if recover() == nil {
				t.Error("Run returned")
			}
		}()
		k.Run(t.Context())
	})
}

// slots is a ledger whose newest slot is the time in seconds.
type slots struct {
	blind
	began time.Time
}

func (l *slots) Look(context.Context, sign.Key, []uint16, escrow.Level) (escrow.View, error) {
	return escrow.View{Slot: market.Slot(time.Since(l.began) / time.Second)}, nil
}

// A view that the journal did not take is not kept: when the disk has room again the machine gets a newer one.
func TestKeeperLooksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		journal := &refusing{Store: store.NewMemory()}
		journal.fail(store.ErrFull)
		time.Sleep(time.Second / 2)
		k, stop := keeper(t, journal, &slots{began: time.Now()}, &notes{})
		defer stop()
		k.Add("a", counter{})
		time.Sleep(30 * time.Second)
		if m, _, err := k.Get("a"); err != nil || m.funded > 0 {
			t.Errorf("while the disk is full: %+v, %v", m, err)
		}
		journal.fail(nil)
		m, err := k.Until(t.Context(), "a", func(c counter) bool { return c.funded > 0 })
		if err != nil || m.funded < 29 {
			t.Errorf("afterwards the view is of slot %d, %v", m.funded, err)
		}
	})
}

// A machine that panics over an answer gets another one.
func TestKeeperPanicsOverAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &slots{began: time.Now()}
		time.Sleep(unlucky * time.Second)
		k, stop := keeper(t, store.NewMemory(), l, &notes{})
		defer stop()
		k.Add("a", counter{})
		m, err := k.Until(t.Context(), "a", func(c counter) bool { return c.funded > 0 })
		if err != nil || m.funded != unlucky+1 {
			t.Errorf("funded are %d, %v", m.funded, err)
		}
	})
}
