package bench

import (
	"bytes"
	"maps"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/node/buyer/record"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{7}, Spread{7, 7, 7, 7, 7, 7}},
		{[]float64{3, 1, 2}, Spread{1, 2, 2, 3, 3, 3}},
		{hundred, Spread{1, 50.5, 50, 90, 99, 100}},
	} {
		if got := SpreadOf(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
	}
}

func TestSpreadIsOrdered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0, 1e6), 1, 300).Draw(t, "values")
		s := SpreadOf(v)
		in := func(x float64) bool {
			for _, y := range v {
				if x == y {
					return true
				}
			}
			return false
		}
		if !(s.Min <= s.P50 && s.P50 <= s.P90 && s.P90 <= s.P99 && s.P99 <= s.Max) || !in(s.P50) || !in(s.P90) || !in(s.P99) {
			t.Fatalf("%+v", s)
		}
		above := 0
		for _, x := range v {
			if x > s.P99 {
				above++
			}
		}
		if float64(above) > 0.01*float64(len(v))+1e-9 {
			t.Fatalf("%d of %d are above the 99th percentile", above, len(v))
		}
	})
}

func TestTimesOfATrace(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	steps := []record.Step{
		{Kind: record.StepOrdered, At: at(2)}, {Kind: record.StepAsked, At: at(3)},
		{Kind: record.StepQuoted, At: at(7)}, {Kind: record.StepQuoted, At: at(9)},
		{Kind: record.StepChosen, At: at(30)}, {Kind: record.StepChosen, At: at(30)},
		{Kind: record.StepHeld, At: at(34)}, {Kind: record.StepHeld, At: at(36)},
		{Kind: record.StepSigned, At: at(38)}, {Kind: record.StepSigned, At: at(39)},
		{Kind: record.StepLeased, At: at(45), Took: 45 * time.Millisecond},
		{Kind: record.StepStarted, At: at(60)},
	}
	got, err := timesOf(steps)
	ms := time.Millisecond
	want := orderTimes{leases: 2, total: 45 * ms, publish: 2 * ms, quote: 5 * ms, choose: 23 * ms, hold: 6 * ms, sign: 3 * ms, fund: 6 * ms}
	if err != nil || got != want {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
	for i := range steps[:11] {
		if k := steps[i].Kind; k == record.StepAsked || i+1 < len(steps) && steps[i+1].Kind == k || i > 0 && steps[i-1].Kind == k {
			continue
		}
		if _, err := timesOf(append(append([]record.Step{}, steps[:i]...), steps[i+1:]...)); err == nil {
			t.Errorf("a trace without %s is taken", steps[i].Kind)
		}
	}
	if _, err := timesOf(append(steps, record.Step{Kind: record.StepRefused})); err == nil {
		t.Error("an order that a provider refused is taken")
	}
	r := routeReport([]orderTimes{got, got})
	if r.Orders != 2 || r.Leases != 2 || r.ToLease.P50 != 45 || r.Signed.P50 != 39 || r.Choose.Max != 23 || len(r.All) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestParseBenchmarks(t *testing.T) {
	t.Parallel()
	got, err := parseBenchmarks([]byte(`goos: linux
pkg: example.com/verify
BenchmarkCheckChain            	      63	  18290354 ns/op	     13996 receipts/s	     352 B/op	       1 allocs/op
BenchmarkMatch100k/nothing-fits-16  	     651	   1894340 ns/op
BenchmarkStarted
PASS
ok  	example.com/verify	3.558s
`))
	want := map[string]map[string]float64{
		"BenchmarkCheckChain":             {"ns/op": 18290354, "receipts/s": 13996, "B/op": 352, "allocs/op": 1},
		"BenchmarkMatch100k/nothing-fits": {"ns/op": 1894340},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v, want %v", got, err, want)
	}
	if _, err := parseBenchmarks([]byte("BenchmarkX 1 fast ns/op\n")); err == nil {
		t.Error("a figure that is none is taken")
	}
}

func TestParseSimulated(t *testing.T) {
	t.Parallel()
	got, err := parseSimulated([]byte(`=== RUN   TestX/gossip/RTT=2ms
=== ATTR  TestX/gossip/RTT=2ms orders 100
=== ATTR  TestX/gossip/RTT=2ms p50_ms 28.01
=== ATTR  TestX/gossip/RTT=2ms p99_ms 29
=== CONT  TestX/direct/RTT=50ms
=== ATTR  TestX/direct/RTT=50ms orders 10
=== ATTR  TestX/direct/RTT=50ms p50_ms 220
=== ATTR  TestX/direct/RTT=50ms p99_ms 221
=== ATTR  TestOther/direct p50_ms 1
--- PASS: TestX (0.00s)
`), "TestX")
	want := []Simulated{{"direct, RTT 50ms", 10, 220, 221}, {"gossip, RTT 2ms", 100, 28.01, 29}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "=== ATTR  TestX/a p50_ms soon\n"} {
		if _, err := parseSimulated([]byte(bad), "TestX"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestParseUsage(t *testing.T) {
	t.Parallel()
	stat := []byte("77 (a ) odd (name) S 1 77 77 0 -1 4194560 1 2 3 4 150 50 9 9 20 0 8 0 100 1 2\n")
	u, err := parseUsage(stat, []byte("Name:\tx\nVmRSS:\t   70972 kB\nRssAnon:\t   32028 kB\nThreads:\t9\n"))
	want := usage{cpu: 2 * time.Second, rss: 70972 << 10, anon: 32028 << 10, threads: 9}
	if err != nil || u != want {
		t.Fatalf("%+v, %v, want %+v", u, err, want)
	}
	for _, bad := range [][2]string{{"77 (x) S 1", "VmRSS: 1 kB\n"}, {string(stat), "Name: x\n"}, {"", ""}, {"7 (x) S 1 2 3 4 5 6 7 8 9 10 x 5\n", "VmRSS: 1 kB\n"}} {
		if _, err := parseUsage([]byte(bad[0]), []byte(bad[1])); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	later := u
	later.cpu += 300 * time.Millisecond
	r := idleReport([]usage{u, u}, []usage{u, later}, 30*time.Second)
	if r.Peers != 2 || r.CPUPercent.Min != 0 || math.Abs(r.CPUPercent.Max-1) > 1e-9 || math.Abs(r.RSS.P50-72.675328) > 1e-9 {
		t.Errorf("%+v", r)
	}
	if _, err := usageOf(os.Getpid()); err != nil {
		t.Error(err)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	r := &Report{
		Direct:   RouteReport{Orders: 1, ToLease: Spread{P50: 40}, Signed: Spread{P50: 40, P99: 200}},
		Gossip:   RouteReport{Orders: 1, ToLease: Spread{P50: 20}, Signed: Spread{P99: 1001}},
		Cores:    []CoreResult{{What: "checked", Measured: 9_999, Limit: 10_000, AtLeast: true}, {What: "matched", Measured: 10, Limit: 10}, {What: "told", Measured: 5}},
		Idle:     IdleReport{Peers: 1, RSS: Spread{Max: 79}, CPUPercent: Spread{Max: 1.5}},
		Chain:    ChainReport{Leases: 1, Recovered: 1},
		Clusters: []ClusterReport{{Engine: "ray", Members: 8, Overhead: 3000}, {Engine: "ray", Members: 8, Overhead: 3010}},
	}
	if missed := r.judge(); missed != 4 {
		t.Errorf("%d targets are missed, want 4", missed)
	}
	if r.Ratios["gossip_p50_over_direct_p50"] != 0.5 {
		t.Errorf("ratios %v", r.Ratios)
	}
	if missed := new(Report).judge(); missed != 0 {
		t.Errorf("%d targets are missed where nothing was measured", missed)
	}
	var b bytes.Buffer
	r.print(&b)
	if text := b.String(); strings.Count(text, "FAIL") != 4 || strings.Count(text, "PASS") != 7 {
		t.Errorf("the table:\n%s", text)
	}
}

// What was not measured is not in the table: it would pass.
func TestJudgeOnly(t *testing.T) {
	t.Parallel()
	r := &Report{Clusters: []ClusterReport{{Engine: "ray", Members: 8, Overhead: 3001}}}
	if missed := r.judge(); missed != 1 || len(r.Targets) != 4 {
		t.Errorf("%d missed of %+v", missed, r.Targets)
	}
}

// What the benchmark of clusters prints is read as it was measured.
func TestClusterReport(t *testing.T) {
	t.Parallel()
	a, b, c := SpreadOf([]float64{31_000, 30_500, 40_000}), SpreadOf([]float64{29_000}), SpreadOf([]float64{2_000})
	figures := map[string]float64{"members": 8}
	for of, s := range map[string]Spread{"submitted": a, "bare": b, "running": c} {
		maps.Copy(figures, s.Figures(of))
	}
	r, err := clusterReport(figures)
	if err != nil || r.Members != 8 || r.Submitted != a || r.Bare != b || r.Running != c || r.Overhead != 2000 {
		t.Errorf("%+v, %v", r, err)
	}
	delete(figures, "bare-p50-ms")
	if _, err := clusterReport(figures); err == nil {
		t.Error("nothing to compare with is taken for a start without time")
	}
}

// What the benchmark of containers prints is read as it was measured, and a skip with its reason.
func TestContainerStartReport(t *testing.T) {
	t.Parallel()
	a, b := SpreadOf([]float64{260, 271, 300}), SpreadOf([]float64{250, 255, 290})
	figures := a.Figures("submitted")
	for k, v := range b.Figures("bare") {
		figures[k] = v
	}
	r, err := startReport("docker", figures)
	if err != nil || r.Submitted != a || r.Bare != b || r.Overhead != 16 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := startReport("docker", nil); err == nil {
		t.Error("no figures are taken for some")
	}
	why, ok := skipped([]byte("BenchmarkStart\n    bench_test.go:28: no container engine: it needs root\n--- SKIP: BenchmarkStart\nPASS\n"), "BenchmarkStart")
	if !ok || why != "no container engine: it needs root" {
		t.Errorf("%q, %v", why, ok)
	}
}
