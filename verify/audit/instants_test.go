package audit_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

func instants(t *rapid.T) (audit.Instants, audit.Window, audit.Beacon) {
	i := audit.Instants{Slots: rapid.Uint64Range(10, 1<<24).Draw(t, "slots"),
		Millis: rapid.Uint64Range(1, market.MaxSlotMillis).Draw(t, "millis"),
		OneIn:  rapid.Uint64Range(0, 3).Draw(t, "one in")}
	b := audit.Beacon{Value: sign.Sum([]byte(rapid.String().Draw(t, "beacon"))),
		Slot: market.Slot(rapid.Uint64().Draw(t, "slot"))}
	return i, audit.Window(rapid.Uint64Range(0, 1<<39).Draw(t, "window")), b
}

// Safety: whatever the network's slots and windows are, an attempt begins within its window, after its first slot, when the beacon is made; who is
// accepted as a GPU is accepted as anything, and nobody in a window without an audit.
func TestInstants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		i, w, b := instants(t)
		at := i.Of(w)
		if half := i.Slots / 2; at < w.First(i.Slots) || at > w.First(i.Slots)+market.Slot(half) ||
			uint64(at-w.First(i.Slots))*i.Millis < 30_000 && at != w.First(i.Slots)+market.Slot(half) {
			t.Fatalf("slot %d of windows of %d", at, i.Slots)
		}
		for attempt := uint8(1); attempt <= audit.MaxAttempts; attempt++ {
			for _, class := range []market.Class{"gpu", "gpu/h100", "cpu", ""} {
				from, to := i.Span(w, attempt, class)
				if from > at || to <= at || from < w.First(i.Slots) || audit.WindowOf(to-1, i.Slots) != w ||
					uint64(at-from)*i.Millis > 5_000+i.Millis {
					t.Fatalf("attempt %d of %q: slots %d to %d around %d, windows of %d",
						attempt, class, from, to, at, i.Slots)
				}
				for _, slot := range []market.Slot{from - 1, from, at, to - 1, to} {
					inside := slot >= from && slot < to && i.Fires(b)
					if err := i.Check(w, b, attempt, class, slot); (err == nil) != inside {
						t.Fatalf("slot %d of %d to %d: %v", slot, from, to, err)
					} else if err == nil && i.Check(w, b, attempt, "", slot) != nil {
						t.Fatalf("slot %d is refused of no class", slot)
					}
				}
			}
		}
		if n := rapid.Uint64Range(0, 100).Draw(t, "audits"); i.Ago(w, n) > w ||
			w >= i.Audits(n) && w-i.Ago(w, n) != i.Audits(n) {
			t.Fatalf("%d audits before window %d: %d", n, w, i.Ago(w, n))
		}
		if era := i.EraOf(w); era > w || w >= i.Audits(audit.EraAudits) && era >= w ||
			i.EraOf(era+1) != era && era > 0 {
			t.Fatalf("the era of window %d is that of %d", w, era)
		}
	})
}

// A record whose attempt did not begin at the instant of its window is none, offline, whoever signed it; a third of the committee cannot
// bring that about, nor hide it.
func TestRecordOfAnotherInstant(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	rules, at := audit.NewRules(c.Genesis()), c.Instants()
	for name, x := range map[string]struct {
		attempt uint8
		off     int64 // slots from the instant
		liars   int   // who say that they saw it begin at the instant, where it did not, and the other way round
		class   market.Class
		ok      bool
	}{
		"at the instant":                       {1, 0, 0, "", true},
		"a little early":                       {1, -6, 0, "", true},
		"before it":                            {1, -7, 0, "", false},
		"late, and in time for a processor":    {1, 11, 0, "cpu", true},
		"late":                                 {1, 12, 0, "", false},
		"later than a GPU may":                 {1, 3, 0, "gpu/h100", false},
		"as late as a GPU may":                 {1, 2, 0, "gpu/h100", true},
		"earlier than a GPU may":               {1, -3, 0, "gpu/h100", false},
		"late, and two say it was not":         {1, 40, 2, "", false},
		"in time, and two say it was not":      {1, 0, 2, "", true},
		"a second attempt later":               {2, 23, 0, "", true},
		"a second attempt too late":            {2, 24, 0, "", false},
		"a third attempt":                      {3, 35, 0, "", true},
		"a third attempt too late":             {3, 36, 0, "", false},
		"a second attempt before the instant":  {2, -7, 0, "", false},
		"the attempt of another part of a day": {3, 49, 0, "", false},
	} {
		c := c
		c.Attempt = x.attempt
		n := 0
		c.Verdict = func(v *audit.Verdict) {
			if n++; (n <= x.liars) == x.ok && x.liars > 0 {
				v.Slot += 40
				return
			} else if n <= x.liars {
				return
			}
			v.Slot = market.Slot(int64(v.Slot) + x.off)
		}
		r, err := c.Make()
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(audittest.Domain()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		err = r.CheckRules(rules)
		if x.class != "" {
			err = r.CheckInstant(at, x.class)
		}
		rule, _ := errors.AsType[*audit.RuleError](err)
		if (err == nil) != x.ok || err != nil && rule.Rule != audit.RuleInstant {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Vectors for other implementations: which windows have audits by their beacons, instants, and the slots in which attempts may begin.
func TestInstantVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Slots, Millis, OneIn uint64
		Window               audit.Window
		Era                  audit.Window
		Beacon               audit.Beacon
		Attempt              uint8
		Class                market.Class
		Fires                bool
		Instant              market.Slot
		From, To             market.Slot
	}
	var out []vector
	for n, slots := range []uint64{10, 75, 300, 9000, 1 << 24, 150, 300, 300} {
		for k, class := range []market.Class{"cpu", "gpu/h100", "gpu"} {
			i := audit.Instants{Slots: slots, Millis: []uint64{400, 100}[n%2], OneIn: []uint64{1, 2, 30}[k]}
			v := vector{Slots: slots, Millis: i.Millis, OneIn: i.OneIn, Window: audit.Window(7 * n),
				Attempt: uint8(1 + k), Class: class}
			v.Beacon = audit.Beacon{Slot: v.Window.First(slots), Value: sign.Sum([]byte{byte(n)})}
			v.Fires, v.Instant, v.Era = i.Fires(v.Beacon), i.Of(v.Window), i.EraOf(v.Window)
			v.From, v.To = i.Span(v.Window, v.Attempt, class)
			out = append(out, v)
		}
	}
	got, err := json.MarshalIndent(out, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "instants.json")
	if *rewrite {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got)+"\n" {
		t.Errorf("the vectors differ, %d bytes from %d: another implementation would too", len(got), len(want))
	}
}
