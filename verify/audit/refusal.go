package audit

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market/sign"
)

// MaxRefusal bounds a refusal, bytes.
const MaxRefusal = recordHead + AnswerSize + ShownSize + 2*sign.SignatureSize + VerdictSize + sign.SignatureSize

// Refusal is one member's signed statement that a unit did not pass, with the statements that its provider signed. It
// has the layout of a certificate of one verdict, late or wrong. Refusals by more than two thirds of a committee make a
// window one that failed (Failures). Nobody signs the size of the committee: it is the smallest that any refusal
// states.
type Refusal struct {
	record Record // without openings, and with one verdict
}

// Refuse makes it of a record with the member's verdict alone. RuleVerdict when that is none that refuses.
func Refuse(r Record) (Refusal, error) {
	if len(r.Verdicts) != 1 || r.Verdicts[0].Outcome == Pass {
		return Refusal{}, broken(RuleVerdict, "not one verdict that refuses")
	}
	return Refusal{r.Certificate().record}, nil
}

// Marshal returns the layout.
func (x Refusal) Marshal() []byte { return Certificate(x).Marshal() }

// UnmarshalRefusal reads the layout and nothing after it. It verifies nothing; Check does.
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

// Check verifies the parts that need nothing else: that the provider signed the answer and its openings, the member its
// verdict of both, and that it is of the window. CheckMembers verifies that the beacon is the window's and draws an
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
		return broken(RuleVerdict, "%s judged another answer, or other openings", v.Member.Short())
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

// Limits of Failures.
const (
	// MaxRefusals is how many refusals are kept, MaxRefusalsOf how many of one provider.
	MaxRefusals   = 1 << 14
	MaxRefusalsOf = 1 << 10
)

// Failures are the checked refusals of the last windows, which count against a unit for every reader. The zero value
// has none. It is not for more than one goroutine.
type Failures struct {
	of    map[Target]map[sign.Key]Refusal // by answered attempt and member
	count map[sign.Key]int                // by provider
	all   int
}

// Has reports whether a refusal of that attempt by that member is there, of a committee no larger.
func (f *Failures) Has(x Refusal) bool {
	old, has := f.of[x.Target()][x.Member()]
	return has && old.record.Committee <= x.record.Committee
}

// Room reports whether one more of a provider can be kept.
func (f *Failures) Room(provider sign.Key) bool {
	return f.all < MaxRefusals && f.count[provider] < MaxRefusalsOf
}

// Add keeps a refusal, and reports whether it did: one of a member for an attempt, and as many as there is room for.
func (f *Failures) Add(x Refusal) bool {
	t := x.Target()
	if _, here := f.of[t][x.Member()]; here {
		if f.Has(x) {
			return false
		}
		f.of[t][x.Member()] = x
		return true
	}
	if !f.Room(t.Provider) {
		return false
	}
	if f.of == nil {
		f.of, f.count = map[Target]map[sign.Key]Refusal{}, map[sign.Key]int{}
	}
	if f.of[t] == nil {
		f.of[t] = map[sign.Key]Refusal{}
	}
	f.of[t][x.Member()] = x
	f.count[t.Provider]++
	f.all++
	return true
}

// Forget drops those of windows before one, and gives them.
func (f *Failures) Forget(before Window) (out []Refusal) {
	for t, by := range f.of {
		if t.Window >= before {
			continue
		}
		for _, x := range by {
			out = append(out, x)
		}
		f.all -= len(by)
		if f.count[t.Provider] -= len(by); f.count[t.Provider] == 0 {
			delete(f.count, t.Provider)
		}
		delete(f.of, t)
	}
	return out
}

// All are those that are kept, by attempt and member.
func (f *Failures) All() []Refusal {
	var out []Refusal
	for _, by := range f.of {
		for _, x := range by {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b Refusal) int { return bytes.Compare(a.Marshal(), b.Marshal()) })
	return out
}

// Failed returns the windows, ascending, in which more than two thirds of a committee refused one answer of a unit.
// Refusals by a third could come from liars and do not count.
func (f *Failures) Failed(t Target) []Window {
	var out []Window
	for at, by := range f.of {
		if at.Provider != t.Provider || at.Unit != t.Unit || slices.Contains(out, at.Window) {
			continue
		}
		said, size := map[sign.Hash]int{}, map[sign.Hash]uint8{}
		for _, x := range by {
			h := sign.Sum(x.record.Shown.Answer[:], x.record.Shown.Openings[:])
			if said[h]++; said[h] == 1 {
				size[h] = x.record.Committee
			}
			size[h] = min(size[h], x.record.Committee)
		}
		for h, n := range said {
			if n >= Certify(int(size[h])) {
				out = append(out, at.Window)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// Against says why a unit is not sold by a record that passed, in spite of it: it failed in a later window, or too
// often in the time of MaxRates audits before it. RuleFresh.
func (f *Failures) Against(r Record, i Instants) error {
	failed := f.Failed(r.Answer.Target)
	if len(failed) == 0 {
		return nil
	}
	last, w := failed[len(failed)-1], r.Answer.Window
	if last > w {
		return broken(RuleFresh,
			"more than two thirds of a committee refused the unit in window %d, it last passed in window %d", last, w)
	}
	span := i.Audits(MaxRates)
	if failed = slices.DeleteFunc(failed, func(at Window) bool { return at+span <= w }); len(failed) > MaxFailed {
		return broken(RuleFresh, "the unit failed in %d of the last %d windows, which have %d audits on average",
			len(failed), span, MaxRates)
	}
	return nil
}

// Appealed says why a record that passed is none to sell its unit by: the unit failed in the window with an audit
// before it, and did not answer before all that an appeal is for. RuleMajority.
func (f *Failures) Appealed(r Record, before Window, roster Roster) error {
	if !slices.Contains(f.Failed(r.Answer.Target), before) || before >= r.Answer.Window || int(r.Committee) >= Appeal {
		return nil
	}
	drawn := roster.Draw(r.Beacon, r.Answer.Window, r.Answer.Provider, Appeal+Slack)
	if len(drawn) > int(r.Committee)+Slack {
		return broken(RuleMajority,
			"the unit failed in window %d, and passed before %d in the next audit: %d must judge an appeal",
			before, r.Committee, Appeal)
	}
	return nil
}

// String names unit, window and member of the refusal.
func (x Refusal) String() string {
	t := x.Target()
	return fmt.Sprintf("unit %s of %s in window %d by %s",
		t.Unit.Short(), t.Provider.Short(), t.Window, x.Member().Short())
}
