package wards

import (
	"context"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-network/starling/node/buyer/guardian"
	"github.com/starling-network/starling/node/buyer/guardian/guardiantest"
	"github.com/starling-network/starling/node/store"
)

// nameOf is the name of a keeper's work; empty if there is none.
func nameOf(f func(context.Context, *guarded) error) string {
	if f == nil {
		return ""
	}
	name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
	return strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "-fm")
}

// The work that is due follows from the state of the ward, and the gravest goes first.
func TestDueWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, members := guardiantest.CharterOf(t, 3, 2)
		s, err := alone(t, guardiantest.Network, c, store.NewMemory())
		guardiantest.Must(t, err)
		timing := guardian.TimingOf(guardiantest.Network)
		time.Sleep(24 * time.Hour) // so that zero times are long ago
		now := time.Now()
		mine := c.NextEpoch(s.self, 1)
		for name, tc := range map[string]struct {
			change func(w *guarded)
			want   string
		}{
			"all is well":       {func(*guarded) {}, ""},
			"silent":            {func(w *guarded) { w.heard = now.Add(-timing.Silent - 3*timing.Turn) }, "takeOver"},
			"silent, over":      {func(w *guarded) { w.heard, w.Over = time.Time{}, true }, ""},
			"silent, not ready": {func(w *guarded) { w.heard, w.Ready = time.Time{}, false }, ""},
			"just asked":        {func(w *guarded) { w.heard, w.asked = time.Time{}, now }, ""},
			"just granted":      {func(w *guarded) { w.heard, w.granted = time.Time{}, now }, ""},
			"it does not pay":   {func(w *guarded) { w.starving = now.Add(-3 * timing.Turn) }, "takeOver"},
			"mine":              {func(w *guarded) { w.Epoch = mine }, "takeUp"},
			"mine, taken up":    {func(w *guarded) { w.Epoch, w.taken = mine, true }, ""},
			"mine, over":        {func(w *guarded) { w.Epoch, w.Over = mine, true }, ""},
			"after a restart":   {func(w *guarded) { w.refreshed = false }, "refresh"},
			"wage awaited":      {func(w *guarded) { w.Unbacked, w.state = now, &guardian.SignedState{} }, "look"},
			"wage looked for":   {func(w *guarded) { w.Unbacked, w.state, w.looked = now, &guardian.SignedState{}, now }, ""},
			"wage never came":   {func(w *guarded) { w.Unbacked = now.Add(-unbackedFor - time.Second) }, "forget"},
			"long over":         {func(w *guarded) { w.Until = now.Add(-forgetAfter - time.Second) }, "forget"},
			"dismissed":         {func(w *guarded) { w.heard, w.Dismissed = time.Time{}, true }, ""},
			"dismissed for a day": {func(w *guarded) {
				w.Dismissed, w.Until = true, now.Add(-forgetAfter-time.Second)
			}, "forget"},
		} {
			w := newGuarded(s.guard, Ward{Charter: c, Members: members, Epoch: 1, Ready: true, Until: now.Add(time.Hour)})
			w.heard, w.refreshed, w.complete = now, true, true
			tc.change(w)
			if got := nameOf(s.keeper.due(w)); got != tc.want {
				t.Errorf("%s: got %q, want %q", name, got, tc.want)
			}
		}
	})
}

// The guardians of a silent supervisor ask one after the other, each a turn after the one before.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		base, members := guardiantest.CharterOf(t, 5, 3)
		timing := guardian.TimingOf(guardiantest.Network)
		var first []time.Duration
		for i := range base.Keys.Keys {
			c := base
			c.Keys.Keys = slices.Concat(base.Keys.Keys[i:], base.Keys.Keys[:i]) // alone is the first
			s, err := alone(t, guardiantest.Network, c, store.NewMemory())
			guardiantest.Must(t, err)
			w := newGuarded(s.guard, Ward{Charter: base, Members: members, Epoch: 1, Ready: true})
			began := time.Now()
			w.heard = began
			for !s.keeper.turn(w, time.Now()) {
				time.Sleep(10 * time.Millisecond)
			}
			first = append(first, time.Since(began))
		}
		for i, at := range first {
			want := timing.Silent + time.Duration(i)*timing.Turn
			if at <= want || at > want+20*time.Millisecond {
				t.Errorf("guardian %d asks after %v, want %v", i, at, want)
			}
		}
	})
}

// Tasks start only while Run does, and Run waits for them.
func TestTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var x tasks
		if x.start(func(context.Context) {}) {
			t.Error("a task started before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		x.open(ctx)
		ended := false
		if !x.start(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = true
		}) {
			t.Error("no task started")
		}
		cancel()
		if x.start(func(context.Context) {}) {
			t.Error("a task started when Run ended")
		}
		if x.close(); !ended {
			t.Error("Run did not wait")
		}
	})
}
