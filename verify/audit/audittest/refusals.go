package audittest

import (
	"testing"

	"github.com/starling-network/starling/verify/audit"
)

// Refusals returns the refusals of n members of a committee of seven for a unit in a window, with their case.
func Refusals(t testing.TB, w audit.Window, n int) (Case, []audit.Refusal) {
	t.Helper()
	c := New(12)
	c.Window = w
	seen := 0
	c.Verdict = func(v *audit.Verdict) {
		if seen++; seen <= n {
			v.Outcome = audit.Late
		}
	}
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	var out []audit.Refusal
	for _, v := range r.Verdicts {
		one := r
		one.Verdicts = []audit.Signed{v}
		if x, err := audit.Refuse(one); err == nil {
			out = append(out, x)
		} else if v.Outcome != audit.Pass {
			t.Fatal(err)
		}
	}
	if len(out) != n {
		t.Fatalf("%d refusals", len(out))
	}
	return c, out
}
