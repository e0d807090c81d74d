package history_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/audit/history"
)

func wantRule(t *testing.T, what string, err error, want audit.Rule) {
	t.Helper()
	if want == "" && err != nil || want != "" && !audit.IsRule(err, want) {
		t.Errorf("%s: %v, want rule %q", what, err, want)
	}
}

// Five of seven make a window one that failed: a record from before it sells nothing, nor does one of seven right after it.
func TestFailures(t *testing.T) {
	t.Parallel()
	var f history.Failures
	c, all := audittest.Refusals(t, 7, 5)
	record := func(w audit.Window, committee uint8) audit.Record {
		return audit.Record{Committee: committee, Answer: audit.Answer{Target: audit.Target{Provider: c.Provider.Key(),
			Unit: c.Unit, Window: w}}}
	}
	// against is all that speaks against a record where the window before its own had an audit.
	against := func(r audit.Record, roster audit.Roster) error {
		return errors.Join(f.Against(r, c.Instants()), f.Appealed(r, max(r.Answer.Window, 1)-1, roster))
	}
	for i, x := range all {
		if err := against(record(6, 7), c.Roster); err != nil || len(f.Failed(x.Target())) != 0 {
			t.Errorf("%d refused it: %v", i, err)
		}
		if !f.Add(x) || f.Add(x) || !f.Has(x) {
			t.Errorf("refusal %d is not kept once", i)
		}
	}
	at := all[0].Target()
	if got := f.Failed(at); !slices.Equal(got, []audit.Window{7}) {
		t.Fatalf("it failed in %v", got)
	}
	for name, x := range map[string]struct {
		r    audit.Record
		want audit.Rule
	}{
		"passed before":        {record(6, 7), audit.RuleFresh},
		"in the same window":   {record(7, 7), ""},
		"before seven, next":   {record(8, 7), audit.RuleMajority},
		"before eleven, next":  {record(8, 11), ""},
		"before seven, later":  {record(9, 7), ""},
		"another unit of it":   {audit.Record{Answer: audit.Answer{Target: audit.Target{Provider: at.Provider}}}, ""},
		"the same of another":  {audit.Record{Answer: audit.Answer{Target: audit.Target{Unit: at.Unit}}}, ""},
		"of the end of time":   {record(1<<64-1, 7), ""},
		"of the first of time": {record(0, 7), audit.RuleFresh},
	} {
		wantRule(t, name, against(x.r, c.Roster), x.want)
	}
	if err := against(record(8, 7), c.Roster[:9]); err != nil {
		t.Errorf("where there are no more than nine: %v", err)
	}
	for w := audit.Window(8); w < 13; w++ {
		_, more := audittest.Refusals(t, w, 5)
		for _, x := range more {
			f.Add(x)
		}
	}
	few := c
	few.OneIn = 30
	wantRule(t, "failed in six windows of the time of 24 audits", f.Against(record(36, 11), few.Instants()),
		audit.RuleFresh)
	wantRule(t, "which was long ago, where few windows have one", f.Against(record(13+24*30, 11), few.Instants()), "")
	wantRule(t, "failed in six windows", against(record(20, 11), c.Roster), audit.RuleFresh)
	wantRule(t, "which was long ago", against(record(36, 11), c.Roster), "")
	if len(f.All()) != 30 || len(f.Forget(13)) != 30 || len(f.All()) != 0 || against(record(6, 7), c.Roster) != nil {
		t.Error("what is forgotten counts")
	}
	// Two of three refuse different answers: neither failed by it.
	_, four := audittest.Refusals(t, 7, 4)
	for _, x := range four {
		f.Add(x)
	}
	if len(f.Failed(at)) != 0 {
		t.Error("four of seven make it fail")
	}
}

func FuzzFailures(f *testing.F) {
	_, all := audittest.Refusals(f, 7, 1)
	f.Add(all[0].Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := audit.UnmarshalRefusal(b)
		if err != nil {
			return
		}
		var some history.Failures
		if !some.Add(x) || some.Add(x) || !some.Has(x) || len(some.All()) != 1 {
			t.Fatal("a refusal is not kept once")
		}
		size := audit.Certificate(x).Record().Committee
		if failed := some.Failed(x.Target()); len(failed) > 0 && size > 1 {
			t.Fatalf("one of %d makes it fail in %v", size, failed)
		}
		if some.Forget(x.Target().Window); len(some.All()) != 1 {
			t.Fatal("its own window is forgotten")
		}
	})
}
