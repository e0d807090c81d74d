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

// A panic of Step is a refusal: the state is as before, and the other events of the turn take effect.
func TestStepPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		p := start(t, d, &shell{call: func(context.Context, string, send) []event { return nil }})
		p.Add("a", ledger{})
		if _, err := p.Ask(t.Context(), "a", add{"1", 1}); err != nil {
			t.Fatal(err)
		}
		release := d.hold()
		var wg sync.WaitGroup
		for i, ev := range []event{add{"2", 2}, bang{}, add{"3", 3}} {
			wg.Go(func() {
				if _, err := p.Ask(t.Context(), "a", ev); errors.Is(err, ErrPanic) != (i == 1) {
					t.Errorf("event %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		release()
		wg.Wait()
		if m, _, _ := p.Get("a"); !slices.Equal(m.Amounts, []int{1, 2, 3}) {
			t.Errorf("amounts are %v", m.Amounts)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A panic of a shell ends the runner, and callers are answered.
func TestShellPanics(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"record", "carry", "call"} {
		synctest.Test(t, func(t *testing.T) {
			p := start(t, store.NewMemory(), &shell{})
			p.Add("a", ledger{})
			if _, err := p.Ask(t.Context(), "a", misdo{where}); err != nil && !errors.Is(err, ErrStopped) {
				t.Errorf("%s: %v", where, err)
			}
			<-p.done
			if !errors.Is(p.err, ErrPanic) {
				t.Errorf("%s: Run returned %v", where, p.err)
			}
		})
	}
}

// While the disk is full, callers are told to try again and posted events wait, in order; nothing of them is seen.
func TestWriteFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		p := start(t, d, &shell{})
		p.Add("a", ledger{})
		d.fail(store.ErrFull)
		_, err := p.Ask(t.Context(), "a", note{"asked"})
		if !errors.Is(err, ErrRetry) || !errors.Is(err, store.ErrFull) {
			t.Errorf("a full disk: %v", err)
		}
		if err := p.Post("a", wake{time.Now().Add(time.Second)}); err != nil { // changes nothing durable
			t.Error(err)
		}
		for i := range 3 {
			if err := p.Post("a", note{fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Second)
		if m, _, _ := p.Get("a"); m.Version > 0 || m.ticks > 0 || len(p.shell.heard()) > 0 {
			t.Errorf("while the disk is full: %+v", m)
		}
		if n := d.count(); n < 9 || n > 13 {
			t.Errorf("%d tries in 10 s", n)
		}
		d.fail(nil)
		time.Sleep(2 * time.Second)
		m, _, _ := p.Get("a")
		if m.Version != 3 || m.ticks == 0 || !slices.Equal(p.shell.heard(), []string{"0", "1", "2"}) {
			t.Errorf("afterwards: %+v, effects %v", m, p.shell.heard())
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// The event whose record can never be written is dropped alone.
func TestPoison(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		p := start(t, d, &shell{})
		p.Add("a", ledger{})
		release := d.hold()
		if err := p.Post("a", note{"first"}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		var wg sync.WaitGroup
		for i := range 100 {
			text, ev := fmt.Sprint(i), event(note{fmt.Sprint(i)})
			if i == 70 {
				ev = add{"poison", 1}
			}
			if i%2 == 1 {
				if err := p.Post("a", note{text}); err != nil {
					t.Error(err)
				}
				continue
			}
			wg.Go(func() {
				if _, err := p.Ask(t.Context(), "a", ev); errors.Is(err, store.ErrRecord) != (i == 70) {
					t.Errorf("event %d: %v", i, err)
				}
			})
			synctest.Wait()
		}
		release()
		wg.Wait()
		if err := p.Post("a", add{"poison", 1}); err != nil { // nobody waits for this one
			t.Error(err)
		}
		if _, err := p.Ask(t.Context(), "a", note{"last"}); err != nil {
			t.Error(err)
		}
		got := p.shell.heard()
		if m, _, _ := p.Get("a"); m.Version != 101 || len(m.Amounts) > 0 || got[70] != "69" || got[71] != "71" {
			t.Errorf("version %d, effects %v", m.Version, got)
		}
		if d.count() > 30 {
			t.Errorf("%d writes", d.count())
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A journal whose last write is in doubt ends the runner.
func TestBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &disk{Store: store.NewMemory()}
		p := start(t, d, &shell{})
		p.Add("a", ledger{})
		d.fail(store.ErrBroken)
		if _, err := p.Ask(t.Context(), "a", note{"x"}); !errors.Is(err, ErrStopped) {
			t.Errorf("asked: %v", err)
		}
		<-p.done
		if !errors.Is(p.err, store.ErrBroken) || len(p.shell.heard()) > 0 {
			t.Errorf("Run returned %v, effects are %v", p.err, p.shell.heard())
		}
	})
}

// A clock that is not known is waited for.
func TestClockUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := ready(t, store.NewMemory(), &shell{})
		began, unknown := time.Now(), errors.New("no slot yet")
		p.cfg.Clock = func() (Now, error) {
			if time.Since(began) < 5*time.Second {
				return Now{}, unknown
			}
			return Now{Time: time.Now()}, nil
		}
		p.run()
		p.Add("a", ledger{}, note{"x"})
		synctest.Wait()
		if _, err := p.Ask(t.Context(), "a", note{"y"}); !errors.Is(err, ErrRetry) || !errors.Is(err, unknown) {
			t.Errorf("asked: %v", err)
		}
		if _, err := p.Until(t.Context(), "a", func(l ledger) bool { return l.Note == "x" }); err != nil {
			t.Error(err)
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}
