package audit_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

// refusals are what n of a committee of seven say of a unit in a window.
func refusals(t testing.TB, w audit.Window, n int) (audittest.Case, []audit.Refusal) {
	t.Helper()
	c := audittest.New(12)
	c.Window = w
	seen := 0
	c.Verdict = func(v *audit.Verdict) {
		if seen++; seen <= n {
			v.Outcome = audit.Late
		}
	}
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	var out []audit.Refusal
	for _, v := range r.Verdicts {
		one := r
		one.Verdicts = []audit.Signed{v}
		if x, err := audit.Refuse(one); err == nil {
			out = append(out, x)
		} else if v.Outcome != audit.Pass {
			t.Fatal(err)
		}
	}
	if len(out) != n {
		t.Fatalf("%d refusals", len(out))
	}
	return c, out
}

// A refusal is checked by anybody; nothing of it can be changed.
func TestRefusal(t *testing.T) {
	t.Parallel()
	c, all := refusals(t, 7, 5)
	good := all[0]
	check := func(x audit.Refusal, slots uint64, roster audit.Roster) error {
		return errors.Join(audit.NewRules(c.Genesis()).Check(x.Target().Window, x.Beacon()),
			x.Check(audittest.Domain(), slots), x.CheckMembers(roster))
	}
	if err := check(good, c.Slots, c.Roster); err != nil || good.Target().Window != 7 {
		t.Fatal(err)
	}
	b := good.Marshal()
	if read, err := audit.UnmarshalRefusal(b); err != nil || !bytes.Equal(read.Marshal(), b) ||
		len(b) > audit.MaxRefusal {
		t.Fatalf("it is not read as it was written: %v", err)
	}
	for i := range b {
		if i == 3 || i >= 8 && i < 48 {
			continue // the committee's size, which nobody signed, and the beacon, which the chain knows
		}
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if x, err := audit.UnmarshalRefusal(bad); err == nil && check(x, c.Slots, c.Roster) == nil {
			t.Fatalf("bit of byte %d: it holds", i)
		}
	}
	if check(good, c.Slots+1, c.Roster) == nil || check(good, c.Slots, c.Roster[:1]) == nil {
		t.Error("another network's, or by one who is not drawn")
	}
	if _, err := audit.UnmarshalRefusal(append(b, 0)); err == nil {
		t.Error("more than one")
	}
	pass, err := audittest.New(12).Make()
	if err != nil {
		t.Fatal(err)
	}
	pass.Verdicts = pass.Verdicts[:1]
	if _, err := audit.Refuse(pass); err == nil {
		t.Error("a pass refuses")
	}
	if _, err := audit.UnmarshalRefusal(pass.Certificate().Marshal()); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("a pass is read as a refusal: %v", err)
	}
}

// Five of seven make a window one that failed: a record from before it sells nothing, nor does one of seven right after it.
func TestFailures(t *testing.T) {
	t.Parallel()
	var f audit.Failures
	c, all := refusals(t, 7, 5)
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
		_, more := refusals(t, w, 5)
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
	_, four := refusals(t, 7, 4)
	for _, x := range four {
		f.Add(x)
	}
	if len(f.Failed(at)) != 0 {
		t.Error("four of seven make it fail")
	}
}

func FuzzRefusal(f *testing.F) {
	c, all := refusals(f, 7, 1)
	f.Add(all[0].Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := audit.UnmarshalRefusal(b)
		if err != nil {
			return
		}
		if !bytes.Equal(x.Marshal(), b) {
			t.Fatal("a refusal is not written as it was read")
		}
		_ = x.Check(audittest.Domain(), c.Slots)
		_ = x.CheckMembers(c.Roster)
		var all audit.Failures
		all.Add(x)
		_ = all.Failed(x.Target())
	})
}
