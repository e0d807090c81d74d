package replica

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/deterministic"
)

var rewriteVectors = flag.Bool("rewrite-vectors", false, "write testdata/dissent.json anew")

func dissent(results ...string) Dissent {
	e := Dissent{Work: work()}
	for i, r := range results {
		e.Results = append(e.Results, signed(e.Work, string(rune('a'+i)), result(r)))
	}
	slices.SortFunc(e.Results, func(x, y Signed) int { return bytes.Compare(x.Receipt.Lease[:], y.Receipt.Lease[:]) })
	return e
}

func TestDissent(t *testing.T) {
	t.Parallel()
	e := dissent("forged", "x", "x")
	if err := CheckDissent(domain, e); err != nil {
		t.Fatal(err)
	}
	right, wrong := e.Majority()
	if right < 0 || len(wrong) != 1 || e.Results[wrong[0]].Receipt.Provider != private("a").Key() {
		t.Errorf("%d is right, %v are wrong", right, wrong)
	}
	if got := e.Against(result("x")); !slices.Equal(got, wrong) {
		t.Errorf("run again, %v are wrong", got)
	}
	two := dissent("forged", "x")
	if right, _ := two.Majority(); right >= 0 || CheckDissent(domain, two) != nil {
		t.Error("of two that differ one is right by itself")
	}
}

// Every rule is broken once; the rule that is named is the one.
func TestDissentRefused(t *testing.T) {
	t.Parallel()
	again := func(s *Signed, by string) {
		p := private(by)
		s.Receipt.Provider = p.Key()
		s.Receipt.ProviderSig, _ = s.Receipt.ReceiptCore.Sign(domain, p)
		s.Receipt.BuyerSig, _ = s.Receipt.ReceiptCore.Sign(domain, private("buyer"))
	}
	for name, c := range map[string]struct {
		change func(*Dissent)
		rule   verify.Rule // empty: malformed
	}{
		"same":             {func(e *Dissent) { *e = dissent("x", "x", "x") }, RuleDissent},
		"one":              {func(e *Dissent) { e.Results = e.Results[:1] }, ""},
		"other work":       {func(e *Dissent) { e.Work.Args = []string{"-n", "4"} }, RuleOutput},
		"other program":    {func(e *Dissent) { e.Work.Program[0] ^= 1 }, RuleOutput},
		"other result":     {func(e *Dissent) { e.Results[0].Result.Trees[0][0] ^= 1 }, RuleOutput},
		"other exit":       {func(e *Dissent) { e.Results[0].Result.Exit = 1 }, RuleOutput},
		"not final":        {func(e *Dissent) { e.Results[1].Receipt.Flags = 0 }, RuleEnded},
		"provider's":       {func(e *Dissent) { e.Results[1].Receipt.ProviderSig[0] ^= 1 }, verify.RuleProvider},
		"buyer's":          {func(e *Dissent) { e.Results[2].Receipt.BuyerSig[0] ^= 1 }, verify.RuleBuyer},
		"one provider":     {func(e *Dissent) { again(&e.Results[0], "q"); again(&e.Results[1], "q") }, RuleApart},
		"order":            {func(e *Dissent) { slices.Reverse(e.Results) }, ""},
		"twice":            {func(e *Dissent) { e.Results[1] = e.Results[0] }, ""},
		"number of trees":  {func(e *Dissent) { e.Results[0].Result.Trees = append(e.Results[0].Result.Trees, sign.Hash{}) }, ""},
		"no seed":          {func(e *Dissent) { e.Work.Seed = 0 }, ""},
		"no limit":         {func(e *Dissent) { e.Work.MemoryMiB = 0 }, ""},
		"no output":        {func(e *Dissent) { e.Work.Outputs = nil }, ""},
		"path":             {func(e *Dissent) { e.Work.Outputs = []string{"/a/../b"} }, ""},
		"variables":        {func(e *Dissent) { slices.Reverse(e.Work.Env) }, ""},
		"too much of work": {func(e *Dissent) { e.Work.Args = []string{strings.Repeat("x", deterministic.MaxWork)} }, ""},
	} {
		e := dissent("forged", "x", "x")
		c.change(&e)
		err := CheckDissent(domain, e)
		rule, broken := errors.AsType[*verify.RuleError](err)
		if c.rule != "" && (!broken || rule.Rule != c.rule) || c.rule == "" && !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v, want rule %q", name, err, c.rule)
		}
	}
}

func drawWork(t *rapid.T) deterministic.Work {
	text := rapid.StringN(0, 20, 60)
	w := deterministic.Work{Seed: rapid.Uint64Min(1).Draw(t, "seed"), MemoryMiB: rapid.Uint32Min(1).Draw(t, "memory"), DiskMiB: rapid.Uint32Min(1).Draw(t, "disk"),
		Program: sign.Sum([]byte(text.Draw(t, "program"))), Args: rapid.SliceOfN(text, 0, 5).Draw(t, "args")}
	for _, k := range slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Z]{1,6}`), 0, 4, rapid.ID[string]).Draw(t, "env"))) {
		w.Env = append(w.Env, deterministic.Variable{Name: k, Value: text.Draw(t, "value")})
	}
	path := rapid.StringMatching(`(/[a-z]{1,5}){1,3}`)
	for range rapid.IntRange(0, 3).Draw(t, "inputs") {
		w.Inputs = append(w.Inputs, deterministic.Input{Path: path.Draw(t, "input"), Tree: rapid.Bool().Draw(t, "tree"), Content: sign.Sum([]byte(text.Draw(t, "content")))})
	}
	w.Outputs = rapid.SliceOfN(path, 1, 4).Draw(t, "outputs")
	return w
}

// What is written is read the same.
func TestDissentCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWork(t)
		e := Dissent{Work: w}
		for i := range rapid.IntRange(2, MaxResults).Draw(t, "results") {
			r := deterministic.Result{Exit: int32(i)}
			for range w.Outputs {
				r.Trees = append(r.Trees, sign.Hash{byte(i)})
			}
			e.Results = append(e.Results, signed(w, string(rune('a'+i)), r))
		}
		again, err := UnmarshalDissent(e.Marshal())
		if err != nil || !bytes.Equal(again.Marshal(), e.Marshal()) || len(e.Marshal()) > MaxDissent {
			t.Fatalf("%v", err)
		}
	})
}

// Vectors for other implementations: bytes in hexadecimal.
func TestVectors(t *testing.T) {
	t.Parallel()
	type vector struct {
		Name    string `json:"name"`
		Dissent string `json:"dissent"`
		Work    string `json:"workHash"`
		Output  string `json:"firstOutput"`
		Wrong   []int  `json:"wrong,omitempty"` // by majority
		Rule    string `json:"rule,omitempty"`  // that is broken
	}
	var want []vector
	for _, c := range []struct {
		name string
		e    Dissent
	}{{"majority", dissent("forged", "x", "x")}, {"two", dissent("forged", "x")}, {"three ways", dissent("1", "2", "3")}, {"the same", dissent("x", "x")}} {
		v := vector{Name: c.name, Dissent: hex.EncodeToString(c.e.Marshal()), Work: c.e.Work.Hash().String(), Output: c.e.Results[0].Receipt.Output.String()}
		_, v.Wrong = c.e.Majority()
		if rule, ok := errors.AsType[*verify.RuleError](CheckDissent(domain, c.e)); ok {
			v.Rule = string(rule.Rule)
		}
		want = append(want, v)
	}
	b, err := json.MarshalIndent(map[string]any{"network": domain.Network, "genesis": domain.Chain.String(), "vectors": want}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, '\n')
	const file = "testdata/dissent.json"
	if *rewriteVectors {
		if err := os.WriteFile(file, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, b) {
		t.Errorf("%s is not what this package writes: %v", file, err)
	}
}

func FuzzDissent(f *testing.F) {
	f.Add(dissent("forged", "x", "x").Marshal())
	f.Add(dissent("forged", "x").Marshal())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := UnmarshalDissent(b)
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if !bytes.Equal(e.Marshal(), b) {
			t.Fatal("another form of the same")
		}
		_ = CheckDissent(domain, e)
		_, _ = e.Majority()
	})
}

func FuzzState(f *testing.F) {
	c, fx, err := New(terms(3), committed("a", "x", true), 100)
	for i, e := range []Event{BeaconSeen{block(104, 1)}, ReplicaCommitted{1, committed("b", "y", true)}, ReplicaFailed{2, party("c"), "lost"},
		ReplicaCommitted{3, committed("d", "y", true)}} {
		if err != nil {
			f.Fatal(i, err)
		}
		f.Add(fx[0].(Persist).State)
		c, fx, err = c.Step(110, e)
	}
	f.Add(fx[0].(Persist).State)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Restore(b)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		once, err := c.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Restore(once)
		if err != nil {
			t.Fatalf("%v\n%s", err, once)
		}
		twice, err := again.Marshal()
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s\n%s\n%v", once, twice, err)
		}
		_ = c.Resume()
		for _, now := range []market.Slot{0, 150, 1 << 62, 1<<64 - 1} {
			for _, e := range []Event{Ticked{}, BeaconSeen{block(now, 1)}, ReplicaCommitted{c.Attempt(), committed("q", "x", true)}, ReplicaFailed{c.Attempt(), party("q"), "x"}} {
				next, _, err := c.Step(now, e)
				if b, e := next.Marshal(); e != nil || err == nil && len(b) > 2*MaxState {
					t.Fatal(e)
				}
				_ = next.Verdict()
			}
		}
	})
}
