package slots

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
)

type source struct {
	slot market.Slot
	err  error
}

func (s *source) Slot(context.Context) (market.Slot, error) { return s.slot, s.err }

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
