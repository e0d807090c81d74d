package audits

import (
	"strings"
	"testing"

	"github.com/starling-network/starling/node/device/sim"
	"github.com/starling-network/starling/verify/audit"
)

// What captures a committee is known exactly.
func TestCaptures(t *testing.T) {
	t.Parallel()
	for _, c := range Captures() {
		if !(c.Appeal < c.First && c.First < c.FirstChosen && c.Appeal < c.AppealChosen && c.AppealChosen < c.FirstChosen && c.FirstChosen < c.Block) {
			t.Errorf("%+v", c)
		}
	}
	if p := atLeast(audit.Committee, 5, 0.2); p < 4.66e-3 || p > 4.68e-3 {
		t.Errorf("5 of 7 at 20 %%: %v", p)
	}
}

// By the figures that are assumed of it no card can answer for two identities at an instant, but for one that is known: one that fills its
// memory faster needs slower cells (audit.Plan).
func TestHowManyACardAnswersFor(t *testing.T) {
	t.Parallel()
	for _, s := range Shortfalls() {
		want := 1
		switch {
		case strings.Contains(s.Class, "CPU"):
			want = 0
		case s.Class == sim.RTX4090.Name:
			want = 2
		}
		if s.InOne != want {
			t.Errorf("%s: %d, want %d", s.Class, s.InOne, want)
		}
	}
	fast := sim.H100
	fast.Blocks *= 4
	if got := inOne(fast); got < 2 {
		t.Errorf("one that fills its memory in a second: %d", got)
	}
}
