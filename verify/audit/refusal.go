package audit

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market/sign"
)

// MaxRefusal bounds a refusal, bytes.
const MaxRefusal = recordHead + AnswerSize + ShownSize + 2*sign.SignatureSize + VerdictSize + sign.SignatureSize

// Refusal is one member's signed statement that a unit did not pass, with the statements that its provider signed. It
// has the layout of a certificate of one verdict, late or wrong. Refusals by more than two thirds of a committee make
// the window a failure (Failures). The size of the committee is not signed: it is the smallest in any of the refusals.
type Refusal struct {
	record Record // without openings, and with one verdict
}

// Refuse makes a refusal from a record with only the member's verdict. It returns RuleVerdict if the verdict is not a
// refusal.
func Refuse(r Record) (Refusal, error) {
	if len(r.Verdicts) != 1 || r.Verdicts[0].Outcome == Pass {
		return Refusal{}, broken(RuleVerdict, "verdicts: want exactly one, a refusal")
	}
	return Refusal{r.Certificate().record}, nil
}

// Marshal returns the layout.
func (x Refusal) Marshal() []byte { return Certificate(x).Marshal() }

// UnmarshalRefusal decodes the layout without trailing bytes. It does not verify; Check does.
func UnmarshalRefusal(b []byte) (Refusal, error) {
	if len(b) > MaxRefusal {
		return Refusal{}, malformed("refusal", "%d bytes, at most %d", len(b), MaxRefusal)
	}
	c, rest, err := CutCertificate(b)
	if err != nil {
		return Refusal{}, err
	}
	if len(rest) != 0 {
		return Refusal{}, malformed("refusal", "%d bytes too many", len(rest))
	}
	x, err := Refuse(c.record)
	if err != nil {
		return Refusal{}, malformed("refusal", "%v", err)
	}
	return x, nil
}

// Target is the refused unit, with its window and attempt.
func (x Refusal) Target() Target { return x.record.Answer.Target }

// Member is the member that refused.
func (x Refusal) Member() sign.Key { return x.record.Verdicts[0].Member }

// Beacon is the window's.
func (x Refusal) Beacon() Beacon { return x.record.Beacon }

// Check verifies the parts that need no other data: that the provider signed the answer and its openings, the member
// its verdict of both, and that it is of the window. CheckMembers verifies that the beacon is the window's and draws an
// audit, and that it draws the member.
func (x Refusal) Check(d sign.Domain, slots uint64) error {
	r, v := x.record, x.record.Verdicts[0]
	a := r.Answer
	switch {
	case r.WindowSlots != slots || slots < 1:
		return broken(RuleWindow, "windows of %d slots, the network's have %d", r.WindowSlots, slots)
	case a.Attempt < 1 || a.Attempt > MaxAttempts:
		return broken(RuleAttempt, "attempt %d of at most %d", a.Attempt, MaxAttempts)
	case r.Shown.Answer != a.Hash() || v.Answer != r.Shown.Answer || v.Openings != r.Shown.Openings:
		return broken(RuleVerdict, "verdict of %s: on another answer, or other openings", v.Member.Short())
	case v.Member == a.Provider:
		return broken(RuleCommittee, "the provider judges itself")
	}
	if err := errors.Join(v.checkNonces(), v.CheckTimes(r.Beacon, a.Window, slots)); err != nil {
		return err
	}
	return r.checkSignatures(d)
}

// CheckMembers verifies that the member was to be drawn from the roster.
func (x Refusal) CheckMembers(roster Roster) error { return x.record.CheckMembers(roster) }

// String names unit, window and member of the refusal.
func (x Refusal) String() string {
	t := x.Target()
	return fmt.Sprintf("unit %s of %s in window %d by %s",
		t.Unit.Short(), t.Provider.Short(), t.Window, x.Member().Short())
}
