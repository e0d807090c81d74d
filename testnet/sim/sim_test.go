package sim

import (
	"reflect"
	"testing"

	"github.com/starling-network/starling/testnet/sim/play"
)

// small is a version of the table that takes seconds.
var small = play.Options{Seed: 1, Adversaries: 60, Honest: 300, Windows: 30, Records: 1, Faults: 20}

// The targets of the protocol hold for every kind, as far as so few can show: nobody that must be caught is missed, nobody honest is
// slashed, and hardly anybody delisted.
func TestTargets(t *testing.T) {
	t.Parallel()
	rep, err := Run(t.Context(), small)
	if err != nil {
		t.Fatal(err)
	}
	for _, miss := range rep.Misses() {
		t.Error(miss)
	}
	seen := map[string]bool{}
	for _, l := range rep.Lines {
		if seen[l.Kind] {
			t.Errorf("%s is there twice", l.Kind)
		}
		seen[l.Kind] = true
		t.Logf("%-20s first %5.1f %%, caught %5.1f %%, sold %5.1f %%, delisted %d of %d audits, %d records", l.Kind, 100*l.First, 100*l.Caught, 100*l.Sold, l.Delisted, l.Audits, l.Records)
	}
	for _, f := range rep.Faults {
		t.Logf("%+v", f)
	}
	for _, s := range rep.Limits {
		t.Logf("%+v", s)
	}
	for _, s := range rep.Capture {
		t.Logf("%+v", s)
	}
}

func TestSameSeedSameTable(t *testing.T) {
	t.Parallel()
	o := play.Options{Seed: 7, Adversaries: 5, Honest: 20, Windows: 10, Faults: 1}
	a, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	a.Seconds, b.Seconds = 0, 0
	if !reflect.DeepEqual(a, b) {
		t.Error("two tables of one seed differ")
	}
	o.Seed++
	c, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(a.Lines, c.Lines) {
		t.Error("another seed makes the same table")
	}
}

// A table that misses its targets says so: the checks can fail.
func TestMissesAreSeen(t *testing.T) {
	t.Parallel()
	good := Report{Lines: []play.Line{{Kind: "a", Peers: 1000, Caught: 0.999}, {Kind: "b", Peers: 10, Limit: "known"}, {Kind: "c", Honest: true, Audits: 10_000, Delisted: 1, PerAudit: 1e-4}}}
	if m := good.Misses(); len(m) != 0 {
		t.Errorf("%q", m)
	}
	bad := Report{
		Lines:  []play.Line{{Kind: "a", Peers: 1000, Caught: 0.998}, {Kind: "c", Honest: true, Audits: 9_999, Delisted: 1, PerAudit: 1.0001e-4}},
		Faults: []FaultLine{{Fault: "d", Slashed: 1}},
	}
	if m := bad.Misses(); len(m) != 3 {
		t.Errorf("%q", m)
	}
}
