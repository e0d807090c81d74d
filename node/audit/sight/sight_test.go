package sight

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A record of a provider's last audits passes; one with a fact changed is refused by the rule of this fact.
func TestCheckPassed(t *testing.T) {
	t.Parallel()
	c := audittest.NewUnit("unit")
	good, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	g := c.Genesis()
	check := func(change func(s *still, r *audit.Record)) error {
		s, r := &still{Case: c, window: c.Window, roster: c.Roster}, good
		change(s, &r)
		return CheckPassed(t.Context(), s, g, c.Provider.Key(), r)
	}
	for name, tc := range map[string]struct {
		change func(s *still, r *audit.Record)
		rule   audit.Rule // empty: it passes
	}{
		"as it is":          {func(*still, *audit.Record) {}, ""},
		"two audits later":  {func(s *still, _ *audit.Record) { s.window += maxPassedAgo }, ""},
		"of another":        {func(_ *still, r *audit.Record) { r.Answer.Provider[0]++ }, audit.RuleUnit},
		"other windows":     {func(_ *still, r *audit.Record) { r.WindowSlots++ }, audit.RuleWindow},
		"of a window ahead": {func(s *still, _ *audit.Record) { s.window-- }, audit.RuleTime},
		"another dataset":   {func(_ *still, r *audit.Record) { r.Answer.DatasetSeed[0]++ }, audit.RuleSeed},
		"by nobody bonded":  {func(s *still, _ *audit.Record) { s.roster = nil }, audit.RuleCommittee},
		"not signed":        {func(_ *still, r *audit.Record) { r.AnswerSig[0]++ }, audit.RuleProvider},
		"other openings":    {func(_ *still, r *audit.Record) { r.Shown.Openings[0]++ }, audit.RuleVerdict},
	} {
		err := check(tc.change)
		if tc.rule == "" && err != nil || tc.rule != "" && !audit.IsRule(err, tc.rule) {
			t.Errorf("%s: %v, want rule %q", name, err, tc.rule)
		}
	}
	err = check(func(s *still, _ *audit.Record) { s.window += maxPassedAgo + 2 })
	if _, broken := errors.AsType[*audit.RuleError](err); broken || !errors.Is(err, chain.ErrNotFound) {
		t.Errorf("long ago: %v", err)
	}
	if err := check(func(_ *still, r *audit.Record) { r.Beacon.Value[0]++ }); err == nil {
		t.Error("with another beacon")
	}
}
