package sight

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// still is a network that stands still in one window.
type still struct {
	audittest.Case
	window audit.Window
	roster audit.Roster
}

func (s *still) Window() (audit.Window, market.Slot, error) {
	return s.window, s.window.First(s.Slots), nil
}
func (s *still) Recent() (audit.Recent, error) { return audit.Every(s.window), nil }

func (s *still) Beacon(_ context.Context, w audit.Window) (Drawn, error) {
	c := s.Case
	c.Window = w
	return Drawn{Beacon: c.Beacon(), Era: c.Era()}, nil
}

func (s *still) Check(_ context.Context, _ audit.Window, b audit.Beacon) (audit.Beacon, error) {
	if b != s.Case.Beacon() {
		return audit.Beacon{}, errors.New("another beacon")
	}
	return s.Era(), nil
}

func (s *still) Roster(context.Context, audit.Window) (audit.Roster, error) { return s.roster, nil }

// slowOnes are the refusals of two units that are too slow for all members.
func slowOnes(t *testing.T) (w *still, units []market.UnitID, all []audit.Refusal) {
	t.Helper()
	c := audittest.New(12)
	for _, name := range []string{"unit 0", "unit 1"} {
		slow := c
		slow.Unit = market.UnitID(sign.Sum([]byte(name)))
		slow.Verdict = func(v *audit.Verdict) { v.Outcome = audit.Late }
		r, err := slow.Make()
		if err != nil {
			t.Fatal(err)
		}
		units = append(units, slow.Unit)
		for i := range r.Verdicts {
			one := r
			one.Verdicts = r.Verdicts[i : i+1]
			x, err := audit.Refuse(one)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x)
		}
	}
	return &still{Case: c, window: c.Window, roster: c.Roster}, units, all
}

func (s *still) failed(t *testing.T, st store.Store) *Failed {
	t.Helper()
	g := s.Genesis()
	g.AuditSlots = s.Slots
	f, err := OpenFailed(t.Context(), st, g, s)
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
	provider := w.Provider.Key()
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
	record := func(window audit.Window, u market.UnitID) audit.Record {
		return audit.Record{Committee: audit.Committee, Answer: audit.Answer{Target: audit.Target{Provider: provider, Unit: u, Window: window}}}
	}
	for _, u := range us {
		if got := f.Failed(provider, u); !slices.Equal(got, []audit.Window{w.window}) {
			t.Errorf("failed in %v", got)
		}
		if f.Against(t.Context(), record(w.window-1, u), nil) == nil || f.Against(t.Context(), record(w.window+1, u), w.roster) == nil || f.Against(t.Context(), record(w.window, u), w.roster) != nil {
			t.Error("what it passed before, or before seven after it, counts; or what it passed at once does not")
		}
	}
	// Of whom the beacon does not draw, of another window, or with anything changed, it is none.
	bad := *w
	bad.roster = slices.DeleteFunc(slices.Clone(w.roster), func(m audit.Member) bool { return m.Key == all[0].Member() })
	if bad.failed(t, store.NewMemory()).Check(t.Context(), all[0]) == nil {
		t.Error("by one who is not drawn")
	}
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
	if err := f.Keep(t.Context(), all[1], false); err != nil || len(f.Own()) != 0 || f.Against(t.Context(), record(1, us[0]), nil) != nil && len(f.Failed(provider, us[0])) != 0 {
		t.Errorf("it is not forgotten: %v", err)
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
