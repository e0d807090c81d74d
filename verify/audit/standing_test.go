package audit_test

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
	"pgregory.net/rapid"
)

var classes = []market.Class{
	"gpu/rtx-3060", "gpu/rtx-3090", "gpu/rtx-4090", "gpu/a100", "gpu/h100", "gpu/h200", "gpu/b200", "gpu/titan-x",
	"cpu",
}

// What is asked fits the bounds of a challenge for whatever a unit may claim, and takes what it should where they allow it.
func TestPlan(t *testing.T) {
	t.Parallel()
	for _, class := range classes {
		known, _ := audit.KnownAs(class)
		res := market.Resources{VRAMMiB: known.VRAMMiB, MilliCPU: 16_000, MemoryMiB: 64 << 10}
		shape, walk, err := audit.Plan(class, res)
		if err != nil || errors.Join(shape.Check(), walk.Check()) != nil {
			t.Fatalf("%s: %v, %s, %s", class, err, shape, walk)
		}
		floor, _ := audit.FloorOf(class, res)
		product, walked := floor.Deadlines(shape, walk)
		bounded := shape.Leaves() == challenge.MaxLeaves
		if !bounded && (product < audit.ProductTime || product > audit.ProductTime*9/8) {
			t.Errorf("%s: %s takes %d µs", class, shape, product)
		}
		if walked > audit.WalkTime || walked < audit.WalkTime*3/4 && walk.Walkers != challenge.MaxWalkers {
			t.Errorf("%s: %s takes %d µs", class, walk, walked)
		}
		if bytes := walk.Bytes(); bytes > audit.DatasetBytes(class, res) ||
			bytes+challenge.CellSize <= audit.DatasetBytes(class, res) {
			t.Errorf("%s: a dataset of %d bytes of %d", class, bytes, audit.DatasetBytes(class, res))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		res := market.Resources{
			MilliCPU: rapid.Uint32().Draw(t, "cpu"), MemoryMiB: rapid.Uint32().Draw(t, "memory"),
			VRAMMiB: rapid.Uint32().Draw(t, "vram"),
		}
		class := rapid.SampledFrom(classes).Draw(t, "class")
		shape, walk, err := audit.Plan(class, res)
		if err != nil {
			if !errors.Is(err, challenge.ErrShape) {
				t.Fatal(err)
			}
			return
		}
		if err := errors.Join(shape.Check(), walk.Check()); err != nil {
			t.Fatal(err)
		}
	})
	for _, class := range []market.Class{"tpu/v5", "gpu/h200", "cpu"} {
		if _, _, err := audit.Plan(class, market.Resources{}); !errors.Is(err, challenge.ErrShape) {
			t.Errorf("%s with nothing: %v", class, err)
		}
	}
}

// judged is a record of a class with the same times from all of n members, changed.
func judged(
	t testing.TB, class market.Class, res market.Resources, n int, v audit.Verdict,
	change func(i int, v *audit.Verdict),
) audit.Record {
	t.Helper()
	shape, walk, err := audit.Plan(class, res)
	if err != nil {
		t.Fatal(err)
	}
	r := audit.Record{Answer: audit.Answer{Shape: shape, Walk: walk}, Committee: uint8(n)}
	for i := range n {
		own := v
		if change != nil {
			change(i, &own)
		}
		r.Verdicts = append(r.Verdicts, audit.Signed{Verdict: own})
	}
	return r
}

func TestCheckClass(t *testing.T) {
	t.Parallel()
	const class = "gpu/rtx-4090"
	res := market.Resources{VRAMMiB: 24564}
	good := audit.Verdict{Outcome: audit.Pass, Product: 750_000, Walk: 200_000}
	for name, c := range map[string]struct {
		change func(i int, v *audit.Verdict)
		want   audit.Rule
	}{
		"in time":      {nil, ""},
		"slow":         {func(_ int, v *audit.Verdict) { v.Product = 1_400_000 }, audit.RuleFloor},
		"a slow walk":  {func(_ int, v *audit.Verdict) { v.Walk = 700_000 }, audit.RuleFloor},
		"no time left": {func(_ int, v *audit.Verdict) { v.Product = 1 << 62 }, audit.RuleFloor},
		"two members say that it was slow": {func(i int, v *audit.Verdict) {
			if i < 2 {
				v.Product, v.Walk = 1<<60, 1<<60
			}
		}, ""},
		"two members say that a slow one was fast": {func(i int, v *audit.Verdict) {
			v.Product = 1_500_000
			if i < 2 {
				v.Product = 1
			}
		}, audit.RuleFloor},
		"three members say that it was slow": {func(i int, v *audit.Verdict) {
			if i < 3 {
				v.Product = 1 << 60
			}
		}, audit.RuleFloor},
	} {
		r := judged(t, class, res, audit.Committee, good, c.change)
		wantRule(t, name, r.CheckClass(class, res), c.want)
		if fails, want := r.FailsClass(class, res), c.want != "" &&
			name != "three members say that it was slow"; fails != want {
			t.Errorf("%s: fails its class: %v", name, fails)
		}
	}
	// Three friends and two honest members, instead of all seven, are not two thirds.
	few := judged(t, class, res, audit.Committee, good, func(i int, v *audit.Verdict) {
		if v.Product = 1_400_000; i < 3 {
			v.Product = 1
		}
	})
	few.Verdicts = few.Verdicts[:5]
	wantRule(t, "three friends of five", few.CheckClass(class, res), audit.RuleFloor)
	r := judged(t, class, res, audit.Committee, good, nil)
	r.Answer.Walk.Cells--
	wantRule(t, "a smaller dataset", r.CheckClass(class, res), audit.RuleShape)
	wantRule(t, "no class", r.CheckClass("tpu", res), audit.RuleShape)
	r = judged(t, class, res, audit.Committee, good, func(_ int, v *audit.Verdict) { v.Outcome = audit.Wrong })
	if got := r.Timing(); got.Product != math.MaxUint64 || r.FailsClass(class, res) {
		t.Errorf("times of those who found it wrong: %+v", got)
	}
	floor, _ := audit.FloorOf(class, res)
	for _, c := range []struct {
		product uint64
		right   bool
		want    audit.Outcome
	}{{1_000_000, true, audit.Pass}, {5_900_000, true, audit.Pass}, {60_000_000, true, audit.Late},
		{1, false, audit.Wrong}} {
		if got := audit.Judge(floor, r, audit.Verdict{Product: c.product}, c.right); got != c.want {
			t.Errorf("%d µs: %s, want %s", c.product, got, c.want)
		}
	}
}

// Whatever a third of a committee says, a record passes only if it would with some honest member's word in the place of theirs.
func TestThirdCannotHelp(t *testing.T) {
	t.Parallel()
	const class = "gpu/h100"
	res := market.Resources{VRAMMiB: 81559}
	floor, _ := audit.FloorOf(class, res)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{4, audit.Committee, audit.Appeal}).Draw(t, "n")
		slow := rapid.Uint64Range(1_700_000, 5_000_000).Draw(t, "slow") // deadline 1 s, network and allowance 0.3 s
		shape, walk, _ := audit.Plan(class, res)
		r := audit.Record{Committee: uint8(n), Answer: audit.Answer{Shape: shape, Walk: walk}}
		for i := range n {
			v := audit.Verdict{Outcome: audit.Pass, Product: slow}
			if i < n-audit.Certify(n) {
				v.Product, v.Walk = rapid.Uint64().Draw(t, "product"), rapid.Uint64().Draw(t, "walk")
			}
			r.Verdicts = append(r.Verdicts, audit.Signed{Verdict: v})
		}
		if product, _ := floor.Deadlines(shape, walk); product > 1_050_000 {
			t.Fatalf("%d µs", product)
		}
		if err := r.CheckClass(class, res); err == nil {
			t.Fatal("a slow unit passes")
		}
		for i := n - audit.Certify(n); i < n; i++ {
			r.Verdicts[i].Product = 700_000
		}
		if r.FailsClass(class, res) {
			t.Fatal("a third fails a good unit")
		}
	})
}

func TestCapacity(t *testing.T) {
	t.Parallel()
	if got := audit.Capacity(nil); got != (audit.Rates{}) {
		t.Errorf("%+v of nothing", got)
	}
	var last []audit.Rates
	for i := range uint64(audit.MaxRates) {
		last = append(last, audit.Rates{Operations: 100 + i, Reads: 200 - i, Memory: 50 + i%3})
	}
	if got, want := audit.Capacity(last), (audit.Rates{Operations: 102, Reads: 179, Memory: 50}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := audit.Capacity(last[:1]); got != last[0] {
		t.Errorf("%+v of one", got)
	}
}

func run(reports ...audit.Report) audit.Standing {
	var s audit.Standing
	for _, r := range reports {
		s = s.Step(r)
	}
	return s
}

func TestStanding(t *testing.T) {
	t.Parallel()
	pass, fail := audit.Report{Result: audit.Passed}, audit.Report{Result: audit.Failed}
	absent, undecided := audit.Report{Result: audit.Absent}, audit.Report{Result: audit.Undecided}
	broken := audit.Report{Result: audit.Passed, Broken: 1}
	for name, c := range map[string]struct {
		reports []audit.Report
		want    audit.State
	}{
		"nothing":                        {nil, audit.Unproven},
		"absent from the start":          {[]audit.Report{absent, absent}, audit.Unproven},
		"passed":                         {[]audit.Report{pass}, audit.Listed},
		"absent since":                   {[]audit.Report{pass, absent}, audit.Suspended},
		"failed and lost one appeal":     {[]audit.Report{pass, fail, fail}, audit.Suspended},
		"won the second":                 {[]audit.Report{pass, fail, fail, pass}, audit.Listed},
		"lost both":                      {[]audit.Report{fail, fail, fail}, audit.Delisted},
		"lost both with absence between": {[]audit.Report{fail, absent, undecided, fail, fail}, audit.Delisted},
		"delisted for good":              {[]audit.Report{fail, fail, fail, pass}, audit.Delisted},
		"failed every third window": {[]audit.Report{fail, pass, pass, fail, pass, pass, fail, pass, pass, fail,
			pass, pass, fail}, audit.Suspended}, "six of twenty-four": {[]audit.Report{fail, pass, fail, pass, fail,
			pass, fail, pass, fail, pass, fail}, audit.Delisted},
		"broke off twice":        {[]audit.Report{broken, broken}, audit.Listed},
		"broke off a third time": {[]audit.Report{broken, broken, broken}, audit.Delisted},
		"liars decide nothing": {[]audit.Report{pass, undecided, undecided, undecided, undecided},
			audit.Suspended}, "broke off thrice in one window": {[]audit.Report{{Result: audit.Failed, Broken: 3}},
			audit.Delisted},
	} {
		if got := run(c.reports...).State; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if s := run(pass, fail); s.CommitteeSize() != audit.Appeal || run(pass).CommitteeSize() != audit.Committee {
		t.Error("appeals are before other committees")
	}
	// What is older than MaxRates windows is forgotten.
	var s audit.Standing
	for range 200 {
		s = s.Step(broken)
		for range audit.MaxRates/2 - 1 {
			s = s.Step(pass)
		}
	}
	if s.State != audit.Listed {
		t.Errorf("twice in each %d windows: %s", audit.MaxRates, s.State)
	}
}

// Absence and what members disagree about never delist anybody, in whatever order.
func TestOnlyFailuresDelist(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var s audit.Standing
		results := rapid.SliceOfN(rapid.SampledFrom([]audit.Result{audit.Passed, audit.Absent, audit.Undecided}), 0,
			100).Draw(t, "results")
		for _, r := range results {
			s = s.Step(audit.Report{Result: r})
			if s.State == audit.Delisted {
				t.Fatal("delisted")
			}
			if r == audit.Passed && s.State != audit.Listed {
				t.Fatalf("passed and %s", s.State)
			}
		}
	})
}
