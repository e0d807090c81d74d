package audit_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// A certificate shows what its record shows, to whoever knows when its window was and who could be drawn; it is small, and nothing of it
// can be changed.
func TestCertificate(t *testing.T) {
	t.Parallel()
	for b, proof := range map[market.Beacon]int{market.SlotHash: 0, market.ByDrand: 96, market.CommitReveal: 1 + 7*112} {
		t.Run(string(b), func(t *testing.T) {
			t.Parallel()
			testCertificate(t, b, proof)
		})
	}
}

func testCertificate(t *testing.T, source market.Beacon, proof int) {
	c, bs := by(t, source, 7)
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	cert, seen := r.Certificate(), c.Seen()
	b := cert.Marshal()
	era, err := cert.Check(bs, seen)
	if err != nil || cert.Rates() != r.Rates() || len(b) != 544+7*248+proof || len(b) > audit.MaxCertificate {
		t.Fatalf("%v, %+v, %d bytes", err, cert.Rates(), len(b))
	}
	if !bytes.Equal(b[:544+7*248], r.Marshal()[:544+7*248]) {
		t.Error("it is not the beginning of its record")
	}
	if again, rest, err := audit.CutCertificate(append(bytes.Clone(b), 1, 2)); err != nil || again.Hash() != cert.Hash() || len(rest) != 2 {
		t.Errorf("%v, %d bytes after it", err, len(rest))
	}
	// Once verified, the same beacon need not be again: that of another is.
	known := seen.With(cert, era)
	if again, err := cert.Check(bs, known); err != nil || again != era || !known.Knows(cert) || source != market.SlotHash && seen.Knows(cert) {
		t.Errorf("the same certificate again: %v", err)
	}
	for i := range b {
		if stated := 544 + 7*248; source != market.SlotHash && i < stated && i%16 != 0 || i > stated && i%3 != 0 {
			continue // all of what every certificate has is changed in one of a slot hash
		}
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if x, rest, err := audit.CutCertificate(bad); err == nil && len(rest) == 0 {
			if _, err := x.Check(bs, known); err == nil {
				t.Fatalf("bit of byte %d: it passes", i)
			}
		}
	}
	for cut := range b {
		if _, _, err := audit.CutCertificate(b[:cut]); err == nil {
			t.Fatalf("it is read of %d bytes", cut)
		}
	}
	other := seen
	other.Roster = audit.Roster{{Key: sign.Key{1}, Owner: sign.Key{1}, Weight: 1}, {Key: sign.Key{2}, Owner: sign.Key{2}, Weight: 2}}
	wrong := func(change func(*audit.Seen)) audit.Seen { s := known; change(&s); return s }
	foreign := c.Genesis(source)
	foreign.AuditSlots++
	if source == market.ByDrand {
		_, g, err := audittest.NewBy(source, 7)
		if err != nil {
			t.Fatal(err)
		}
		foreign.Drand = g.Drand
	}
	longer, err := audit.NewBeacons(foreign)
	if err != nil {
		t.Fatal(err)
	}
	type bad struct {
		bs   *audit.Beacons
		seen audit.Seen
		rule audit.Rule
	}
	bads := map[string]bad{
		"members not drawn":  {bs, other, ""},
		"another's dataset":  {bs, wrong(func(s *audit.Seen) { s.Era.Value[0]++ }), audit.RuleSeed},
		"windows of another": {longer, seen, audit.RuleWindow},
	}
	switch source {
	case market.SlotHash:
		bads["another beacon"] = bad{bs, wrong(func(s *audit.Seen) { s.Beacon.Value[0]++ }), audit.RuleWindow}
	case market.ByDrand:
		bads["another time"] = bad{bs, audit.Seen{Roster: c.Roster, Began: audittest.Began + 60, Within: 5}, audit.RuleTime}
		bads["no time"] = bad{bs, audit.Seen{Roster: c.Roster}, audit.RuleTime}
	}
	for what, x := range bads {
		_, err := cert.Check(x.bs, x.seen)
		if rule, ok := errors.AsType[*audit.RuleError](err); !ok || rule.Rule != x.rule && x.rule != "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.Verdict = func(v *audit.Verdict) { v.Outcome = audit.Late }
	if r, err = c.Make(); err != nil {
		t.Fatal(err)
	}
	_, err = r.Certificate().Check(bs, seen)
	if rule, ok := errors.AsType[*audit.RuleError](err); !ok || rule.Rule != audit.RuleMajority {
		t.Errorf("that nobody passed: %v", err)
	}
}

// From when one window began follows when others did, the less surely the further they lie away.
func TestBeside(t *testing.T) {
	t.Parallel()
	_, bs := by(t, market.ByDrand, 0)
	s := audit.Seen{Began: 10_000, Within: 5}
	for w, want := range map[audit.Window]audit.Seen{
		7: {Began: 10_000, Within: 6}, 8: {Began: 10_040, Within: 8}, 4: {Began: 9_880, Within: 13}, 107: {Began: 14_000, Within: 256},
	} {
		if got := bs.Beside(7, s, w); got.Began != want.Began || got.Within != want.Within {
			t.Errorf("window %d began at %d ± %d, not %d ± %d", w, got.Began, got.Within, want.Began, want.Within)
		}
	}
	if got := bs.Beside(1000, audit.Seen{Began: 5}, 0); got.Began != 0 {
		t.Errorf("before there was time: %+v", got)
	}
}
