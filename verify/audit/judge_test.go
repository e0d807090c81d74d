package audit_test

import (
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
)

// Where each window has an audit, a record of window 7, of 100 slots, is fresh through window 8, and for its reader's own lease and one window after it.
func TestFresh(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		now  market.Slot
		work audit.Work
		want audit.Rule
	}{
		"the window before it":              {699, audit.Work{}, audit.RuleTime},
		"its window":                        {700, audit.Work{}, ""},
		"the next":                          {899, audit.Work{}, ""},
		"the one after":                     {900, audit.Work{}, audit.RuleFresh},
		"leased":                            {1500, audit.Work{From: 750, To: 2000}, ""},
		"one window after the lease":        {2099, audit.Work{From: 750, To: 2000}, ""},
		"two windows after it":              {2100, audit.Work{From: 750, To: 2000}, audit.RuleFresh},
		"leased before it passed":           {900, audit.Work{From: 600, To: 2000}, audit.RuleFresh},
		"a lease of nothing":                {900, audit.Work{From: 800, To: 800}, audit.RuleFresh},
		"a lease that ends before it began": {900, audit.Work{From: 850, To: 0}, audit.RuleFresh},
		"the last slot there is":            {1<<64 - 1, audit.Work{}, audit.RuleFresh},
	} {
		r := audit.Record{WindowSlots: 100, Answer: audit.Answer{Target: audit.Target{Window: 7}}}
		wantRule(t, name, audit.Fresh(r, 100, audit.Every(audit.WindowOf(c.now, 100)), c.now, c.work), c.want)
	}
	wantRule(t, "other windows", audit.Fresh(audit.Record{WindowSlots: 99}, 100, audit.Recent{}, 0, audit.Work{}),
		audit.RuleWindow)
	wantRule(t, "no windows", audit.Fresh(audit.Record{}, 0, audit.Recent{}, 0, audit.Work{}), audit.RuleWindow)
}

// Where few windows have an audit, a record is fresh until the second audit after it begins, however long that takes.
func TestFreshAmongFewAudits(t *testing.T) {
	t.Parallel()
	r := audit.Record{WindowSlots: 100, Answer: audit.Answer{Target: audit.Target{Window: 7}}}
	for name, c := range map[string]struct {
		last, before audit.Window
		work         audit.Work
		want         audit.Rule
	}{
		"its own audit is the last":           {7, 2, audit.Work{}, ""},
		"one audit since":                     {90, 7, audit.Work{}, ""},
		"two audits since, one after another": {9, 8, audit.Work{}, audit.RuleFresh},
		"both while it was leased":            {60, 50, audit.Work{From: 750, To: 7000}, ""},
		"one after its lease":                 {80, 50, audit.Work{From: 750, To: 7000}, ""},
		"two after its lease":                 {80, 75, audit.Work{From: 750, To: 7000}, audit.RuleFresh},
	} {
		wantRule(t, name, audit.Fresh(r, 100, audit.Recent{Known: 99, Last: c.last, Before: c.before}, 9950, c.work),
			c.want)
	}
}
