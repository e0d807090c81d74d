package replica

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TestScripts runs the checks in testdata/script. Commands, each with now=SLOT:
//
//	new by= result= [valid= unsigned]   a result is committed
//	beacon slot= n=                                    a block
//	replica by= result= [attempt= unsigned]            the replica that was asked for last, if not said otherwise
//	failed [by= attempt=] reason=
//	tick
//	restart                                            from the journal
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		var c Check
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var at, slot, valid uint64
			var by, res, reason string
			var n int
			attempt := int(c.Attempt())
			d.ScanArgs(t, "now", &at)
			for name, to := range map[string]any{"slot": &slot, "valid": &valid, "by": &by, "result": &res,
				"reason": &reason, "n": &n, "attempt": &attempt} {
				d.MaybeScanArgs(t, name, to)
			}
			now := market.Slot(at)
			var fx []Effect
			var err error
			step := func(e Event) { c, fx, err = c.Step(now, e) }
			switch d.Cmd {
			case "new":
				c, fx, err = New(terms(uint32(valid)), committed(by, res, !d.HasArg("unsigned")), now)
			case "beacon":
				step(BeaconSeen{block(market.Slot(slot), n)})
			case "replica":
				step(ReplicaCommitted{uint32(attempt), committed(by, res, !d.HasArg("unsigned"))})
			case "failed":
				e := ReplicaFailed{Attempt: uint32(attempt), Reason: reason}
				if by != "" {
					e.By = party(by)
				}
				step(e)
			case "tick":
				step(Ticked{})
			case "restart":
				b, e := c.Marshal()
				if e == nil {
					c, e = Restore(b)
				}
				if e != nil {
					t.Fatal(e)
				}
				fx = c.Resume()
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return describe(c, fx, err)
		})
	})
}

func describe(c Check, fx []Effect, err error) string {
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "error: %v\n", err)
	}
	for _, f := range fx {
		switch f := f.(type) {
		case Persist:
			fmt.Fprintf(&b, "persist\n")
		case AskBeacon:
			fmt.Fprintf(&b, "ask for the block of slot %d\n", f.From)
		case Replicate:
			fmt.Fprintf(&b, "replica %d, not by %d parties\n", f.Attempt, len(f.Not))
		case Ended:
			fmt.Fprintf(&b, "ended: %s, of %d results %d is right, wrong %v %s\n", f.Verdict.State, len(f.Verdict.Results), f.Verdict.Right, f.Verdict.Wrong, f.Verdict.Reason)
		}
	}
	fmt.Fprintf(&b, "%s, odds %d, until %d\n", c.State(), c.s.Odds, c.Wake())
	return b.String()
}

// Whatever happens in whatever order: nobody is blamed but by a majority of results that differ from its own, of at least two
// others; no owner has two results; the check ends; its journal gives the same machine.
func TestCheckProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := market.Slot(1000)
		first := committed("a", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "first"), rapid.Bool().Draw(t, "signed"))
		c, _, err := New(terms(rapid.Uint32Range(0, 2*MaxTrust).Draw(t, "valid")), first, now)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{"a", "a2", "b", "b2", "c", "d", "e", "f", "g", "z"}
		for !c.State().Ended() {
			var e Event
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				e = BeaconSeen{block(market.Slot(rapid.Uint64Range(1000, 1010).Draw(t, "slot")), rapid.IntRange(0, 99).Draw(t, "n"))}
			case 1:
				e = ReplicaCommitted{rapid.Uint32Range(0, 14).Draw(t, "attempt"), committed(rapid.SampledFrom(names).Draw(t, "by"),
					rapid.SampledFrom([]string{"x", "y", "w"}).Draw(t, "result"), rapid.Bool().Draw(t, "signed"))}
			case 2:
				e = ReplicaFailed{c.Attempt(), party(rapid.SampledFrom(names).Draw(t, "by")), rapid.String().Draw(t, "why")}
			default:
				e = Ticked{}
			}
			now += market.Slot(rapid.Uint64Range(0, 60).Draw(t, "passed"))
			next, fx, err := c.Step(now, e)
			if err != nil && (!errors.Is(err, ErrEvent) || len(fx) > 0 || !reflect.DeepEqual(next, c)) {
				t.Fatalf("%v, with %d effects", err, len(fx))
			}
			if len(fx) > 0 {
				p, ok := fx[0].(Persist)
				if !ok {
					t.Fatal("an effect before the journal")
				}
				again, err := Restore(p.State)
				if err != nil || !reflect.DeepEqual(again, next) {
					t.Fatalf("the journal gives another machine: %v\n%s", err, p.State)
				}
			}
			c = next
		}
		sound(t, c.Verdict())
		after, fx, err := c.Step(now, Ticked{})
		if err != nil || len(fx) > 0 || !reflect.DeepEqual(after, c) {
			t.Fatal("it went on after its end")
		}
	})
}

// sound holds a verdict to what must never happen.
func sound(t *rapid.T, v Verdict) {
	owners := map[sign.Key]bool{party("z").Owner: true}
	for i, r := range v.Results {
		if owners[r.Owner] || i > 0 && !r.Signed {
			t.Fatalf("result %d counts twice, or is nobody's", i)
		}
		owners[r.Owner] = true
	}
	agree := 0
	if v.Right >= 0 {
		for _, r := range v.Results {
			if r.Output == v.Results[v.Right].Output {
				agree++
			}
		}
	}
	for _, w := range v.Wrong {
		if v.State != Differs || agree < 2 || 2*agree <= len(v.Results) || v.Results[w].Output == v.Results[v.Right].Output {
			t.Fatalf("%d is blamed in %+v", w, v)
		}
	}
	if v.State == Equal && (agree != len(v.Results) || agree < 2) || v.State == Differs && len(v.Wrong) == 0 {
		t.Fatalf("%+v", v)
	}
}

// However many fail or say nothing, a check ends after so many attempts and so much time.
func TestEnds(t *testing.T) {
	t.Parallel()
	c, _, err := New(terms(0), committed("a", "x", true), 10)
	if err == nil {
		c, _, err = c.Step(20, BeaconSeen{block(14, 0)})
	}
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for !c.State().Ended() {
		if c, _, err = c.Step(c.Wake(), Ticked{}); err != nil {
			t.Fatal(err)
		}
		if asked++; asked > MaxAttempts {
			t.Fatal("it goes on for ever")
		}
	}
	if c.State() != Unverified || len(c.Verdict().Wrong) > 0 {
		t.Errorf("%+v", c.Verdict())
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	var all []Candidate
	for i := range 26 {
		p := party(string(rune('a' + i)))
		all = append(all, Candidate{p.Provider, p.Owner, i%2 == 0})
	}
	// One owner with many keys does not get more lots.
	crowd := party("a")
	for i := range 50 {
		all = append(all, Candidate{sign.Key(sign.Sum(fmt.Appendf(nil, "%d", i))), crowd.Owner, true})
	}
	not := []Party{party("z"), party("b")}
	first := map[sign.Key]int{}
	const draws = 2600
	for i := range draws {
		got := Pick(sign.Sum(fmt.Appendf(nil, "seed %d", i)), 1, all, not)
		if len(got) != len(all)-2 {
			t.Fatalf("%d of %d", len(got), len(all))
		}
		at := slices.IndexFunc(all, func(c Candidate) bool { return c.Provider == got[0] })
		if !all[at].Staked {
			t.Fatal("one without stake before those with")
		}
		first[all[at].Owner]++
	}
	if n := first[crowd.Owner]; n > draws/13*2 || n == 0 { // 13 owners with stake, one lot each
		t.Errorf("an owner with 51 keys is first %d times of %d", n, draws)
	}
	if a, b := Pick(sign.Hash{1}, 1, all, nil), Pick(sign.Hash{1}, 2, all, nil); slices.Equal(a, b) {
		t.Error("the second replica is drawn as the first")
	}
	slices.Reverse(all)
	if a := Pick(sign.Hash{1}, 1, all, not); !slices.Equal(a, Pick(sign.Hash{1}, 1, append(all[:1:1], all...), not)) {
		t.Error("the order of the candidates, or one twice, changes the draw")
	}
}

// A block that may have been known at the commitment decides nothing, and terms that make no sense are refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	c, _, err := New(terms(0), committed("a", "x", true), 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Step(20, BeaconSeen{block(13, 0)}); !errors.Is(err, ErrEvent) {
		t.Error(err)
	}
	if _, _, err := New(terms(0), committed("z2", "x", true), 10); !errors.Is(err, ErrTerms) {
		t.Errorf("the buyer's own provider: %v", err)
	}
	for name, change := range map[string]func(*Params){
		"adaptive": func(p *Params) { p.AdaptiveAfter = 0 }, "delay": func(p *Params) { p.DelaySlots = 0 },
		"patience": func(p *Params) { p.PatienceSlots = 1 << 50 },
	} {
		x := terms(0)
		change(&x.Params)
		if _, _, err := New(x, committed("a", "x", true), 10); !errors.Is(err, ErrTerms) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
