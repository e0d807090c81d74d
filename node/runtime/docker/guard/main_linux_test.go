package guard

import (
	"strings"
	"testing"
)

// No signal of the program ends its guard, neither of kill(2) nor of sigqueue(3), which Go's runtime takes for a fault
// of the guard's own.
func TestAttackSignals(t *testing.T) {
	t.Parallel()
	b := newBox(t, layout{UID: 1000})
	if a := b.run(nil, "signals"); a.Error != "" {
		t.Fatal(a.Error)
	}
	if out := b.prints("stdout", "done"); strings.Contains(out, "signal") {
		t.Errorf("signals are not sent: %s", out)
	}
	b.alive()
}
