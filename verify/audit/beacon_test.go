package audit_test

import (
	"testing"

	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

func made(t testing.TB, c audittest.Case) audit.Record {
	t.Helper()
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A record's beacon is of a slot of its window, on the network of its genesis.
func TestRecordOfARule(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	rules := audit.NewRules(c.Genesis())
	r := made(t, c)
	wantRule(t, "a record", r.CheckRules(rules), "")
	for name, x := range map[string]struct {
		change func(*audit.Record)
		want   audit.Rule
	}{
		"a block of the window before": {func(r *audit.Record) { r.Beacon.Slot = 699 }, audit.RuleWindow},
		"a block of the next":          {func(r *audit.Record) { r.Beacon.Slot = 800 }, audit.RuleWindow},
		"other windows":                {func(r *audit.Record) { r.WindowSlots++ }, audit.RuleWindow},
		"begun at another instant": {func(r *audit.Record) {
			r.Beacon.Value[0]++
			r.Verdicts[0].Slot += 60
			r.Verdicts[1].Slot += 60
			r.Verdicts[2].Slot += 60
		}, audit.RuleInstant},
	} {
		bad := r
		bad.Verdicts = append([]audit.Signed(nil), r.Verdicts...)
		x.change(&bad)
		wantRule(t, name, bad.CheckRules(rules), x.want)
	}
}
