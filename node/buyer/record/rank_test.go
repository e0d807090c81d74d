package record

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/verify/exclusive"
)

// The record is summed up in a line that leaves out what did not happen.
func TestExclusiveText(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]*Exclusive{
		"":                                nil,
		"1 wrong answers; 2 not answered": {Wrong: 1, Unanswered: 2},
		"3 not possible beside the program, which had filled the devices' memory; its provider: busy": {Full: 3, Note: "its provider: busy"},
	} {
		if got := x.Text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The reports at both ends of an execution make one record with the changes between them; another execution begins anew.
func TestExclusiveAdd(t *testing.T) {
	t.Parallel()
	snap := func(when exclusive.When, model string) *Snapshot {
		return &Snapshot{Snapshot: exclusive.Snapshot{When: when, Devices: []exclusive.Device{{UUID: "GPU-1", Model: model}}}}
	}
	var x Exclusive
	if x.Has(1, exclusive.Before) {
		t.Error("an empty record has a report")
	}
	if got := x.Add(1, snap(exclusive.Before, "a"), nil); len(got) != 0 || !x.Has(1, exclusive.Before) || x.Has(1, exclusive.After) {
		t.Errorf("changes %v of %+v", got, x.Health)
	}
	before := x.Health
	found := []exclusive.Change{{Text: "found"}}
	got := x.Add(1, snap(exclusive.After, "b"), found)
	if len(got) < 2 || got[0] != found[0] || len(x.Health.Changes) != len(got) || !x.Has(1, exclusive.After) {
		t.Errorf("changes %v of %+v", got, x.Health)
	}
	if before.After != nil || len(before.Changes) > 0 {
		t.Error("the record that others have was changed")
	}
	if x.Add(2, snap(exclusive.Before, "b"), nil); x.Has(1, exclusive.After) || !x.Has(2, exclusive.Before) || len(x.Health.Changes) > 0 {
		t.Errorf("another execution: %+v", x.Health)
	}
}

// A report that shows the same to a user is equal, whatever its pointers.
func TestLiveEqual(t *testing.T) {
	t.Parallel()
	live := func() Live {
		return Live{Phase: "running", Health: "healthy", Devices: []string{"x"}, KeepUntil: at, Ways: &Ways{Plan: 1}}
	}
	if !live().Equal(live()) || !(Live{}).Equal(Live{}) {
		t.Error("equal reports are not")
	}
	for name, change := range map[string]func(*Live){
		"phase": func(l *Live) { l.Phase = "paused" }, "health": func(l *Live) { l.Health = "" },
		"message": func(l *Live) { l.Message = "m" }, "devices": func(l *Live) { l.Devices = nil },
		"kept": func(l *Live) { l.KeepUntil = at.Add(1) }, "pulled": func(l *Live) { l.Pulled = 1 },
		"size": func(l *Live) { l.PullTotal = 1 }, "ways": func(l *Live) { l.Ways = &Ways{Plan: 2} },
	} {
		l := live()
		if change(&l); l.Equal(live()) {
			t.Errorf("another %s is equal", name)
		}
	}
}

// The kind of a lease's units is that of its quote.
func TestUnitsOf(t *testing.T) {
	t.Parallel()
	if got := UnitsOf(market.Quote{Class: "gpu/h100", Model: "m", Simulated: true}); got != (Units{"gpu/h100", "m", true}) {
		t.Errorf("%+v", got)
	}
}

// A provider's texts about a running program cannot control a terminal.
func TestAttackLiveTexts(t *testing.T) {
	t.Parallel()
	const evil = "\x1b]0;owned\x07\x1b[2J\u009b31mhello\nhint: run this"
	v := LiveOf(&nodepb.Execution{
		State: nodepb.ExecState_EXEC_STATE_RUNNING, Health: nodepb.Health_HEALTH_UNHEALTHY, HealthMessage: evil,
		Devices: []string{evil},
	})
	if text := v.Message + strings.Join(v.Devices, ""); text == "" || strings.ContainsAny(text, "\x1b\x07\u009b\n") {
		t.Errorf("%q", text)
	}
}
