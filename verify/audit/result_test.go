package audit_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

func genReport(t *rapid.T) audit.Report {
	return audit.Report{
		Result: rapid.SampledFrom([]audit.Result{audit.Passed, audit.Failed, audit.Undecided, audit.Absent}).Draw(t,
			"result"), Broken: rapid.Uint8Range(0, 3).Draw(t, "broken"),
	}
}

// A standing that was written down goes on as it would have.
func TestStandingIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var one, other audit.Standing
		for w := range rapid.IntRange(1, 40).Draw(t, "windows") {
			r := genReport(t)
			one, other = one.Step(r), other.Step(r)
			b := one.MarshalIn(audit.Window(w))
			read, at, err := audit.UnmarshalStanding(b)
			if err != nil || at != audit.Window(w) || read != one || !bytes.Equal(read.MarshalIn(at), b) {
				t.Fatalf("a standing is not read as it was written: %v", err)
			}
			if one = read; one.State != other.State || one.CommitteeSize() != other.CommitteeSize() {
				t.Fatalf("%s before %d, want %s before %d",
					one.State, one.CommitteeSize(), other.State, other.CommitteeSize())
			}
		}
		if again := one.Step(audit.Report{Result: audit.Passed}); again.State == audit.Listed &&
			one.State == audit.Delisted {
			t.Fatal("a delisted unit is listed")
		}
	})
}

func FuzzStanding(f *testing.F) {
	f.Add(audit.Standing{}.MarshalIn(0))
	f.Add(run(audit.Report{Result: audit.Passed}, audit.Report{Result: audit.Failed, Broken: 2},
		audit.Report{Result: audit.Absent}).MarshalIn(9))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, w, err := audit.UnmarshalStanding(b)
		if err != nil {
			return
		}
		if !bytes.Equal(s.MarshalIn(w), b) {
			t.Fatal("another form")
		}
		_ = s.Step(audit.Report{Result: audit.Failed, Broken: 255}).CommitteeSize()
	})
}

// A window counts as its committee says: passed, failed where more than two thirds say so, and else as nothing.
func TestResult(t *testing.T) {
	t.Parallel()
	res := market.Resources{MilliCPU: 63, MemoryMiB: 64}
	for name, x := range map[string]struct {
		late, wrong int
		want        audit.Result
	}{
		"all pass": {0, 0, audit.Passed}, "two were slow to see it": {2, 0, audit.Passed},
		"three": {3, 0, audit.Undecided}, "four": {4, 0, audit.Undecided}, "five": {5, 0, audit.Failed},
		"five find it wrong": {0, 5, audit.Failed}, "all": {4, 3, audit.Failed},
		"two find it wrong": {0, 2, audit.Passed}, "two and two": {2, 2, audit.Undecided},
	} {
		c := audittest.New(9)
		var err error
		if c.Shape, c.Walk, err = audit.Plan("cpu", res); err != nil {
			t.Fatal(err)
		}
		n := 0
		c.Verdict = func(v *audit.Verdict) {
			v.Walk = 60_000
			if n++; n <= x.late {
				v.Outcome = audit.Late
			} else if n <= x.late+x.wrong {
				v.Outcome = audit.Wrong
			}
		}
		r, err := c.Make()
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Result("cpu", res); got != x.want {
			t.Errorf("%s: %s, want %s", name, got, x.want)
		}
	}
	if got := (audit.Record{}).Result("cpu", res); got != audit.Undecided {
		t.Errorf("nothing at all: %s", got)
	}
}
