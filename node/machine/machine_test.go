package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/store"
)

// Events that wait together share one write, and their effects leave after it, in order.
func TestOneWriteATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		p := start(t, d, &shell{})
		p.Add("a", ledger{})
		release := d.hold()
		var wg sync.WaitGroup
		ask := func(ev event) {
			wg.Go(func() {
				if _, err := p.Ask(t.Context(), "a", ev); err != nil {
					t.Errorf("%v: %v", ev, err)
				}
			})
			synctest.Wait()
		}
		var want []string
		for i := range 30 {
			text := fmt.Sprint(i)
			want = append(want, text)
			ask(note{text})
		}
		if got := p.shell.heard(); len(got) > 0 {
			t.Errorf("before the write the effects %v left", got)
		}
		if m, _, _ := p.Get("a"); m.Version > 0 {
			t.Errorf("before the write the state is %+v", m)
		}
		release()
		wg.Wait()
		if got := p.shell.heard(); !slices.Equal(got, want) {
			t.Errorf("effects are %v, want %v", got, want)
		}
		if d.count() != 2 { // of the first event, and of all others
			t.Errorf("30 events made %d writes, want 2", d.count())
		}
		ask(silent{9})
		if d.count() != 2 {
			t.Error("a step that changes nothing was written")
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The caller gets the effects, or the refusal of its event alone.
func TestAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := ready(t, store.NewMemory(), &shell{})
		if !p.Add("a", ledger{}) || p.Add("a", ledger{Version: 9}) {
			t.Error("a key that is taken is added")
		}
		if err := p.Post("a", note{"posted before Run"}); err != nil {
			t.Error(err)
		}
		p.run()
		if _, err := p.Until(t.Context(), "a", func(l ledger) bool { return l.Note != "" }); err != nil {
			t.Error(err)
		}
		effects, err := p.Ask(t.Context(), "a", note{"x"})
		if err != nil || !slices.Equal(effects, []effect{told{"x"}}) {
			t.Errorf("effects are %v, %v", effects, err)
		}
		if _, err := p.Ask(t.Context(), "a", add{n: -1}); !errors.Is(err, errSum) {
			t.Errorf("an event that is refused: %v", err)
		}
		if _, err := p.Ask(t.Context(), "b", note{}); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown machine: %v", err)
		}
		if err := p.Post("b", note{}); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown machine: %v", err)
		}
		if _, _, err := p.Get("b"); !errors.Is(err, ErrUnknown) {
			t.Errorf("an unknown machine: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Ask(ctx, "a", note{"late"}); !errors.Is(err, context.Canceled) {
			t.Errorf("after the caller's context: %v", err)
		}
		if _, err := p.Until(ctx, "a", func(ledger) bool { return false }); !errors.Is(err, context.Canceled) {
			t.Errorf("after the caller's context: %v", err)
		}
		if m, changed, err := p.Get("a"); err != nil || m.Note != "x" || isClosed(changed) {
			t.Errorf("the machine is %+v, %v", m, err)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if _, err := p.Ask(t.Context(), "a", note{}); !errors.Is(err, ErrStopped) {
			t.Errorf("after Run: %v", err)
		}
		if err := p.Post("a", note{}); !errors.Is(err, ErrStopped) {
			t.Errorf("after Run: %v", err)
		}
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Callers cannot fill an inbox beyond its limit; results and other machines still reach it.
func TestBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		p := start(t, d, &shell{})
		p.Add("a", ledger{})
		p.Add("b", ledger{})
		release := d.hold()
		var wg sync.WaitGroup
		for range maxAsked + 1 {
			wg.Go(func() {
				if _, err := p.Ask(t.Context(), "a", note{"asked"}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if _, err := p.Ask(t.Context(), "a", note{}); !errors.Is(err, ErrBusy) {
			t.Errorf("a full inbox: %v", err)
		}
		if err := p.Post("a", note{"posted"}); err != nil {
			t.Errorf("posted: %v", err)
		}
		if _, err := p.Ask(t.Context(), "b", silent{}); err != nil {
			t.Errorf("another machine: %v", err)
		}
		release()
		wg.Wait()
		if _, err := p.Ask(t.Context(), "a", note{"later"}); err != nil {
			t.Errorf("later: %v", err)
		}
		if m, _, _ := p.Get("a"); m.Version != maxAsked+3 {
			t.Errorf("version %d", m.Version)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Shutdown lets a write end, waits for calls, and answers those who wait.
func TestShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		ended := false
		p := start(t, d, &shell{call: func(ctx context.Context, _ string, f send) []event {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
			return []event{acked{f.number}}
		}})
		p.Add("a", ledger{})
		if _, err := p.Ask(t.Context(), "a", add{"1", 1}); err != nil {
			t.Fatal(err)
		}
		release := d.hold()
		answers := make(chan error, 2)
		for i := range 2 {
			go func() {
				_, err := p.Ask(context.Background(), "a", note{fmt.Sprint(i)})
				answers <- err
			}()
			synctest.Wait()
		}
		p.cancel()
		time.Sleep(5 * time.Second)
		if isClosed(p.done) {
			t.Error("Run returned while a write was under way")
		}
		release()
		if err := <-answers; err != nil {
			t.Errorf("the event under way: %v", err)
		}
		if err := <-answers; !errors.Is(err, ErrStopped) {
			t.Errorf("the event behind it: %v", err)
		}
		if err := p.stop(); err != nil || !ended {
			t.Errorf("Run returned %v; its call has ended: %v", err, ended)
		}
		p = start(t, d, &shell{call: func(_ context.Context, _ string, f send) []event {
			return []event{acked{f.number}}
		}})
		m, err := p.Until(t.Context(), "a", ledger.Done)
		if err != nil || m.Note != "0" {
			t.Errorf("the next process has %+v, %v", m, err)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Ticks come when a machine wants them, and not faster where a tick moves nothing.
func TestTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := start(t, store.NewMemory(), &shell{})
		p.Add("a", ledger{})
		began := time.Now()
		if _, err := p.Ask(t.Context(), "a", wake{began.Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		m, err := p.Until(t.Context(), "a", func(l ledger) bool { return l.ticks > 0 })
		if err != nil || time.Since(began) != time.Minute {
			t.Errorf("the tick came after %v: %+v, %v", time.Since(began), m, err)
		}
		time.Sleep(100 * time.Millisecond) // the ledger does not move its next tick
		if m, _, _ = p.Get("a"); m.ticks > 101 {
			t.Errorf("%d ticks in 100 ms", m.ticks)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// An answer that came while a machine could not be served counts before a deadline that passed meanwhile.
func TestEventsBeforeTicks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		p := start(t, store.NewMemory(), &shell{slow: time.Second, call: func(_ context.Context, _ string, f send) []event {
			if sent++; sent == 1 {
				return []event{silent{f.number}} // it is sent again after resend
			}
			return nil
		}})
		p.Add("a", ledger{}, add{"1", 1})
		time.Sleep(resend - time.Millisecond)
		for _, ev := range []event{note{"slow"}, acked{0}} {
			if err := p.Post("a", ev); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if m, err := p.Until(t.Context(), "a", ledger.Done); err != nil || m.Version != 3 {
			t.Errorf("%+v, %v", m, err)
		}
		time.Sleep(time.Minute)
		if sent != 1 {
			t.Errorf("it was sent %d times, and the answer was there", sent)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// After a restart a machine goes on unless it is Done. One that is Done can be removed; others cannot.
func TestResumeAndRemove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, calls := store.NewMemory(), []string{}
		none := func(context.Context, string, send) []event { return nil }
		p := start(t, s, &shell{call: none})
		for _, k := range []string{"open", "done"} {
			p.Add(k, ledger{}, add{"1", 1})
			if _, err := p.Until(t.Context(), k, func(l ledger) bool { return l.Version > 0 }); err != nil {
				t.Error(err)
			}
		}
		if _, err := p.Ask(t.Context(), "done", acked{0}); err != nil {
			t.Error(err)
		}
		if _, ok := p.Remove("open"); ok {
			t.Error("a machine is removed that is not done")
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		hold := make(chan struct{})
		p = start(t, s, &shell{call: func(_ context.Context, k string, f send) []event {
			calls = append(calls, k)
			<-hold
			return []event{acked{f.number}}
		}})
		synctest.Wait()
		if !slices.Equal(calls, []string{"open"}) {
			t.Errorf("resumed are %v", calls)
		}
		if _, err := p.Ask(t.Context(), "open", acked{0}); err != nil {
			t.Error(err)
		}
		if _, ok := p.Remove("open"); ok {
			t.Error("a machine is removed whose call is under way")
		}
		close(hold)
		synctest.Wait()
		_, changed, _ := p.Get("done")
		if m, ok := p.Remove("done"); !ok || len(m.Amounts) != 1 || !isClosed(changed) {
			t.Errorf("a machine that is done stays: %+v", m)
		}
		if _, ok := p.Remove("done"); ok || !slices.Equal(p.Keys(), []string{"open"}) {
			t.Errorf("machines are %v", p.Keys())
		}
		if _, ok := p.Remove("open"); !ok {
			t.Error("a machine that is done stays")
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A dropped machine still gets the results of its calls, and takes nothing else.
func TestDrop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, hold := store.NewMemory(), make(chan struct{})
		p := start(t, s, &shell{call: func(_ context.Context, _ string, f send) []event {
			<-hold
			return []event{acked{f.number}}
		}})
		p.Add("a", ledger{}, add{"1", 1}, wake{time.Now().Add(time.Second)})
		synctest.Wait()
		_, changed, err := p.Get("a")
		if p.Drop("a"); err != nil || !isClosed(changed) || len(p.Keys()) > 0 {
			t.Errorf("dropped (%v), and still there", err)
		}
		if _, err := p.Ask(t.Context(), "a", add{"2", 2}); !errors.Is(err, ErrUnknown) {
			t.Errorf("a request: %v", err)
		}
		time.Sleep(time.Minute)
		close(hold)
		synctest.Wait()
		if l, err := ledgers.Get(t.Context(), s, "a"); err != nil || len(l.Open) > 0 || len(l.Amounts) != 1 {
			t.Errorf("the journal has %+v, %v", l, err)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}
