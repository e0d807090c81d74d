package proven

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// rated is a record of a committee of one that saw the products take so many milliseconds.
func rated(w audit.Window, millis uint64) audit.Record {
	c := audittest.New(1)
	r := audit.Record{Committee: 1, Answer: audit.Answer{Target: audit.Target{Window: w}, Shape: c.Shape, Walk: c.Walk}}
	r.Verdicts = []audit.Signed{{Verdict: audit.Verdict{Product: 1000 * millis, Walk: 1000 * millis, Outcome: audit.Pass}}}
	return r
}

// What a unit may sell is the tenth percentile of what it showed in the last 24 windows: one lucky window sells nothing more, one slow window
// of many nothing less, and a card that is slow in every fifth is sold as slow.
func TestCapacityIsTheTenthPercentile(t *testing.T) {
	t.Parallel()
	quick, slow, lucky := rated(0, 100).Rates(), rated(0, 300).Rates(), rated(0, 10).Rates()
	if quick.Operations == 0 || slow.Operations >= quick.Operations || lucky.Operations <= quick.Operations {
		t.Fatalf("%+v, %+v, %+v", quick, slow, lucky)
	}
	see := func(windows int, millis func(w int) uint64) checked {
		var c checked
		for w := 1; w <= windows; w++ {
			r := rated(audit.Window(w), millis(w))
			c = checked{class: "cpu"}.after(c, r, audit.Instants{})
			if again := (checked{class: "cpu"}.after(c, r, audit.Instants{})); len(again.past) != len(c.past) {
				t.Fatalf("one window counts twice: %d and %d", len(c.past), len(again.past))
			}
		}
		return c
	}
	for name, c := range map[string]struct {
		millis func(w int) uint64
		want   audit.Rates
	}{
		"a lucky window":               {func(w int) uint64 { return map[bool]uint64{true: 10, false: 100}[w == 60] }, quick},
		"a slow window":                {func(w int) uint64 { return map[bool]uint64{true: 300, false: 100}[w == 60] }, quick},
		"slow in every fifth":          {func(w int) uint64 { return map[bool]uint64{true: 300, false: 100}[w%5 == 0] }, slow},
		"slow, more than a day before": {func(w int) uint64 { return map[bool]uint64{true: 300, false: 100}[w < 30] }, quick},
	} {
		got := see(60, c.millis)
		if got.rates.Operations != c.want.Operations || got.rates.Reads != c.want.Reads || len(got.past) != audit.MaxRates {
			t.Errorf("%s: %+v of %d windows, want %+v", name, got.rates, len(got.past), c.want)
		}
	}
	old := see(10, func(int) uint64 { return 300 })
	if got := (checked{class: "cpu", res: market.Resources{MilliCPU: 1}}).after(old, rated(11, 100), audit.Instants{}); got.rates.Operations != quick.Operations {
		t.Errorf("what it showed with other resources counts: %+v", got.rates)
	}
}
