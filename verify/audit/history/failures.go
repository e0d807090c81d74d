// Package history has the conclusion of a reader from the refusals of many windows: the units that failed, by the word
// of more than two thirds of a committee.
//
// The package is pure.
package history

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Limits of Failures.
const (
	// MaxRefusals is how many refusals are kept, MaxRefusalsOf how many of one provider.
	MaxRefusals   = 1 << 14
	MaxRefusalsOf = 1 << 10
)

// Failures are the checked refusals of the last windows, which count against a unit for every reader. The zero value
// has none. It is not for more than one goroutine.
type Failures struct {
	of    map[audit.Target]map[sign.Key]audit.Refusal // by answered attempt and member
	count map[sign.Key]int                            // by provider
	all   int
}

// Has reports whether a refusal of that attempt by that member is there, of a committee no larger.
func (f *Failures) Has(x audit.Refusal) bool {
	old, has := f.of[x.Target()][x.Member()]
	return has && committee(old) <= committee(x)
}

// Room reports whether one more of a provider can be kept.
func (f *Failures) Room(provider sign.Key) bool {
	return f.all < MaxRefusals && f.count[provider] < MaxRefusalsOf
}

// Add keeps a refusal, and reports whether it did. It keeps one of each member for an attempt, up to its limits.
func (f *Failures) Add(x audit.Refusal) bool {
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
		f.of, f.count = map[audit.Target]map[sign.Key]audit.Refusal{}, map[sign.Key]int{}
	}
	if f.of[t] == nil {
		f.of[t] = map[sign.Key]audit.Refusal{}
	}
	f.of[t][x.Member()] = x
	f.count[t.Provider]++
	f.all++
	return true
}

// Forget drops the refusals of windows before the given one, and returns them.
func (f *Failures) Forget(before audit.Window) (out []audit.Refusal) {
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

// All returns the kept refusals, by attempt and member.
func (f *Failures) All() []audit.Refusal {
	var out []audit.Refusal
	for _, by := range f.of {
		for _, x := range by {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b audit.Refusal) int { return bytes.Compare(a.Marshal(), b.Marshal()) })
	return out
}

// Failed returns the windows, ascending, in which more than two thirds of a committee refused one answer of a unit.
// Refusals by a third could come from liars and do not count.
func (f *Failures) Failed(t audit.Target) []audit.Window {
	var out []audit.Window
	for at, by := range f.of {
		if at.Provider != t.Provider || at.Unit != t.Unit || slices.Contains(out, at.Window) {
			continue
		}
		said, size := map[sign.Hash]int{}, map[sign.Hash]uint8{}
		for _, x := range by {
			shown := audit.Certificate(x).Record().Shown
			h := sign.Sum(shown.Answer[:], shown.Openings[:])
			if said[h]++; said[h] == 1 {
				size[h] = committee(x)
			}
			size[h] = min(size[h], committee(x))
		}
		for h, n := range said {
			if n >= audit.Certify(int(size[h])) {
				out = append(out, at.Window)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// Against returns an error of RuleFresh if a passed record does not count, because its unit failed in a later window,
// or too often in the MaxRates audits before it.
func (f *Failures) Against(r audit.Record, i audit.Instants) error {
	failed := f.Failed(r.Answer.Target)
	if len(failed) == 0 {
		return nil
	}
	last, w := failed[len(failed)-1], r.Answer.Window
	if last > w {
		return broken(audit.RuleFresh,
			"more than two thirds of a committee refused the unit in window %d, it last passed in window %d", last, w)
	}
	span := i.Audits(audit.MaxRates)
	failed = slices.DeleteFunc(failed, func(at audit.Window) bool { return at+span <= w })
	if len(failed) > audit.MaxFailed {
		return broken(audit.RuleFresh, "the unit failed in %d of the last %d windows, which have %d audits on average",
			len(failed), span, audit.MaxRates)
	}
	return nil
}

// Appealed returns an error of RuleMajority if a passed record does not count, because the unit failed in the previous
// audit, and this record is not of a full appeal.
func (f *Failures) Appealed(r audit.Record, before audit.Window, roster audit.Roster) error {
	if !slices.Contains(f.Failed(r.Answer.Target), before) || before >= r.Answer.Window ||
		int(r.Committee) >= audit.Appeal {
		return nil
	}
	drawn := roster.Draw(r.Beacon, r.Answer.Window, r.Answer.Provider, audit.Appeal+audit.Slack)
	if len(drawn) > int(r.Committee)+audit.Slack {
		return broken(audit.RuleMajority,
			"the unit failed in window %d, and passed before %d in the next audit: %d must judge an appeal",
			before, r.Committee, audit.Appeal)
	}
	return nil
}

// committee is the size of the committee that the member judged in.
func committee(x audit.Refusal) uint8 { return audit.Certificate(x).Record().Committee }

func broken(rule audit.Rule, format string, args ...any) *audit.RuleError {
	return &audit.RuleError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
}
