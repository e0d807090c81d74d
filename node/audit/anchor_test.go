package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/audit/shelf"
	"github.com/starling-network/starling/node/audit/sight/sighttest"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// watched is a ledger of which is known what it signed.
type watched struct {
	*chaintest.Ledger
	mu     sync.Mutex
	signed []chain.Prepared
	forgot bool // the ledger does not reach back to any of it
}

func (w *watched) SignMemo(ctx context.Context, memo []byte) (chain.Prepared, error) {
	tx, err := w.Ledger.SignMemo(ctx, memo)
	if err == nil {
		w.mu.Lock()
		w.signed = append(w.signed, tx)
		w.mu.Unlock()
	}
	return tx, err
}

func (w *watched) Status(ctx context.Context, tx chain.Prepared) (chain.TxStatus, error) {
	if w.forgot {
		return chain.TxStatus{}, chain.ErrHistory
	}
	return w.Ledger.Status(ctx, tx)
}

// landed counts the final anchors, and how many records are under them.
func (w *watched) landed(t *testing.T) (anchors int, records uint64) {
	t.Helper()
	for _, tx := range w.signed {
		memo, _, err := w.Memo(t.Context(), tx.ID)
		if errors.Is(err, chain.ErrNotFound) {
			continue
		}
		a, bad := chain.ParseAnchor(memo)
		if err != nil || bad != nil || a.Of != chain.OfRecords {
			t.Fatalf("%v, %v: %q", err, bad, memo)
		}
		anchors++
		records += a.Count
	}
	return anchors, records
}

// anchoring is a peer with records, on a chain that makes a block every 100 ms. Call it in a bubble.
type anchoring struct {
	c      *chaintest.Chain
	ledger *watched
}

func newAnchoring(t *testing.T, cfg chaintest.Config) *anchoring {
	c := chaintest.NewChain(cfg)
	stop, done := make(chan struct{}), make(chan struct{})
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
	t.Cleanup(func() { close(stop); <-done })
	time.Sleep(time.Second)
	return &anchoring{c: c, ledger: &watched{Ledger: c.Ledger(sign.Key{1})}}
}

// run is one process: it keeps the records of window 50, and anchors them.
func (a *anchoring) run(ctx context.Context, st store.Store, rs []audit.Record) (*Service, error) {
	quiet := slog.New(slog.DiscardHandler)
	kept, err := OpenShelf(ctx, st, quiet)
	if err != nil {
		return nil, err
	}
	runs, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- kept.Run(runs) }()
	defer func() { stop(); <-ended }()
	s := &Service{cfg: Config{
		Shelf: kept, Sight: &sighttest.Still{At: 50}, Genesis: market.Genesis{AuditSlots: windowSlots}, Log: quiet,
		Anchor: a.ledger, AnchorPoll: 200 * time.Millisecond,
	}}
	for _, r := range rs {
		passed := Result{Unit: Claim{ID: r.Answer.Unit, Class: "cpu", Resources: audittest.Small}, Record: r}
		if err := kept.Keep(ctx, Audited(50, time.Now(), passed)...); err != nil {
			return s, err
		}
	}
	return s, s.anchorAll(ctx)
}

// reopen returns the records of a journal.
func reopen(t *testing.T, st store.Store) shelf.State {
	t.Helper()
	s, err := OpenShelf(t.Context(), st, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s.State()
}

// holds fails the test unless each record is anchored, and once.
func (a *anchoring) holds(t *testing.T, st store.Store, rs []audit.Record) {
	t.Helper()
	kept := reopen(t, st)
	for i, r := range rs {
		in, ok := kept.Anchored(r.Hash())
		if !ok || in.CheckOn(t.Context(), a.ledger, r.Hash()) != nil {
			t.Errorf("record %d: anchored %t, %v", i, ok, in.CheckOn(t.Context(), a.ledger, r.Hash()))
		}
	}
	if anchors, records := a.ledger.landed(t); records != uint64(len(rs)) {
		t.Errorf("%d anchors of %d records are final, want each of %d once", anchors, records, len(rs))
	}
	if b := kept.UnderWay(); b.Tx.ID != "" {
		t.Errorf("%d records are under way", len(b.Records))
	}
}

func anchorable(t *testing.T, n int) []audit.Record {
	var out []audit.Record
	for i := range n {
		out = append(out, made(t, audittest.NewUnit(fmt.Sprint("unit ", i))))
	}
	return out
}

// Power is cut before and after every write, on a chain that works and on one that loses, delays and repeats: each record is anchored once.
func TestAnchorCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	rs := anchorable(t, 3)
	trouble := func(id chain.TxID, sending int) chaintest.Fate {
		return chaintest.Fate{Drop: sending == 0 && id[0]%2 == 0, Delay: int(id[1] % 20), LoseReply: sending%3 == 1}
	}
	for name, cfg := range map[string]chaintest.Config{"quiet": {}, "troubled": {Fate: trouble}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for write := 1; ; write++ {
				crashes := 0
				for _, when := range []store.When{store.Before, store.After} {
					synctest.Test(t, func(t *testing.T) {
						a, disk := newAnchoring(t, cfg), store.NewMemory()
						st := store.NewCrashing(disk)
						st.CrashAt(write, when)
						_, err := a.run(t.Context(), st, rs)
						if errors.Is(err, store.ErrCrashed) {
							crashes++
							time.Sleep(time.Second)
							_, err = a.run(t.Context(), disk, rs)
						}
						if err != nil {
							t.Fatalf("write %d: %v", write, err)
						}
						a.c.Replay() // anybody may send again what was ever sent
						time.Sleep(5 * time.Second)
						if _, err := a.run(t.Context(), disk, rs); err != nil {
							t.Fatal(err)
						}
						a.holds(t, disk, rs)
					})
				}
				if crashes == 0 {
					if write < 5 {
						t.Errorf("only %d writes", write-1)
					}
					return
				}
			}
		})
	}
}

// Records of a window are one batch. Who asks gets where each is anchored when it is, and a batch never holds a record of one before.
func TestAnchorBatches(t *testing.T) {
	t.Parallel()
	rs := anchorable(t, 5)
	synctest.Test(t, func(t *testing.T) {
		a, disk := newAnchoring(t, chaintest.Config{}), store.NewMemory()
		a.c.SetDown(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s, err := a.run(ctx, disk, rs[:3])
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		a.c.SetDown(false)
		hash := rs[1].Hash()
		ask := func() proof.Proof {
			p, err := s.cfg.Shelf.Proof(t.Context(), hash)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		if r := ask(); len(r.Anchor) > 0 {
			t.Error("a record that waits is said to be anchored")
		}
		if s, err = a.run(t.Context(), disk, nil); err != nil {
			t.Fatal(err)
		}
		a.holds(t, disk, rs[:3])
		r := ask()
		in, err := proof.ReadAnchor(r.Anchor, hash)
		if err != nil || in.Anchor.Count != 3 || in.CheckOn(t.Context(), a.ledger, hash) != nil {
			t.Errorf("%+v: %v", in, err)
		}
		for _, p := range s.cfg.Shelf.State().All() {
			if p.Anchored != in.Tx {
				t.Errorf("unit %s: anchored by %q", p.Unit.Short(), p.Anchored)
			}
		}
		var rule *audit.RuleError
		if _, err := proof.ReadAnchor(r.Anchor, rs[0].Hash()); !errors.As(err, &rule) || rule.Rule != audit.RuleAnchor {
			t.Errorf("the way of another record: %v", err)
		}
		in.Anchor.Of = chain.OfReceipts
		if _, err := proof.ReadAnchor(in.Marshal(), hash); !errors.As(err, &rule) || rule.Rule != audit.RuleAnchor {
			t.Errorf("an anchor of receipts: %v", err)
		}
		if _, err := a.run(t.Context(), disk, rs[3:]); err != nil {
			t.Fatal(err)
		}
		a.holds(t, disk, rs)
		if anchors, _ := a.ledger.landed(t); anchors != 2 {
			t.Errorf("%d anchors", anchors)
		}
	})
}

// A chain that is down is waited for, also by a process that finds an anchor under way.
func TestAnchorChainDown(t *testing.T) {
	t.Parallel()
	rs := anchorable(t, 2)
	synctest.Test(t, func(t *testing.T) {
		a, disk := newAnchoring(t, chaintest.Config{}), store.NewMemory()
		within := func(most time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			if _, err := a.run(ctx, disk, rs); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it is anchored too early: %v", err)
			}
		}
		a.c.SetDown(true)
		within(time.Minute)
		if len(a.ledger.signed) > 0 {
			t.Error("an anchor was signed for a chain that is down")
		}
		a.c.SetDown(false)
		within(300 * time.Millisecond) // signed and sent, and not final
		a.c.SetDown(true)
		within(time.Minute)
		a.c.SetDown(false)
		if _, err := a.run(t.Context(), disk, nil); err != nil {
			t.Fatal(err)
		}
		if len(a.ledger.signed) != 1 {
			t.Errorf("%d anchors were signed", len(a.ledger.signed))
		}
		a.holds(t, disk, rs)
	})
}

// When no endpoint remembers what became of an anchor, its memo tells; without it the records are not anchored again.
func TestAnchorForgotten(t *testing.T) {
	t.Parallel()
	rs := anchorable(t, 2)
	for name, sent := range map[string]bool{"it landed": true, "nobody knows": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, disk := newAnchoring(t, chaintest.Config{Fate: func(chain.TxID, int) chaintest.Fate { return chaintest.Fate{Drop: !sent} }}), store.NewMemory()
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				if _, err := a.run(ctx, disk, rs); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				cancel()
				time.Sleep(time.Minute)
				a.ledger.forgot = true
				for range 2 {
					if _, err := a.run(t.Context(), disk, nil); err != nil {
						t.Fatal(err)
					}
				}
				if len(a.ledger.signed) != 1 {
					t.Errorf("%d anchors were signed", len(a.ledger.signed))
				}
				if sent {
					a.holds(t, disk, rs)
					return
				}
				if _, ok := reopen(t, disk).Anchored(rs[0].Hash()); ok {
					t.Error("what nobody knows is said to be anchored")
				}
			})
		})
	}
}
