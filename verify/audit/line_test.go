package audit_test

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// following is a case of the window after a record, in whose line it is.
func following(c audittest.Case, r audit.Record) audittest.Case {
	c.Window, c.Since = r.Answer.Window+1, r.Line()
	return c
}

// A line says when it began for as long as it goes on, and what a committee is shown of the record before is all that it needs.
func TestLine(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	c.Attempt = 2
	r := made(t, c)
	began := audit.Moment{Window: c.Window, Attempt: 2}
	for range 3 {
		if r.Line() != began || r.Check(audittest.Domain()) != nil {
			t.Fatalf("a line from %+v on: %v", r.Line(), r.Check(audittest.Domain()))
		}
		cert, _, err := audit.CutCertificate(r.Certificate().Marshal())
		if err != nil {
			t.Fatal(err)
		}
		link := cert.Record()
		at := r.Answer.Target
		at.Window, at.Attempt = at.Window+audit.LineGap, 1
		if got, err := link.CheckLink(audittest.Domain(), c.Slots, at); err != nil || got != began {
			t.Fatalf("it goes on from %+v: %v", got, err)
		}
		c = following(c, r)
		c.Attempt = 1
		r = made(t, c)
	}
	again, err := audit.UnmarshalRecord(r.Marshal())
	if err != nil || again.Since != began {
		t.Fatalf("%+v: %v", again.Since, err)
	}
	// Nobody makes a line older afterwards: the seeds are made of it.
	for _, other := range []audit.Moment{{}, {Window: began.Window - 1, Attempt: 2}, {Window: began.Window, Attempt: 1}} {
		bad := r
		bad.Since = other
		if err := bad.Check(audittest.Domain()); !broke(err, audit.RuleSeed) {
			t.Errorf("since %+v: %v", other, err)
		}
	}
}

func broke(err error, rule audit.Rule) bool {
	var e *audit.RuleError
	return errors.As(err, &e) && e.Rule == rule
}

func TestLinkRefuses(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	for what, x := range map[string]struct {
		cheat  func(*audittest.Case)
		change func(*audit.Record)
		at     func(*audit.Target)
		slots  uint64
		rule   audit.Rule
	}{
		"another unit's":              {at: func(a *audit.Target) { a.Unit[0]++ }, rule: audit.RuleUnit},
		"another provider's":          {at: func(a *audit.Target) { a.Provider[0]++ }, rule: audit.RuleUnit},
		"other windows":               {slots: 1, rule: audit.RuleWindow},
		"of the same window":          {at: func(a *audit.Target) { a.Window = c.Window }, rule: audit.RuleLine},
		"of a later window":           {at: func(a *audit.Target) { a.Window = 0 }, rule: audit.RuleLine},
		"too long ago":                {at: func(a *audit.Target) { a.Window = c.Window + audit.LineGap + 1 }, rule: audit.RuleLine},
		"an older beginning":          {change: func(r *audit.Record) { r.Since = audit.Moment{Window: 1, Attempt: 1} }, rule: audit.RuleSeed},
		"a line from itself on":       {change: func(r *audit.Record) { r.Since = audit.Moment{Window: c.Window, Attempt: 1} }, rule: audit.RuleLine},
		"a line from no attempt":      {change: func(r *audit.Record) { r.Since = audit.Moment{Window: 1} }, rule: audit.RuleLine},
		"a line from a fourth":        {change: func(r *audit.Record) { r.Since = audit.Moment{Window: 1, Attempt: 4} }, rule: audit.RuleLine},
		"nobody passed it":            {cheat: func(c *audittest.Case) { c.Verdict = func(v *audit.Verdict) { v.Outcome = audit.Late } }, rule: audit.RuleMajority},
		"the provider signed nothing": {change: func(r *audit.Record) { r.AnswerSig[0]++ }, rule: audit.RuleProvider},
		"a member signed nothing":     {change: func(r *audit.Record) { r.Verdicts[0].Signature[0]++ }, rule: audit.RuleVerdict},
	} {
		own := c
		if x.cheat != nil {
			x.cheat(&own)
		}
		r, err := own.Make()
		if err != nil {
			t.Fatal(err)
		}
		if x.change != nil {
			x.change(&r)
		}
		at, slots := r.Answer.Target, c.Slots
		if at.Window++; x.at != nil {
			x.at(&at)
		}
		if x.slots > 0 {
			slots = x.slots
		}
		if _, err := r.CheckLink(audittest.Domain(), slots, at); !broke(err, x.rule) {
			t.Errorf("%s: %v, want rule %s", what, err, x.rule)
		}
	}
}
