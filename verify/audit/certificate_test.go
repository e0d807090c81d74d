package audit_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A certificate shows what its record shows, to whoever knows the beacon of its window and who could be drawn; it is small, and nothing of it
// can be changed.
func TestCertificate(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	rules := audit.NewRules(c.Genesis())
	r := made(t, c)
	cert, seen := r.Certificate(), c.Seen()
	b := cert.Marshal()
	if err := cert.Check(rules, seen); err != nil || cert.Rates() != r.Rates() || len(b) != 544+7*248 ||
		len(b) > audit.MaxCertificate {
		t.Fatalf("%v, %+v, %d bytes", err, cert.Rates(), len(b))
	}
	if !bytes.Equal(b, r.Marshal()[:len(b)]) {
		t.Error("it is not the beginning of its record")
	}
	if again, rest, err := audit.CutCertificate(append(bytes.Clone(b), 1, 2)); err != nil ||
		again.Hash() != cert.Hash() || len(rest) != 2 {
		t.Errorf("%v, %d bytes after it", err, len(rest))
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if x, rest, err := audit.CutCertificate(bad); err == nil && len(rest) == 0 {
			if err := x.Check(rules, seen); err == nil {
				t.Fatalf("bit of byte %d: it passes", i)
			}
		}
	}
	for cut := range b {
		if _, _, err := audit.CutCertificate(b[:cut]); err == nil {
			t.Fatalf("it is read of %d bytes", cut)
		}
	}
	foreign := c.Genesis()
	foreign.AuditSlots++
	with := func(change func(*audit.Seen)) audit.Seen { s := seen; change(&s); return s }
	for what, x := range map[string]struct {
		rules audit.Rules
		seen  audit.Seen
		rule  audit.Rule
	}{
		"members not drawn": {rules, with(func(s *audit.Seen) {
			s.Roster = audit.Roster{{Key: sign.Key{1}, Owner: sign.Key{1}, Weight: 1},
				{Key: sign.Key{2}, Owner: sign.Key{2}, Weight: 2}}
		}), ""},
		"another's dataset":  {rules, with(func(s *audit.Seen) { s.Era.Value[0]++ }), audit.RuleSeed},
		"windows of another": {audit.NewRules(foreign), seen, audit.RuleWindow},
		"another beacon":     {rules, with(func(s *audit.Seen) { s.Beacon.Value[0]++ }), audit.RuleBeacon},
	} {
		err := cert.Check(x.rules, x.seen)
		if rule, ok := errors.AsType[*audit.RuleError](err); !ok || rule.Rule != x.rule && x.rule != "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.Verdict = func(v *audit.Verdict) { v.Outcome = audit.Late }
	wantRule(t, "that nobody passed", made(t, c).Certificate().Check(rules, seen), audit.RuleMajority)
}
