package slots

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/market"
)

// dated is a source whose clock differs from this machine's.
type dated struct {
	source
	ahead time.Duration
	known bool
}

func (d *dated) Ahead() (time.Duration, bool) { return d.ahead, d.known }

// The clock is out of order while the chain is away for a while, lies, lags or stands still, or this machine's clock is
// off; and in order again when that is over.
func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &dated{source: source{slot: 1_000_000}}
		c := New(src, 400, time.Second, slog.New(slog.DiscardHandler))
		observe := func(times int) {
			for range times {
				time.Sleep(time.Second)
				_ = c.Sync(t.Context())
			}
		}
		want := func(problem, remedy string) {
			t.Helper()
			p := c.Health()
			switch {
			case p == nil && problem != "":
				t.Errorf("in order, want %q", problem)
			case p != nil && (problem == "" || !strings.Contains(p.Problem, problem) || !strings.Contains(p.Remedy, remedy)):
				t.Errorf("%+v, want %q, %q", p, problem, remedy)
			}
		}
		want("", "") // nothing was asked yet
		src.err = errors.New("connection refused")
		observe(failed - 1)
		want("", "")
		observe(1)
		want("did not answer 3 times in a row: ", "solana.rpc")
		want("connection refused", "network")
		src.err = nil
		observe(1)
		want("", "")

		src.slot += 10_000_000
		observe(failed)
		want("cannot have reached", "clock")
		src.slot -= 10_000_000
		observe(1)
		want("", "")
		src.slot -= 10_000
		observe(failed)
		want("far below", "keep up")
		src.slot += 10_000
		observe(1)

		time.Sleep(halted)
		observe(1)
		want("stands still at final slot 999968 for 1m", "wait")
		src.slot++
		observe(1)
		want("", "")

		src.ahead, src.known = -market.MaxClockSkew-time.Second, true
		want("clock is 31s behind", "set the clock")
		src.ahead = time.Hour
		want("clock is 1h0m0s ahead of", "set the clock")
		src.known = false
		want("", "")
	})
}

// A peer that has never seen the chain is out of order, whatever its endpoint writes into the error.
func TestHealthOfUnseenChain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{err: errors.New("\x1b[2Jno" + strings.Repeat("o", 1000))}
		c := New(src, 400, time.Second, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if p := c.Health(); p == nil || strings.Contains(p.Problem, "\x1b") || len(p.Problem) > maxText+60 {
			t.Errorf("%+v", p)
		}
	})
}

// The wall clock of a free network never stands still.
func TestHealthOfWall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Wall(400), 400, time.Second, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 3*halted)
		defer cancel()
		if err := c.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if p := c.Health(); p != nil {
			t.Errorf("%+v", p)
		}
	})
}
