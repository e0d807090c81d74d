package audit

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// slowOnes are what members sign of two units that are too slow for them.
func slowOnes(t *testing.T) (*world, []Unit, []audit.Refusal) {
	t.Helper()
	w := newWorld(12, time.Now)
	for _, m := range w.members {
		m.cfg.Plan = func(c Claim) (Asked, error) {
			a, err := plan(c)
			a.ProductLimit = time.Nanosecond
			return a, err
		}
	}
	us := units(2)
	if _, err := w.prover().Audit(t.Context(), us); err != nil {
		t.Log(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w, us, w.refused
}

func (w *world) failed(t *testing.T, st store.Store) *Failed {
	t.Helper()
	g := audittest.New(1).Genesis()
	g.AuditSlots = windowSlots
	f, err := OpenFailed(t.Context(), st, g, w.sight)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Members that refuse a unit sign it, and whoever has the word of more than two thirds of them holds it against the unit: over a restart,
// whenever the process ended, until the window counts no more.
func TestFailedUnits(t *testing.T) {
	t.Parallel()
	w, us, all := slowOnes(t)
	if len(all) != 2*audit.Committee {
		t.Fatalf("%d refusals of two units by seven", len(all))
	}
	provider := w.provider.Key()
	st := &dying{store.NewMemory(), 0}
	f := w.failed(t, st)
	for i, x := range all {
		if err := f.Check(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		if known, err := f.Knows(x); known || err != nil {
			t.Errorf("it is known: %v", err)
		}
		st.left = 0
		if err := f.Keep(t.Context(), x, i == 0); !errors.Is(err, store.ErrClosed) {
			t.Fatalf("its end at write %d: %v", i, err)
		}
		f = w.failed(t, st) // the next process hears of it again
		st.left = 1
		for range 2 {
			if err := f.Keep(t.Context(), x, i == 0); err != nil {
				t.Fatal(err)
			}
		}
		f = w.failed(t, st)
		if known, err := f.Knows(x); !known || err != nil {
			t.Errorf("after a restart it is not known: %v", err)
		}
	}
	if own := f.Own(); len(own) != 1 || !bytes.Equal(own[0].Marshal(), all[0].Marshal()) {
		t.Errorf("its own are %v", own)
	}
	record := func(window audit.Window, u Unit) audit.Record {
		return audit.Record{Committee: audit.Committee, Answer: audit.Answer{Target: audit.Target{Provider: provider, Unit: u.ID, Window: window}}}
	}
	for _, u := range us {
		if got := f.Failed(provider, u.ID); !slices.Equal(got, []audit.Window{w.window}) {
			t.Errorf("failed in %v", got)
		}
		if f.Against(t.Context(), record(w.window-1, u), nil) == nil || f.Against(t.Context(), record(w.window+1, u), w.roster) == nil || f.Against(t.Context(), record(w.window, u), w.roster) != nil {
			t.Error("what it passed before, or before seven after it, counts; or what it passed at once does not")
		}
	}
	// Of whom the beacon does not draw, of another window, or with anything changed, it is none.
	bad := *w.sight
	bad.roster = slices.DeleteFunc(slices.Clone(w.roster), func(m audit.Member) bool { return m.Key == all[0].Member() })
	was := w.sight
	w.sight = &bad
	if w.failed(t, store.NewMemory()).Check(t.Context(), all[0]) == nil {
		t.Error("by one who is not drawn")
	}
	w.sight = was
	b := all[0].Marshal()
	b[len(b)-1] ^= 1
	if x, err := audit.UnmarshalRefusal(b); err != nil || f.Check(t.Context(), x) == nil {
		t.Errorf("not signed: %v", err)
	}
	w.window += audit.MaxRates
	if known, err := f.Knows(all[1]); !known || err != nil {
		t.Errorf("it counts after %d windows: %v", audit.MaxRates, err)
	}
	st.left = 1
	if err := f.Keep(t.Context(), all[1], false); err != nil || len(f.Own()) != 0 || f.Against(t.Context(), record(1, us[0]), nil) != nil && len(f.Failed(provider, us[0].ID)) != 0 {
		t.Errorf("it is not forgotten: %v", err)
	}
}

// failure is one unit that failed.
type failure struct {
	unit market.UnitID
	why  error
}

func (f failure) Against(_ context.Context, r audit.Record, _ audit.Roster) error {
	if r.Answer.Unit == f.unit {
		return f.why
	}
	return nil
}

// A unit whose failure is public is not sold by the record from before, whatever its provider offers.
func TestFailedUnitsAreNotSold(t *testing.T) {
	t.Parallel()
	rs := passing()[:1]
	b := bazaarOf(t, rs, nil)
	if n, doubt := b.check(t, 1); n != 1 {
		t.Fatalf("%d units, %s", n, doubt)
	}
	why := &audit.RuleError{Rule: audit.RuleFresh, Detail: "it failed"}
	b.Proofs.cfg.Failures = failure{rs[0].Answer.Unit, why}
	if err := b.CheckUnits(t.Context(), b.offer, []market.UnitID{rs[0].Answer.Unit}); err == nil {
		t.Error("what was checked before is sold still")
	}
	fresh := bazaarOf(t, rs, nil)
	fresh.Proofs.cfg.Failures = b.Proofs.cfg.Failures
	if n, doubt := fresh.check(t, 1); n != 0 || doubt == "" {
		t.Errorf("%d units, %q", n, doubt)
	}
}

// dying is a store whose process ends at a write: it says that nothing is written, and nothing is.
type dying struct {
	store.Store
	left int
}

func (d *dying) Write(ctx context.Context, puts ...store.Put) error {
	if d.left--; d.left < 0 {
		return store.ErrClosed
	}
	return d.Store.Write(ctx, puts...)
}
