package slots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
)

type source struct {
	slot market.Slot // confirmed; 32 before it is final
	err  error
}

func (s *source) Tip(context.Context) (chain.Tip, error) {
	return chain.Tip{Confirmed: s.slot, Final: s.slot - 32}, s.err
}

func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{err: errors.New("down")}
		c := New(src, 400, time.Second, slog.New(slog.DiscardHandler))
		if _, err := c.Now(time.Now()); !errors.Is(err, ErrUnknown) {
			t.Fatalf("a clock that never saw the chain told a slot: %v", err)
		}
		if err := c.Sync(t.Context()); err == nil || c.Reachable() {
			t.Fatal("a failed observation passed for one")
		}
		src.slot, src.err = 1000, nil
		if err := c.Sync(t.Context()); err != nil || !c.Reachable() {
			t.Fatal(err)
		}
		want := func(w market.Slot) {
			t.Helper()
			if s, err := c.Now(time.Now()); err != nil || s != w {
				t.Fatalf("slot %d, %v; want %d", s, err, w)
			}
		}
		want(1000)
		if d := c.Until(time.Now(), 1010); d != 4*time.Second {
			t.Fatalf("until slot 1010: %v", d)
		}
		time.Sleep(4 * time.Second)
		want(1010)
		// The chain was slower than nominal: the clock waits, it never goes back.
		src.slot = 1005
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(1010)
		time.Sleep(4 * time.Second)
		want(1015)
		// The chain is gone: the clock goes on.
		src.err = errors.New("down")
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		want(1025)
	})
}

// A chain that stands still, or is out of reach, holds the clock: it is never more than Margin past the newest final slot.
func TestClockOfHaltedChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{slot: 1000}
		c := New(src, 400, time.Second, slog.New(slog.DiscardHandler))
		for range 3 { // it answers, and makes no blocks
			if err := c.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if s, _ := c.Now(time.Now()); s != 1002 {
			t.Errorf("of a halted chain the clock says %d", s)
		}
		src.err = errors.New("down")
		time.Sleep(24 * time.Hour)
		_ = c.Sync(t.Context())
		most := 1000 - 32 + market.Slot(Margin/(400*time.Millisecond))
		if s, _ := c.Now(time.Now()); s != most {
			t.Errorf("of a chain that was out of reach for a day the clock says %d, want %d", s, most)
		}
		// It was halted all the time: the clock waits for it.
		src.slot, src.err = 1100, nil
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, _ := c.Now(time.Now()); s != most {
			t.Errorf("the clock went back to %d", s)
		}
		// It was not: a day's slots are believed, also of a chain that is half as fast again.
		src.slot = 1100 + market.Slot(36*time.Hour/(400*time.Millisecond))
		time.Sleep(24 * time.Hour)
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, _ := c.Now(time.Now()); s != src.slot {
			t.Errorf("after a day the clock says %d, want %d", s, src.slot)
		}
	})
}

// An endpoint that tells less than was final before changes nothing.
func TestClockOfOldEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{slot: 100_000}
		c := New(src, 400, time.Second, slog.New(slog.DiscardHandler))
		if err := c.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		src.slot = 99_990 // another server behind the same address
		if err := c.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		src.slot = 1000
		if err := c.Sync(t.Context()); !errors.Is(err, ErrBehind) || c.Reachable() {
			t.Errorf("slot 1000 after slot 100000: %v", err)
		}
		src.slot = 100_011
		if err := c.Sync(t.Context()); err != nil {
			t.Errorf("what is true was refused after a lie that was too low: %v", err)
		}
		if s, _ := c.Now(time.Now()); s != 100_011 {
			t.Errorf("the clock says %d", s)
		}
	})
}

// Whatever endpoints tell, the clock never goes back, and never passes the newest final slot that it believed by more than Margin.
func TestClockBounds(t *testing.T) {
	t.Parallel()
	type step struct {
		slot market.Slot // 0: the chain is down
		wait time.Duration
	}
	rapid.Check(t, func(rt *rapid.T) {
		at := market.Slot(1_000_000)
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) (s step) {
			switch rapid.IntRange(0, 3).Draw(rt, "answer") {
			case 0:
				s.slot = market.Slot(rapid.Uint64Range(32, 1<<40).Draw(rt, "slot"))
			case 1:
			default:
				at += market.Slot(rapid.Uint64Range(0, 10_000).Draw(rt, "further"))
				s.slot = at
			}
			s.wait = time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(rt, "wait"))
			return s
		}), 1, 30).Draw(rt, "steps")
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			src := &source{}
			c := New(src, 400, time.Second, slog.New(slog.DiscardHandler))
			last, believed := market.Slot(0), market.Slot(0)
			for _, s := range steps {
				if src.slot, src.err = s.slot, nil; s.slot == 0 {
					src.err = errors.New("down")
				}
				if c.Sync(t.Context()) == nil {
					believed = max(believed, src.slot-32)
				}
				time.Sleep(s.wait)
				now, err := c.Now(time.Now())
				if err != nil {
					continue
				}
				if now < last || now > believed+market.Slot(Margin/(400*time.Millisecond)) {
					wrong = fmt.Sprintf("the clock went from %d to %d; %d is final", last, now, believed)
				}
				last = now
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}
