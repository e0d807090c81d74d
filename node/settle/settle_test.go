package settle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

const rich market.Amount = 1_000_000

// owed is a job of three leases, more than fit into one transaction of these tests.
func owed() chain.AmountsOwed {
	out := chain.AmountsOwed{Root: sign.Hash{9}, Receipts: 7}
	for i := range 3 {
		out.Owed = append(out.Owed, chain.Owed{Lease: market.LeaseID{byte(i + 1)}, To: sign.Key{byte(i + 100)}, Cumulative: market.Amount(1000 * (i + 1))})
	}
	return out
}

// run pays the job on what the journal has, for at most a few minutes.
func run(t *testing.T, st store.Store, c *chaintest.Chain, most time.Duration) (chain.Settlement, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	d := New(Config{
		Ledger: c.Ledger(sign.Key{1}), Store: st, Params: chain.Params{PollEvery: 200 * time.Millisecond, RetryAfter: time.Second},
		Log: slog.New(slog.DiscardHandler),
	})
	s, err := d.Load(ctx, "job")
	if err != nil {
		return s, err
	}
	return d.Pay(ctx, "job", s, owed())
}

// blocks lets a chain make a block every 100 ms until the test ends.
func blocks(t *testing.T, c *chaintest.Chain) {
	c.Mint(sign.Key{1}, rich)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				c.Advance(1)
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
}

// paid fails the test unless every lease was paid once and in full, and nothing else was.
func paid(t *testing.T, c *chaintest.Chain) {
	t.Helper()
	left := rich
	for _, o := range owed().Owed {
		if got := c.Paid(o.Lease); got != o.Cumulative {
			t.Errorf("lease %s was paid %d of %d", o.Lease.Short(), got, o.Cumulative)
		}
		left -= o.Cumulative
	}
	if have, err := c.Ledger(sign.Key{1}).Balance(t.Context(), sign.Key{1}); err != nil || have != left {
		t.Errorf("the payer has %d left, want %d (%v)", have, left, err)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

// Power is cut before and after every write, on a chain that works and on one that loses, delays and repeats: what is
// taken up again pays everything once.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	trouble := func(id chain.TxID, sending int) chaintest.Fate {
		return chaintest.Fate{Drop: sending == 0 && id[0]%2 == 0, Delay: int(id[1] % 20), LoseReply: sending%3 == 1}
	}
	for name, cfg := range map[string]chaintest.Config{"quiet": {MaxPayouts: 2}, "troubled": {MaxPayouts: 2, Fate: trouble}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crashes := 0
			for write := 1; ; write++ {
				before := crashes
				for _, when := range []store.When{store.Before, store.After} {
					synctest.Test(t, func(t *testing.T) {
						c, disk := chaintest.NewChain(cfg), store.NewMemory()
						blocks(t, c)
						st := store.NewCrashing(disk)
						st.CrashAt(write, when)
						_, err := run(t, st, c, 5*time.Minute)
						if errors.Is(err, store.ErrCrashed) {
							crashes++
							time.Sleep(time.Second)
							_, err = run(t, disk, c, 5*time.Minute)
						}
						if err != nil {
							t.Fatalf("write %d: %v", write, err)
						}
						// Anybody may send again what was ever sent.
						c.Replay()
						time.Sleep(5 * time.Second)
						paid(t, c)
						if s, err := run(t, disk, c, time.Minute); err != nil || !s.Done() {
							t.Errorf("paying what is paid: %v", err)
						}
						paid(t, c)
					})
				}
				if crashes == before {
					t.Logf("%d crashes", crashes)
					if write < 4 {
						t.Error("hardly anything is journalled")
					}
					return
				}
			}
		})
	}
}

// A chain that is down is waited for, and who waits is told why.
func TestChainDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := chaintest.NewChain(chaintest.Config{})
		blocks(t, c)
		c.SetDown(true)
		time.AfterFunc(time.Minute, func() { c.SetDown(false) })
		var reasons []string
		var batches int
		d := New(Config{
			Ledger: c.Ledger(sign.Key{1}), Store: store.NewMemory(), Params: chain.Params{PollEvery: time.Second, RetryAfter: time.Second},
			Log:     slog.New(slog.DiscardHandler),
			Waiting: func(_, reason string, _ time.Time) { reasons = append(reasons, reason) },
			Settled: func(string, chain.Batch) { batches++ },
		})
		s, err := d.Load(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		if s, err = d.Pay(t.Context(), "job", s, owed()); err != nil {
			t.Fatal(err)
		}
		paid(t, c)
		if len(reasons) < 3 || batches != 1 {
			t.Errorf("%d batches, told %q", batches, reasons)
		}
		if owed, paid, flying := s.Totals(); owed != paid || flying != 0 {
			t.Errorf("%d owed, %d paid, %d in flight", owed, paid, flying)
		}
	})
}

// A settlement that its context ends is taken up by the next one; a journal that fails is an error.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, disk := chaintest.NewChain(chaintest.Config{}), store.NewMemory()
		blocks(t, c)
		if _, err := run(t, disk, c, 500*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("interrupted: %v", err)
		}
		if _, err := run(t, &failing{disk}, c, time.Minute); err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatalf("a full disk: %v", err)
		}
		if _, err := run(t, disk, c, time.Minute); err != nil {
			t.Fatal(err)
		}
		paid(t, c)
		if err := disk.Write(t.Context(), store.Put{Kind: Kind, Key: "job", Value: []byte("noise")}); err != nil {
			t.Fatal(err)
		}
		if _, err := run(t, disk, c, time.Minute); err == nil {
			t.Error("a settlement of noise was read")
		}
	})
}

type failing struct{ store.Store }

func (failing) Write(context.Context, ...store.Put) error {
	return fmt.Errorf("writing journal: %w", store.ErrFull)
}
