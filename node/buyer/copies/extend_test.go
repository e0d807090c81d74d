package copies

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/store"
)

const day = 24 * time.Hour

// until returns the end of the time of the copies.
func (w *world) until() time.Time {
	w.t.Helper()
	k, _, err := w.read(w.t.Context(), jobID)
	if err != nil {
		w.t.Fatal(err)
	}
	return k.Until
}

// near reports whether two times are the same but for the times that a test takes.
func near(a, b time.Time) bool { return a.Sub(b).Abs() < 5*time.Minute }

// All volumes are extended to one end, and no copy is placed for it.
func TestExtend(t *testing.T) {
	t.Parallel()
	w := placed(t)
	was := w.until()
	w.buys.set("v1", func(j *record.Job) { j.Spec.Timeouts.Run += 12 * time.Hour }) // by hand
	x, err := w.Extend(t.Context(), jobID, 2*day)
	if err != nil || len(x.Copies) != 2 || !x.Until.Equal(was.Add(2*day)) || !w.until().Equal(x.Until) {
		t.Fatalf("%+v, %v, until %v", x, err, w.until())
	}
	for i, c := range x.Copies {
		if c.State != record.Extended || c.Job != []string{"v1", "v2"}[i] || c.Provider != w.keeper(2+i) ||
			c.Extra == 0 || !near(c.Until, x.Until) {
			t.Errorf("copy %d: %+v, want until %v", i, c, x.Until)
		}
	}
	if one, two := w.buys.extended["v1"], w.buys.extended["v2"]; (two - one - 12*time.Hour).Abs() > time.Minute {
		t.Errorf("extended by %v and %v", one, two)
	}
	if k := w.step(); len(k.Copies) != 2 || len(w.buys.subs) != 2 {
		t.Errorf("copies: %+v", k.Copies)
	}
	if x, err = w.Extend(t.Context(), jobID, time.Minute); err != nil || x.Copies[0].State != record.Extended {
		t.Errorf("once more: %+v, %v", x, err)
	}
}

// A volume that its provider does not extend is replaced before it ends, once.
func TestExtendRefused(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.buys.declined["v2"] = "its price has risen"
	x, err := w.Extend(t.Context(), jobID, 2*day)
	if err != nil || x.Copies[0].State != record.Extended || x.Copies[1].State != record.NotExtended ||
		x.Copies[1].Reason != "its price has risen" || !near(x.Copies[1].Until, time.Now().Add(day)) {
		t.Fatalf("%+v, %v", x, err)
	}
	if k := w.step(); len(k.Copies) != 2 {
		t.Errorf("long before the end: %+v", k.Copies)
	}
	w.buys.set("v2", func(j *record.Job) { j.Started = j.Started.Add(-day + leastHandover/2) })
	for range 3 {
		if k := w.step(); len(k.Copies) != 3 || len(w.buys.subs) != 3 {
			t.Fatalf("soon before the end: %+v", k.Copies)
		}
	}
	spec := w.buys.subs[2].Spec
	if !slices.Contains(spec.Placement.Exclude, w.keeper(2)) || !slices.Contains(spec.Placement.Exclude, w.keeper(3)) ||
		(spec.Timeouts.Run-3*day).Abs() > time.Minute {
		t.Errorf("the order: %v, excluded %v", spec.Timeouts.Run, spec.Placement.Exclude)
	}
	w.take("v3", 4)
	w.buys.set("v2", func(j *record.Job) { j.State, j.Started = record.Succeeded, j.Started.Add(-day) })
	if k := w.step(); len(k.Copies) != 3 || k.Copies[1].Lost != pastTime || k.Copies[2].Lost != "" {
		t.Errorf("after the end: %+v", k.Copies)
	}
}

// A volume is extended up to the longest time of a volume.
func TestExtendLongest(t *testing.T) {
	t.Parallel()
	w := placed(t)
	w.buys.set("v2", func(j *record.Job) { j.Spec.Timeouts.Run = job.MaxRun })
	x, err := w.Extend(t.Context(), jobID, job.MaxRun)
	if err != nil || x.Copies[0].State != record.Extended || x.Copies[0].Reason != longest ||
		x.Copies[1].State != record.NotExtended || x.Copies[1].Reason != longest {
		t.Fatalf("%+v, %v", x, err)
	}
	if v1, err := w.buys.Job("v1"); err != nil || v1.Spec.Timeouts.Run != job.MaxRun {
		t.Errorf("run: %v, %v", v1.Spec.Timeouts.Run, err)
	}
}

// An extension that this peer refuses for all volumes changes nothing; one of it for some is shown.
func TestExtendUnpaid(t *testing.T) {
	t.Parallel()
	w := placed(t)
	was := w.until()
	w.buys.refuse = fmt.Errorf("%w: 3 tokens are missing", record.ErrFunds)
	if _, err := w.Extend(t.Context(), jobID, day); !errors.Is(err, record.ErrFunds) || !w.until().Equal(was) {
		t.Errorf("got %v, until %v, want ErrFunds, until %v", err, w.until(), was)
	}
	w.buys.set("v1", func(j *record.Job) { j.Spec.Timeouts.Run += 3 * day })
	x, err := w.Extend(t.Context(), jobID, day)
	if err != nil || x.Copies[0].State != record.LongEnough || x.Copies[1].State != record.NotExtended ||
		!strings.Contains(x.Copies[1].Reason, "3 tokens") || !w.until().Equal(was.Add(day)) {
		t.Errorf("%+v, %v, until %v", x, err, w.until())
	}
}

// Copies without a time, of which it ended, or for too long are refused.
func TestExtendRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 4)
	refused := func(why string, id string, by time.Duration, want error) {
		t.Helper()
		if x, err := w.Extend(t.Context(), id, by); !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v, want %v", why, x, err, want)
		}
	}
	refused("before the end of the job", jobID, day, record.ErrRefused)
	refused("no job", "jnone", day, record.ErrNoJob)
	w.place()
	was := w.until()
	for why, by := range map[string]time.Duration{
		"nothing": 0, "backwards": -day, "short": job.MinTime - 1, "long": job.MaxRun + 1,
	} {
		refused(why, jobID, by, record.ErrRefused)
	}
	w.change(func(k *record.Kept) { k.Until = time.Now().Add(maxAhead - day/2) })
	refused("far", jobID, day, record.ErrRefused)
	w.change(func(k *record.Kept) { k.Until = was })
	k, _, err := w.read(t.Context(), jobID)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.end(t.Context(), jobID, k, "the paid time has ended"); err != nil {
		t.Fatal(err)
	}
	refused("after the end", jobID, day, record.ErrRefused)
	if len(w.buys.extended) > 0 {
		t.Errorf("extended: %v", w.buys.extended)
	}
}

// No provider is asked before the new end is in the journal. After a crash behind it, volumes that were not extended
// are replaced before they end.
func TestAttackCrashWhileExtending(t *testing.T) {
	t.Parallel()
	for _, when := range []store.When{store.Before, store.After} {
		w := placed(t)
		was, steady := w.until(), w.store
		failing := store.NewCrashing(steady)
		failing.CrashAt(1, when)
		w.store = failing
		w.restart()
		if _, err := w.Extend(t.Context(), jobID, day); !errors.Is(err, store.ErrCrashed) || len(w.buys.extended) > 0 {
			t.Fatalf("%v: got %v, extended %v", when, err, w.buys.extended)
		}
		w.store = steady
		w.restart()
		for _, id := range []string{"v1", "v2"} {
			w.buys.set(id, func(j *record.Job) { j.Started = j.Started.Add(-day + leastHandover/2) })
		}
		want, orders := was, 2
		if when == store.After {
			want, orders = was.Add(day), 3
		} else {
			w.change(func(k *record.Kept) { k.Until = k.Until.Add(-day + leastHandover/2) })
			want = w.until()
		}
		if w.step(); !w.until().Equal(want) || len(w.buys.subs) != orders {
			t.Errorf("%v: until %v, want %v; %d orders, want %d", when, w.until(), want, len(w.buys.subs), orders)
		}
	}
}
