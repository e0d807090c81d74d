package audit_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
	"pgregory.net/rapid"
)

var rewrite = flag.Bool("rewrite", false, "write the test vectors instead of checking them")

func make7(t testing.TB, change func(*audittest.Case)) audit.Record {
	t.Helper()
	c := audittest.New(9)
	if change != nil {
		change(&c)
	}
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantRule(t *testing.T, what string, err error, want audit.Rule) {
	t.Helper()
	var rule *audit.RuleError
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (!errors.As(err, &rule) || rule.Rule != want):
		t.Errorf("%s: %v, want rule %s", what, err, want)
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	wantRule(t, "an honest record", r.Check(audittest.Domain()), "")
	wantRule(t, "its members", r.CheckMembers(c.Roster), "")
	again, err := audit.UnmarshalRecord(r.Marshal())
	if err != nil || again.Hash() != r.Hash() {
		t.Fatal(err)
	}
	wantRule(t, "read again", again.Check(audittest.Domain()), "")
	if n := len(r.Verdicts); n != audit.Committee {
		t.Errorf("%d members", n)
	}
	want := audit.Rates{Operations: r.Answer.Shape.Operations() * 1_000_000 / 1_000_004,
		Reads: 256 * 1_000_000 / 250_004, Memory: 8192}
	if got := r.Rates(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if lies := audit.FindLie(r.Answer, r.Shown, r.ShownSig, r.Verdicts, r.Opened.Openings, true); lies != nil {
		t.Errorf("an honest provider lies: %v", lies)
	}
	// The greatest record there can be fits its bound.
	largest := 544 + audit.Appeal*(audit.VerdictSize+sign.SignatureSize) + 2 + challenge.Openings*132 + 2 +
		nodes(challenge.Openings, 29)*32 +
		2 + challenge.Ends*(5+8*challenge.Group) + 2 + nodes(challenge.Ends, 17)*32
	if largest > audit.MaxRecord {
		t.Errorf("a record may have %d bytes", largest)
	}
}

// nodes is the most nodes that a proof of k leaves of 2^depth has: they part at the top, as soon as they can.
func nodes(k, depth int) int {
	n := 0
	for level := range depth {
		width := 1 << (depth - level)    // nodes on this level
		n += min(k, width-min(k, width)) // each has a sibling that is not given, as far as there are so many
	}
	return n
}

func TestRecordRefused(t *testing.T) {
	t.Parallel()
	d := audittest.Domain()
	resign := func(r *audit.Record) {
		p := audittest.Key("provider")
		r.AnswerSig, _ = r.Answer.Sign(d, p)
		r.Shown = audit.Show(r.Answer, r.Opened.Openings)
		r.ShownSig, _ = r.Shown.Sign(d, p)
		members := audittest.New(9).Members
		for i := range r.Verdicts {
			v := &r.Verdicts[i]
			v.Answer, v.Openings = r.Shown.Answer, r.Shown.Openings
			v.Signature, _ = v.Sign(d, members[v.Member])
		}
	}
	for name, c := range map[string]struct {
		make   func(*audittest.Case)
		change func(*audit.Record)
		want   audit.Rule
	}{
		"a wrong value, opened as it is": {make: func(c *audittest.Case) {
			c.Tile = func(_ int, t *challenge.Tile) {
				for i := range t {
					t[i]++
				}
			}
		}, want: audit.RuleOpenings},
		"a wrong value, opened as it should be": {make: func(c *audittest.Case) {
			c.Opening = func(i int, o *challenge.Opening) { o.Values[0]++ }
		}, want: audit.RuleOpenings},
		"half of all walkers stayed at home": {make: func(c *audittest.Case) {
			c.End = func(i int, s *uint64) { *s ^= uint64(1) }
		}, want: audit.RuleWalk},
		"three members found it wrong": {make: func(c *audittest.Case) {
			n := 0
			c.Verdict = func(v *audit.Verdict) {
				if n++; n <= 3 {
					v.Outcome = audit.Wrong
				}
			}
		}, want: audit.RuleMajority},
		"two members found it late": {make: func(c *audittest.Case) {
			n := 0
			c.Verdict = func(v *audit.Verdict) {
				if n++; n <= 2 {
					v.Outcome = audit.Late
				}
			}
		}},
		"began in another window": {make: func(c *audittest.Case) {
			c.Verdict = func(v *audit.Verdict) { v.Slot = 800 }
		}, want: audit.RuleTime},
		"another member's verdict left out": {change: func(r *audit.Record) {
			r.Verdicts = r.Verdicts[1:]
		}, want: audit.RuleSeed},
		"a verdict twice": {change: func(r *audit.Record) {
			r.Verdicts[1] = r.Verdicts[0]
		}, want: audit.RuleVerdict},
		"a verdict of something else": {change: func(r *audit.Record) {
			r.Verdicts[2].Answer[0]++
		}, want: audit.RuleVerdict},
		"too few": {change: func(r *audit.Record) {
			r.Verdicts = r.Verdicts[:4]
		}, want: audit.RuleMajority},
		"a smaller committee": {change: func(r *audit.Record) {
			r.Verdicts = r.Verdicts[:4]
			r.Committee = 4
		}, want: audit.RuleSeed},
		"another time": {change: func(r *audit.Record) {
			r.Verdicts[0].Product--
		}, want: audit.RuleVerdict},
		"another window's beacon": {change: func(r *audit.Record) { r.Beacon.Slot += 100 }, want: audit.RuleWindow},
		"another beacon":          {change: func(r *audit.Record) { r.Beacon.Value[0]++ }, want: audit.RuleSeed},
		"another unit": {change: func(r *audit.Record) {
			r.Answer.Unit[0]++
			resign(r)
		}, want: audit.RuleSeed},
		"another attempt": {change: func(r *audit.Record) {
			r.Answer.Attempt = 2
			resign(r)
		}, want: audit.RuleSeed},
		"a fourth attempt": {change: func(r *audit.Record) {
			r.Answer.Attempt = 4
			resign(r)
		}, want: audit.RuleAttempt},
		"another walk seed": {change: func(r *audit.Record) {
			r.Answer.WalkSeed[0]++
			resign(r)
		}, want: audit.RuleSeed},
		"another dataset": {change: func(r *audit.Record) {
			r.Answer.DatasetSeed[0]++
			resign(r)
		}, want: audit.RuleWalk},
		"another root": {change: func(r *audit.Record) {
			r.Answer.ProductRoot[0]++
			resign(r)
		}, want: audit.RuleSeed},
		"a shape of more products": {change: func(r *audit.Record) {
			r.Answer.Shape.Products = 3
			resign(r)
		}, want: audit.RuleOpenings},
		"not signed by the provider": {change: func(r *audit.Record) { r.AnswerSig[0]++ }, want: audit.RuleProvider},
		"openings not signed":        {change: func(r *audit.Record) { r.ShownSig[0]++ }, want: audit.RuleProvider},
		"a verdict not signed": {change: func(r *audit.Record) {
			r.Verdicts[3].Signature[5]++
		}, want: audit.RuleVerdict},
		"windows of no length": {change: func(r *audit.Record) { r.WindowSlots = 0 }, want: audit.RuleWindow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := make7(t, c.make)
			if c.change != nil {
				c.change(&r)
			}
			wantRule(t, name, r.Check(d), c.want)
		})
	}
	other := d
	other.Network = "other"
	wantRule(t, "another network", make7(t, nil).Check(other), audit.RuleProvider)
	r := make7(t, nil)
	wantRule(t, "members of another roster", r.CheckMembers(audit.Roster{{Key: audittest.Key("x").Key(), Weight: 1}}),
		audit.RuleCommittee)
	wantRule(t, "no roster", r.CheckMembers(nil), audit.RuleCommittee)
}

// A provider does not choose how large its committee is.
func TestCommitteeSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		roster, size int
		want         audit.Rule
	}{
		{30, audit.Committee, ""}, {30, audit.Appeal, ""}, {30, 1, audit.RuleCommittee}, {30, 6, audit.RuleCommittee},
		{30, 10, audit.RuleCommittee},
		{1, 1, ""}, {3, 1, ""}, {4, 1, audit.RuleCommittee}, {8, 6, ""}, {9, 6, audit.RuleCommittee}, {10, 10, ""},
		{10, 7, ""}, {13, 10, audit.RuleCommittee},
	} {
		var roster audit.Roster
		for i := range c.roster {
			k := audittest.Key(string(rune('a' + i))).Key()
			roster = append(roster, audit.Member{Key: k, Owner: k, Weight: 1})
		}
		wantRule(t, fmt.Sprintf("%d of %d", c.size, c.roster),
			audit.Record{Committee: uint8(c.size)}.CheckMembers(roster), c.want)
	}
}

// A dataset is one unit's, of the beacon before its era.
func TestDatasetIsTheUnits(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	r := make7(t, nil)
	wantRule(t, "its own", r.CheckDataset(c.Era()), "")
	wantRule(t, "of another era", r.CheckDataset(c.Beacon()), audit.RuleSeed)
	r.Answer.Unit[3]++
	wantRule(t, "of another unit", r.CheckDataset(c.Era()), audit.RuleSeed)
	for w, want := range map[audit.Window]audit.Window{0: 0, 23: 0, 24: 23, 47: 23, 48: 47} {
		if got := (audit.Instants{}).EraOf(w); got != want {
			t.Errorf("era of window %d: %d, want %d", w, got, want)
		}
		if got := (audit.Instants{OneIn: 30}).EraOf(30 * w); got != 30*(want+1)-1 && want > 0 {
			t.Errorf("era of window %d of those of which one in 30 has an audit: %d", 30*w, got)
		}
	}
}

// Who lies is proven, and who does not, not: the provider for every value that it signed, a member only for those that it had
// to compute.
func TestLies(t *testing.T) {
	t.Parallel()
	d := audittest.Domain()
	wrong := func(at func(r audit.Record, i int) int) audit.Record {
		honest := make7(t, nil)
		// The walk seed, and with it the pick, does not depend on what is opened.
		return make7(t, func(c *audittest.Case) {
			c.Opening = func(i int, o *challenge.Opening) {
				if i == 5 {
					o.Values[at(honest, i)] ^= 4
				}
			}
		})
	}
	find := func(r audit.Record, all bool) []audit.Lie {
		return audit.FindLie(r.Answer, r.Shown, r.ShownSig, r.Verdicts, r.Opened.Openings, all)
	}
	picked := wrong(func(r audit.Record, i int) int { return audit.Pick(r.Answer.WalkSeed)(i) })
	lies := find(picked, false)
	if len(lies) != 1+audit.Committee {
		t.Fatalf("%d lies", len(lies))
	}
	for i, l := range lies {
		wantRule(t, l.Kind.String(), l.Check(d), "")
		if i == 0 && l.Liar() != picked.Answer.Provider || i > 0 && l.Liar() != picked.Verdicts[i-1].Member {
			t.Errorf("lie %d is blamed on %s", i, l.Liar())
		}
		again, err := audit.UnmarshalLie(l.Marshal())
		if err != nil || string(again.Marshal()) != string(l.Marshal()) {
			t.Errorf("%v", err)
		}
	}
	unseen := wrong(func(r audit.Record, i int) int {
		return (audit.Pick(r.Answer.WalkSeed)(i) + 1) % challenge.LeafWords
	})
	if found := find(unseen, false); found != nil {
		t.Errorf("found where nobody looked: %v", found)
	}
	found := find(unseen, true)
	if len(found) != 1 || found[0].Kind != audit.FalseOpening || found[0].Check(d) != nil {
		t.Fatalf("%v", found)
	}
	// The same against a member who was not to look there is refused.
	against := found[0]
	against.Kind, against.Verdict, against.Signature = audit.FalsePass, unseen.Verdicts[0].Verdict, unseen.Verdicts[0].Signature
	wantRule(t, "a member blamed for what it had not to compute", against.Check(d), audit.RuleTruth)

	for name, c := range map[string]struct {
		lie    audit.Lie
		change func(*audit.Lie)
		want   audit.Rule
	}{
		"a right value":           {lies[0], func(l *audit.Lie) { l.Value = (l.Value + 1) % 32 }, audit.RuleTruth},
		"values of one's own":     {lies[0], func(l *audit.Lie) { l.Opening.Values[l.Value]++ }, audit.RuleOpenings},
		"another place":           {lies[0], func(l *audit.Lie) { l.Index++ }, audit.RuleOpenings},
		"another answer":          {lies[0], func(l *audit.Lie) { l.Answer.ProductSeed[0]++ }, audit.RuleOpenings},
		"not signed":              {lies[0], func(l *audit.Lie) { l.Signature[3]++ }, audit.RuleProvider},
		"a verdict not signed":    {lies[1], func(l *audit.Lie) { l.Signature[3]++ }, audit.RuleVerdict},
		"a verdict that found it": {lies[1], func(l *audit.Lie) { l.Verdict.Outcome = audit.Wrong }, audit.RuleVerdict},
		"a verdict of another":    {lies[1], func(l *audit.Lie) { l.Verdict.Answer[0]++ }, audit.RuleVerdict},
	} {
		l := c.lie
		c.change(&l)
		wantRule(t, name, l.Check(d), c.want)
	}
}

func TestTwoAnswers(t *testing.T) {
	t.Parallel()
	d, p := audittest.Domain(), audittest.Key("provider")
	a := make7(t, nil).Answer
	b := a
	b.ProductRoot[0]++
	sign := func(x audit.Answer) (s [64]byte) {
		sig, err := x.Sign(d, p)
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
	l := audit.NewTwoAnswers(b, sign(b), a, sign(a))
	wantRule(t, "two answers", l.Check(d), "")
	again, err := audit.UnmarshalLie(l.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	wantRule(t, "read again", again.Check(d), "")
	for name, c := range map[string]struct {
		change func(b *audit.Answer)
		want   audit.Rule
	}{
		"the same":         {func(b *audit.Answer) { *b = a }, audit.RuleDifferent},
		"another window":   {func(b *audit.Answer) { b.Window++ }, audit.RuleUnit},
		"another attempt":  {func(b *audit.Answer) { b.Attempt++ }, audit.RuleUnit},
		"another unit":     {func(b *audit.Answer) { b.Unit[0]++ }, audit.RuleUnit},
		"another seed":     {func(b *audit.Answer) { b.ProductSeed[0]++ }, audit.RuleUnit},
		"another provider": {func(b *audit.Answer) { b.Provider = audittest.Key("x").Key() }, audit.RuleUnit},
	} {
		x := b
		c.change(&x)
		wantRule(t, name, audit.NewTwoAnswers(a, sign(a), x, sign(x)).Check(d), c.want)
	}
	l.OtherSig[0]++
	wantRule(t, "one not signed", l.Check(d), audit.RuleProvider)
}

// Members are drawn by weight, the same whatever the order, and without those that were not drawn as with them.
func TestDraw(t *testing.T) {
	t.Parallel()
	provider := audittest.Key("p").Key()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "members")
		var r audit.Roster
		for i := range n {
			k := sign.Key(sign.Sum([]byte{byte(i)}))
			r = append(r, audit.Member{Key: k, Owner: k,
				Weight: rapid.Uint64Range(1, math.MaxUint64).Draw(t, "weight")})
		}
		if rapid.Bool().Draw(t, "provider is a member") {
			r[0].Key = provider
		}
		beacon := audit.Beacon{Slot: market.Slot(rapid.Uint64().Draw(t, "slot"))}
		k := rapid.IntRange(1, 11).Draw(t, "k")
		got := r.Draw(beacon, 5, provider, k)
		eligible := n
		if r[0].Key == provider {
			eligible--
		}
		if len(got) != min(k, eligible) {
			t.Fatalf("%d of %d drawn", len(got), eligible)
		}
		shuffled := slices.Clone(r)
		slices.Reverse(shuffled)
		if !slices.Equal(shuffled.Draw(beacon, 5, provider, k), got) {
			t.Fatal("the order matters")
		}
		for i, m := range r {
			if m.Key == provider && slices.Contains(got, m) {
				t.Fatal("the provider judges itself")
			}
			if !slices.Contains(got, m) {
				without := slices.Delete(slices.Clone(r), i, i+1)
				if !slices.Equal(without.Draw(beacon, 5, provider, k), got) {
					t.Fatal("who was not drawn matters")
				}
				break
			}
		}
	})
	// Of two members with weights 3 and 1 the first is drawn first in three of four draws: 4,000 of them, five deviations.
	r := audit.Roster{{Key: audittest.Key("a").Key(), Owner: sign.Key{1}, Weight: 3 << 60},
		{Key: audittest.Key("b").Key(), Owner: sign.Key{2}, Weight: 1 << 60}}
	first := 0
	for i := range 4000 {
		if r.Draw(audit.Beacon{Slot: market.Slot(i)}, 0, provider, 1)[0] == r[0] {
			first++
		}
	}
	if math.Abs(float64(first)-3000) > 5*math.Sqrt(4000*.75*.25) {
		t.Errorf("%d of 4000", first)
	}
	for _, bad := range []audit.Roster{nil, {{Key: provider}},
		{{provider, sign.Key{1}, 1}, {provider, sign.Key{2}, 2}}} {
		if err := bad.Check(); !errors.Is(err, audit.ErrRoster) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

func TestCertify(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3, 5: 4, 7: 5, 11: 8} {
		if got := audit.Certify(n); got != want {
			t.Errorf("%d of %d", got, n)
		}
	}
}

func TestVectors(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	r, err := c.Make()
	if err != nil {
		t.Fatal(err)
	}
	a, s, v := r.Answer.Marshal(), r.Shown.Marshal(), r.Verdicts[0].Marshal()
	got, err := json.MarshalIndent(map[string]any{
		"domain": audittest.Domain(), "roster": c.Roster,
		"committee": c.Roster.Draw(r.Beacon, c.Window, c.Provider.Key(), audit.Committee), "beacon": r.Beacon,
		"answer": hex.EncodeToString(a[:]), "answer_hash": r.Answer.Hash(), "answer_signature": r.AnswerSig,
		"shown": hex.EncodeToString(s[:]), "shown_signature": r.ShownSig, "verdict": hex.EncodeToString(v[:]),
		"verdict_signature": r.Verdicts[0].Signature, "record_hash": r.Hash(),
		"record": hex.EncodeToString(r.Marshal()),
	}, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "vectors.json")
	if *rewrite {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != string(got)+"\n" {
		t.Error("the vectors differ: another implementation would too")
	}
}

func FuzzRecord(f *testing.F) {
	known := map[sign.Hash]bool{}
	first := make7(f, nil)
	for _, r := range []audit.Record{first, made(f, audittest.New(9))} {
		f.Add(r.Marshal())
		known[r.Hash()] = true
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := audit.UnmarshalRecord(b)
		if err != nil {
			return
		}
		if string(got.Marshal()) != string(b) {
			t.Fatal("another form")
		}
		if err := got.Check(audittest.Domain()); err == nil && !known[got.Hash()] {
			t.Fatal("a record that nobody signed passes")
		}
		_ = got.Rates()
	})
}

func FuzzLie(f *testing.F) {
	r := make7(f, func(c *audittest.Case) {
		c.Opening = func(_ int, o *challenge.Opening) { o.Values = [challenge.LeafWords]int32{} }
	})
	lies := audit.FindLie(r.Answer, r.Shown, r.ShownSig, r.Verdicts, r.Opened.Openings, false)
	f.Add(lies[0].Marshal())
	f.Add(lies[1].Marshal())
	f.Add(audit.NewTwoAnswers(r.Answer, r.AnswerSig, r.Answer, r.AnswerSig).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := audit.UnmarshalLie(b)
		if err != nil {
			return
		}
		if string(l.Marshal()) != string(b) {
			t.Fatal("another form")
		}
		_ = l.Check(audittest.Domain())
	})
}

func BenchmarkCheck(b *testing.B) {
	c := audittest.New(11)
	c.Shape = challenge.Shape{Rows: 256, Columns: 256, Depth: challenge.MaxDepth, Products: 1}
	c.Walk = challenge.Walk{Cells: 1 << 30, Work: 64, Walkers: 1 << 8, Steps: 64}
	r, err := c.Make()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(r.Marshal())), "bytes")
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Check(audittest.Domain()); err != nil {
			b.Fatal(err)
		}
	}
}
