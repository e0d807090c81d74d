package audit_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A certificate shows what its record shows, to whoever knows beacon and roster; it is small, and nothing of it can be changed.
func TestCertificate(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	seen := audit.Seen{Beacon: c.Beacon(), Era: c.Era(), Roster: c.Roster}
	cert := r.Certificate()
	b := cert.Marshal()
	if err := cert.Check(audittest.Domain(), c.Slots, seen); err != nil || cert.Rates() != r.Rates() || len(b) != 544+7*248 || len(b) > audit.MaxCertificate {
		t.Fatalf("%v, %+v, %d bytes", err, cert.Rates(), len(b))
	}
	if !bytes.Equal(b, r.Marshal()[:len(b)]) {
		t.Error("it is not the beginning of its record")
	}
	if again, rest, err := audit.CutCertificate(append(bytes.Clone(b), 1, 2)); err != nil || again.Hash() != cert.Hash() || len(rest) != 2 {
		t.Errorf("%v, %d bytes after it", err, len(rest))
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if x, rest, err := audit.CutCertificate(bad); err == nil && len(rest) == 0 && x.Check(audittest.Domain(), c.Slots, seen) == nil {
			t.Fatalf("bit of byte %d: it passes", i)
		}
	}
	other := seen
	other.Roster = audit.Roster{{Key: sign.Key{1}, Weight: 1}, {Key: sign.Key{2}, Weight: 2}}
	wrong := func(change func(*audit.Seen)) audit.Seen { s := seen; change(&s); return s }
	for what, c := range map[string]struct {
		slots uint64
		seen  audit.Seen
		rule  audit.Rule
	}{
		"members not drawn":  {c.Slots, other, audit.RuleCommittee},
		"another beacon":     {c.Slots, wrong(func(s *audit.Seen) { s.Beacon.Value[0]++ }), audit.RuleWindow},
		"another's dataset":  {c.Slots, wrong(func(s *audit.Seen) { s.Era.Value[0]++ }), audit.RuleSeed},
		"windows of another": {c.Slots + 1, seen, audit.RuleWindow},
	} {
		err := cert.Check(audittest.Domain(), c.slots, c.seen)
		if rule, ok := errors.AsType[*audit.RuleError](err); !ok || rule.Rule != c.rule {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.Verdict = func(v *audit.Verdict) { v.Outcome = audit.Late }
	if r, err = c.Make(); err != nil {
		t.Fatal(err)
	}
	if rule, ok := errors.AsType[*audit.RuleError](r.Certificate().Check(audittest.Domain(), c.Slots, seen)); !ok || rule.Rule != audit.RuleMajority {
		t.Errorf("that nobody passed: %v", rule)
	}
}
