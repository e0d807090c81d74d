package exclusive_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/challenge"
	"github.com/starling-network/starling/verify/exclusive"
	"pgregory.net/rapid"
)

// TestDraw: the drawn leaves lie in the product, ascend, and depend on the answer and on the nonce that came after it.
func TestDraw(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := exclusive.Fit(exclusive.Kind(rapid.IntRange(0, 1).Draw(t, "kind")), rapid.Uint64().Draw(t, "rate"))
		a := exclusive.Answer{Seed: sign.Sum(rapid.SliceOf(rapid.Byte()).Draw(t, "seed")), Root: sign.Hash{1}}
		nonce := exclusive.Nonce(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "nonce"))
		leaves, pick := exclusive.Draw(a, nonce, s)
		if len(leaves) != exclusive.Openings {
			t.Fatalf("%d leaves", len(leaves))
		}
		for i, leaf := range leaves {
			if uint64(leaf) >= uint64(s.Leaves()) || i > 0 && leaves[i-1] >= leaf {
				t.Fatalf("leaves %v of %d", leaves, s.Leaves())
			}
		}
		for i := range 4 * exclusive.Openings {
			if p := pick(i); p < 0 || p >= challenge.LeafWords {
				t.Fatalf("value %d of a leaf of %d", p, challenge.LeafWords)
			}
		}
		other, later := a, nonce
		other.Root[31]++
		later[15]++
		for what, again := range map[string][]uint32{
			"another root": first(exclusive.Draw(other, nonce, s)), "another nonce": first(exclusive.Draw(a, later, s)),
		} {
			if slices.Equal(again, leaves) {
				t.Fatalf("%s draws the same leaves", what)
			}
		}
	})
}

func first[A, B any](a A, _ B) A { return a }

// TestOpeningsOfAnotherDraw: a provider cannot answer with openings that it chose itself.
func TestOpeningsOfAnotherDraw(t *testing.T) {
	t.Parallel()
	r := probe(16)
	if err := exclusive.CheckOpened(r.Question, r.Answer(), r.Draw, r.Openings); err != nil {
		t.Fatal(err)
	}
	later := r.Draw
	later[0]++
	other := r.Answer()
	other.Root[0]++
	next := question(2)
	for what, err := range map[string]error{
		"another draw": exclusive.CheckOpened(r.Question, r.Answer(), later, r.Openings),
		"another root": exclusive.CheckOpened(r.Question, other, r.Draw, r.Openings),
		"another question": exclusive.CheckOpened(next, exclusive.Answer{Seed: next.Seed(), Root: r.Root}, r.Draw,
			r.Openings), "cut off": exclusive.CheckOpened(r.Question, r.Answer(), r.Draw,
			r.Openings[:len(r.Openings)-1]), "a byte more": exclusive.CheckOpened(r.Question, r.Answer(), r.Draw,
			append(slices.Clone(r.Openings), 0)), "none": exclusive.CheckOpened(r.Question, r.Answer(), r.Draw, nil),
	} {
		if !exclusive.Wrong(err) || !errors.Is(err, exclusive.ErrWrong) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if exclusive.Wrong(nil) || exclusive.Wrong(exclusive.ErrRecord) {
		t.Error("a record that shows nothing counts as a wrong answer")
	}
}

// TestRate: the rate is operations over the time without the round trip, and stays defined at every edge.
func TestRate(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		operations    uint64
		elapsed, trip time.Duration
		want          uint64
	}{
		{1000, s, 0, 1000},
		{1000, s, s / 2, 2000},
		{1000, s, -s, 1000},                       // a round trip below 0 takes nothing off
		{1000, s, s, 1_000_000_000},               // nothing is left: a microsecond is assumed
		{1000, s, 2 * s, 1_000_000_000},           // the trip was slower than the answer
		{1000, -s, 0, 1_000_000_000},              // a clock went back
		{0, s, 0, 0},                              // nothing was computed
		{math.MaxUint64, 0, 0, math.MaxUint64},    // saturates
		{math.MaxUint64, s, 0, math.MaxUint64},    //
		{math.MaxUint64, 2 * s, 0, 1<<63 - 1},     //
		{7, math.MaxInt64, math.MinInt64 + 1, 0},  // 292 years
		{3_000_000_000, 3 * s, 0, 1_000_000_000},  //
		{1, time.Nanosecond, 0, 1_000_000},        // no answer takes less than a microsecond
		{1_000_000, time.Millisecond, 0, 1 * 1e9}, //
	} {
		o := exclusive.Observation{Operations: c.operations, Elapsed: c.elapsed, Trip: c.trip}
		if got := o.Rate(); got != c.want {
			t.Errorf("%d operations in %v, %v of them the network: %d a second, want %d",
				c.operations, c.elapsed, c.trip, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		shape := exclusive.Fit(exclusive.GPU, rapid.Uint64().Draw(t, "rate"))
		elapsed := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "elapsed"))
		trip := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "trip"))
		rate := exclusive.Observe(shape, elapsed, trip).Rate()
		if slower := exclusive.Observe(shape, elapsed+time.Millisecond, trip).Rate(); slower > rate {
			t.Fatalf("%d a second, and %d if it takes longer", rate, slower)
		}
		if farther := exclusive.Observe(shape, elapsed, trip+time.Millisecond).Rate(); farther < rate {
			t.Fatalf("%d a second, and %d over a longer way", rate, farther)
		}
	})
}

// run plays one probe for each time and returns the verdicts' initials: learning, fine, slow, contended.
func run(w exclusive.Watch, ms ...int) (exclusive.Watch, string) {
	var said strings.Builder
	for _, m := range ms {
		var v exclusive.Verdict
		w, v = w.See(exclusive.Observation{Operations: 1_000_000, Elapsed: time.Duration(m) * time.Millisecond})
		said.WriteByte(v.String()[0])
	}
	return w, said.String()
}

func TestWatchScenarios(t *testing.T) {
	t.Parallel()
	proven := exclusive.Watch{Proven: 1_000_000_000} // a million operations in 1 ms
	for _, c := range []struct {
		name  string
		watch exclusive.Watch
		ms    []int // of each probe
		want  string
		text  string
	}{
		{"no probe", exclusive.Watch{}, nil, "", ""},
		{"one", exclusive.Watch{}, []int{20}, "l", "1 probe, too few to compare"},
		{"two", exclusive.Watch{}, []int{20, 20}, "ll", "2 probes, too few to compare"},
		{"the first that is judged", exclusive.Watch{}, []int{20, 20, 20, 20}, "lllf",
			"4 probes, slowest 1.00 of the fastest"},
		{"slow once", exclusive.Watch{}, []int{20, 20, 20, 40}, "llls",
			"4 probes, slowest 0.50 of the fastest; the last was slow"},
		{"slow, and well again", exclusive.Watch{}, []int{20, 20, 20, 40, 20, 40, 20}, "lllsfsf",
			"7 probes, slowest 0.50 of the fastest"},
		{"shared from the beginning on", exclusive.Watch{}, []int{40, 40, 40, 40, 40, 40}, "lllfff",
			"6 probes, slowest 1.00 of the fastest"},
		{"shared later", exclusive.Watch{}, []int{20, 20, 20, 20, 20, 40, 40, 40}, "lllffscc",
			"8 probes, slowest 0.50 of the fastest; " +
				"contended 2 times: two in a row at three fifths of the speed or less"},
		{"slow while it learns", exclusive.Watch{}, []int{20, 90, 20, 90, 90}, "lllsc",
			"5 probes, slowest 0.22 of the fastest; " +
				"contended 1 times: two in a row at three fifths of the speed or less"},
		{"a lucky measurement", exclusive.Watch{}, []int{20, 20, 20, 20, 20, 1, 20, 20}, "lllfffff",
			"8 probes, slowest 1.00 of the fastest"},
		{"three fifths", proven, []int{5, 5}, "sc", // 200 M a second of 1,000 M
			"2 probes, slowest 0.20 of proven; contended 1 times: two in a row at three fifths of the speed or less"},
		{"as proven", proven, []int{1, 1}, "ff", "2 probes, slowest 1.00 of proven"},
	} {
		w, said := run(c.watch, c.ms...)
		if said != c.want || w.Text() != c.text {
			t.Errorf("%s: %s, %q, want %s, %q", c.name, said, w.Text(), c.want, c.text)
		}
	}
}

// TestThreeFifths: the border is exact for every proven speed: at three fifths, rounded down, a probe is slow, and with
// one operation a second more it is not.
func TestThreeFifths(t *testing.T) {
	t.Parallel()
	see := func(proven, rate uint64) exclusive.Verdict {
		_, v := exclusive.Watch{Proven: proven}.See(exclusive.Observation{Operations: rate, Elapsed: time.Second})
		return v
	}
	rapid.Check(t, func(t *rapid.T) {
		proven := rapid.Uint64Min(1).Draw(t, "proven")
		border := new(big.Int).Mul(new(big.Int).SetUint64(proven), big.NewInt(3))
		border.Div(border, big.NewInt(5))
		if v := see(proven, border.Uint64()); v != exclusive.Slow {
			t.Fatalf("%d of %d a second: %s", border, proven, v)
		}
		if v := see(proven, border.Uint64()+1); v != exclusive.Fine {
			t.Fatalf("one more than %d of %d a second: %s", border, proven, v)
		}
	})
}

// TestKnownAndLast: the size of the next probe follows from what was seen, before there is a speed to compare with.
func TestKnownAndLast(t *testing.T) {
	t.Parallel()
	var w exclusive.Watch
	if w.Known() != 0 || w.Last() != 0 {
		t.Errorf("of nothing, %d and %d are known", w.Known(), w.Last())
	}
	w, _ = run(w, 20, 10)
	if w.Known() != 0 || w.Last() != 100_000_000 {
		t.Errorf("after two, %d is known, and the next is sized for %d", w.Known(), w.Last())
	}
	if w, _ = run(w, 40); w.Known() != 50_000_000 || w.Last() != w.Known() {
		t.Errorf("after three, %d is known, and the next is sized for %d", w.Known(), w.Last())
	}
	if w.Proven = 7; w.Known() != 7 || w.Last() != 7 {
		t.Errorf("%d is known beside a proven speed of 7", w.Known())
	}
	before := slices.Clone(w.Fastest)
	if _, _ = run(w, 1, 1, 1); !slices.Equal(w.Fastest, before) {
		t.Error("a step changes the value that it was taken from")
	}
}

// TestBudgetEdges: nothing is allowed on a budget that is spent, overdrawn, or of no lease.
func TestBudgetEdges(t *testing.T) {
	t.Parallel()
	hour := exclusive.Budget{Lease: time.Hour} // 3.6 s of probes
	for _, c := range []struct {
		budget exclusive.Budget
		cost   time.Duration
		want   bool
	}{
		{hour, 0, true}, {hour, 3600 * time.Millisecond, true}, {hour, 3600*time.Millisecond + 1, false},
		{hour, -1, false}, {hour, math.MaxInt64, false},
		{exclusive.Budget{Lease: time.Hour, Spent: 3600 * time.Millisecond}, 0, true},
		{exclusive.Budget{Lease: time.Hour, Spent: 3600 * time.Millisecond}, 1, false},
		{exclusive.Budget{Lease: time.Hour, Spent: 3600*time.Millisecond + 1}, 0, false},
		{exclusive.Budget{Lease: time.Hour, Spent: -1}, 1, false},
		{exclusive.Budget{}, 1, false}, {exclusive.Budget{Lease: -time.Hour}, 0, false},
	} {
		if got := c.budget.Allows(c.cost); got != c.want {
			t.Errorf("%v from %+v: %v", c.cost, c.budget, got)
		}
	}
	for _, random := range []uint64{0, 1, math.MaxUint64} {
		for _, cost := range []time.Duration{math.MinInt64, 0, math.MaxInt64} {
			if gap := hour.Gap(cost, false, random); gap < 0 {
				t.Errorf("cost %v, random %d: a gap of %v", cost, random, gap)
			}
		}
	}
}

// TestChangesOfDevices: each rule of a device's counters, and which changes are faults of the hardware.
func TestChangesOfDevices(t *testing.T) {
	t.Parallel()
	all := exclusive.TellsECC | exclusive.TellsXid
	type d = exclusive.Device
	for what, c := range map[string]struct {
		before, after d
		want          []string // faults with a '!' before the text
	}{
		"nothing":                 {d{Tells: all}, d{Tells: all}, nil},
		"nothing was told before": {d{}, d{Tells: all, Uncorrectable: 9, Xids: 9, LastXid: 79, FaultXid: 79}, nil},
		"both kinds of memory errors": {d{Tells: all, Correctable: 1, Uncorrectable: 1},
			d{Tells: all, Correctable: 4, Uncorrectable: 2},
			[]string{"!1 uncorrectable memory errors", "3 correctable memory errors"}},
		"one counter went back": {d{Tells: all, Correctable: 5}, d{Tells: all, Uncorrectable: 7},
			[]string{"memory error counters reset: driver reloaded"}},
		"the peer was started again": {d{Tells: all, Xids: 5, LastXid: 13}, d{Tells: all, Xids: 2, LastXid: 13},
			[]string{"Xid error counters reset: peer restarted"}},
		"a fault that was there before": {d{Tells: all, Xids: 1, LastXid: 79, FaultXid: 79},
			d{Tells: all, Xids: 1, LastXid: 79, FaultXid: 79}, nil},
		"an old fault, and a program's error": {d{Tells: all, Xids: 1, LastXid: 79, FaultXid: 79},
			d{Tells: all, Xids: 2, LastXid: 13, FaultXid: 79}, []string{"1 Xid errors, the last 13"}},
		"another fault": {d{Tells: all, Xids: 1, LastXid: 79, FaultXid: 79},
			d{Tells: all, Xids: 3, LastXid: 13, FaultXid: 48},
			[]string{"!2 Xid errors, of which 48 is a fault of the device"}},
		"the same fault again": {d{Tells: all, Xids: 1, LastXid: 79, FaultXid: 79},
			d{Tells: all, Xids: 2, LastXid: 79, FaultXid: 79},
			[]string{"!1 Xid errors, of which 79 is a fault of the device"}},
		"no more ECC": {d{Tells: all}, d{Tells: exclusive.TellsXid},
			[]string{"driver no longer reports errors"}},
		"no more Xid": {d{Tells: all}, d{Tells: exclusive.TellsECC},
			[]string{"driver no longer reports errors"}},
		"no more temperature": {d{Tells: all | exclusive.TellsTemperature, TemperatureC: 40}, d{Tells: all}, nil},
		"hotter and slower": {d{Tells: exclusive.TellsTemperature | exclusive.TellsClock, TemperatureC: 40,
			ClockMHz: 1980}, d{Tells: exclusive.TellsTemperature | exclusive.TellsClock, TemperatureC: 90,
			ClockMHz: 900}, nil},
	} {
		one := func(d exclusive.Device) exclusive.Snapshot {
			d.Unit, d.UUID, d.Model = market.UnitID{1}, "GPU-1", "H100"
			return exclusive.Snapshot{Execution: 1, Devices: []exclusive.Device{d}}
		}
		before, after := one(c.before), one(c.after)
		if err := errors.Join(before.Check(), after.Check()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		var got []string
		for _, x := range exclusive.Changes(before, after) {
			text := x.Text
			if x.Fault {
				text = "!" + text
			}
			if x.Unit != (market.UnitID{1}) {
				t.Errorf("%s: of unit %s", what, x.Unit.Short())
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// TestChangesOfUnits: a lost unit is a fault, a new one is not, and the order is that of the units.
func TestChangesOfUnits(t *testing.T) {
	t.Parallel()
	of := func(units ...byte) exclusive.Snapshot {
		s := exclusive.Snapshot{Execution: 1}
		for _, u := range units {
			s.Devices = append(s.Devices, exclusive.Device{Unit: market.UnitID{u}, UUID: fmt.Sprint(u), Model: "M"})
		}
		return s
	}
	var got []string
	for _, c := range exclusive.Changes(of(1, 2, 4), of(2, 3, 5)) {
		got = append(got, fmt.Sprint(c.Unit[0], " ", c.Text, " ", c.Fault))
	}
	want := []string{"1 M is gone true", "4 M is gone true", "3 M was not present before false",
		"5 M was not present before false"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
