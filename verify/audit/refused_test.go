package audit_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// statement is one layout that is signed, as bytes, and how it is read.
type statement struct {
	good []byte
	read func(b []byte) error
	// reserved are offsets that must be 0, bytes those whose other value is none: {offset, value}.
	reserved []int
	bytes    [][2]int
}

func statements(t testing.TB) map[string]statement {
	t.Helper()
	r := make7(t, nil)
	a, s, v := r.Answer.Marshal(), r.Shown.Marshal(), r.Verdicts[0].Marshal()
	lies := audittest.Lies(audittest.Domain(), audittest.Key("provider"), audittest.Key("member 0"), 7)
	lie := func(b []byte) error { _, err := audit.UnmarshalLie(b); return err }
	out := map[string]statement{
		"answer": {a[:], func(b []byte) error { _, err := audit.UnmarshalAnswer(b); return err },
			[]int{2, 7, 212, 215},
			[][2]int{{0, 0}, {0, 2}, {1, 0}, {1, 4}, {1, 255}, {112, 1}, {115, 255}, {127, 255}, {199, 255}}},
		"shown": {s[:], func(b []byte) error {
			_, err := audit.UnmarshalShown(b)
			return err
		}, []int{1, 7}, [][2]int{{0, 0}, {0, 2}}},
		"verdict": {v[:], func(b []byte) error {
			_, err := audit.UnmarshalVerdict(b)
			return err
		}, []int{2, 7, 168, 175}, [][2]int{{0, 2}, {1, 0}, {1, 4}, {1, 255}}},
		"record": {r.Marshal(), func(b []byte) error { _, err := audit.UnmarshalRecord(b); return err },
			[]int{1, 4, 7, 56, 63},
			[][2]int{{0, 2}, {2, 0}, {2, 12}, {2, 8}, {2, 255}, {3, 0}, {3, 6}, {3, 12}, {65, 4}}},
		"certificate": {r.Certificate().Marshal(), func(b []byte) error {
			_, rest, err := audit.CutCertificate(b)
			if err == nil && len(rest) > 0 {
				return market.ErrMalformed // whoever reads a list of them goes on with what comes after
			}
			return err
		}, []int{4, 63}, [][2]int{{2, 12}, {3, 12}}},
	}
	for _, l := range lies {
		out[l.Kind.String()] = statement{l.Marshal(), lie, []int{3}, [][2]int{{0, 2}, {1, 0}, {1, 4}, {5, 0}, {5, 4}}}
	}
	return out
}

// Every statement is read at its length alone, of its version, with nothing in what is reserved.
func TestLayoutsRefused(t *testing.T) {
	t.Parallel()
	for name, s := range statements(t) {
		refuse := func(what string, at int, b []byte) {
			if err := s.read(b); !errors.Is(err, market.ErrMalformed) {
				t.Errorf("%s, %s %d: %v", name, what, at, err)
			}
		}
		if err := s.read(s.good); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := range len(s.good) {
			if n < 1024 || n%37 == 0 || n > len(s.good)-70 {
				refuse("cut off at", n, s.good[:n])
			}
		}
		refuse("longer by", 1, append(bytes.Clone(s.good), 0))
		refuse("longer by", 1<<17, append(bytes.Clone(s.good), make([]byte, 1<<17)...))
		for _, at := range s.reserved {
			b := bytes.Clone(s.good)
			b[at] = 1
			refuse("reserved byte", at, b)
		}
		for _, c := range s.bytes {
			b := bytes.Clone(s.good)
			b[c[0]] = byte(c[1])
			refuse("another value at", c[0], b)
		}
	}
}

// No record of which a byte is another passes, is blamed on its provider or on a member, or crashes who looks at it.
func TestNoByteOfARecordIsFree(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	r := make7(t, nil)
	bs := audit.NewRules(c.Genesis())
	good := r.Marshal()
	stated := len(r.Certificate().Marshal()) // each of its bytes is another in TestCertificate
	for at := 0; at < len(good); at++ {
		if at > 800 && (at < stated || at%11 != 0) {
			continue
		}
		b := bytes.Clone(good)
		b[at] ^= 1 << (at % 8)
		bad, err := audit.UnmarshalRecord(b)
		if err != nil {
			if !errors.Is(err, market.ErrMalformed) {
				t.Errorf("byte %d: %v", at, err)
			}
			continue
		}
		err = errors.Join(bad.CheckRules(bs), bad.CheckMembers(c.Roster), bad.CheckDataset(c.Era()))
		if err == nil {
			err = bad.Check(audittest.Domain())
		}
		if _, ok := errors.AsType[*audit.RuleError](err); !ok {
			t.Errorf("byte %d: %v", at, err)
		}
		for _, l := range audit.FindLie(bad.Answer, bad.Shown, bad.ShownSig, bad.Verdicts, bad.Opened.Openings, false) {
			if l.Check(audittest.Domain()) == nil {
				t.Fatalf("byte %d: %s lies (%s)", at, l.Liar().Short(), l.Kind)
			}
		}
		_, _ = bad.Rates(), bad.FailsClass("cpu", market.Resources{MilliCPU: 1000, MemoryMiB: 64})
	}
}

// signed has everybody sign again what was changed: provider and committee together, who may say whatever they like.
func signed(t testing.TB, r *audit.Record) {
	t.Helper()
	c := audittest.New(9)
	d := audittest.Domain()
	c.Members[c.Provider.Key()] = c.Provider
	x := audittest.Key("stranger")
	c.Members[x.Key()] = x
	r.Shown = audit.Show(r.Answer, r.Opened.Openings)
	r.AnswerSig, r.ShownSig = mustSign(t, r.Answer.Sign, d, c.Provider), mustSign(t, r.Shown.Sign, d, c.Provider)
	r.Verdicts = slices.Clone(r.Verdicts)
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		v.Answer, v.Openings = r.Shown.Answer, r.Shown.Openings
		v.Signature = mustSign(t, v.Verdict.Sign, d, c.Members[v.Member])
	}
	slices.SortFunc(r.Verdicts, func(a, b audit.Signed) int { return bytes.Compare(a.Member[:], b.Member[:]) })
}

func mustSign(
	t testing.TB, of func(sign.Domain, sign.Signer) (sign.Signature, error), d sign.Domain, by sign.Signer,
) sign.Signature {
	t.Helper()
	sig, err := of(d, by)
	if err != nil {
		t.Fatal(err)
	}
	return sig
}

// What a provider and its whole committee sign together and is not so is refused all the same, and is no lie that can be proven.
func TestConspirators(t *testing.T) {
	t.Parallel()
	c := audittest.New(9)
	bs := audit.NewRules(c.Genesis())
	type change = func(r *audit.Record)
	each := func(f func(v *audit.Signed)) change {
		return func(r *audit.Record) {
			r.Verdicts = slices.Clone(r.Verdicts)
			for i := range r.Verdicts {
				f(&r.Verdicts[i])
			}
		}
	}
	one := func(f func(v *audit.Signed)) change {
		return func(r *audit.Record) { r.Verdicts = slices.Clone(r.Verdicts); f(&r.Verdicts[3]) }
	}
	for name, x := range map[string]struct {
		change change
		want   audit.Rule
	}{
		"nothing": {func(*audit.Record) {}, ""},
		// Windows.
		"another window":           {func(r *audit.Record) { r.Answer.Window++ }, audit.RuleWindow},
		"the last window there is": {func(r *audit.Record) { r.Answer.Window = math.MaxUint64 }, audit.RuleWindow},
		"a window that overflows": {func(r *audit.Record) {
			r.Answer.Window = 1 << 62
			r.WindowSlots = 4
		}, audit.RuleWindow},
		"shorter windows":          {func(r *audit.Record) { r.WindowSlots = 99 }, audit.RuleWindow},
		"windows of no length":     {func(r *audit.Record) { r.WindowSlots = 0 }, audit.RuleWindow},
		"windows without end":      {func(r *audit.Record) { r.WindowSlots = math.MaxUint64 }, audit.RuleWindow},
		"a block of the next":      {func(r *audit.Record) { r.Beacon.Slot += 100 }, audit.RuleWindow},
		"a block before the first": {func(r *audit.Record) { r.Beacon.Slot-- }, audit.RuleWindow},
		"the last block there is":  {func(r *audit.Record) { r.Beacon.Slot = math.MaxUint64 }, audit.RuleWindow},
		// Beacons and attempts.
		"another beacon":   {func(r *audit.Record) { r.Beacon.Value[9]++ }, audit.RuleSeed},
		"another attempt":  {func(r *audit.Record) { r.Answer.Attempt = 3 }, audit.RuleSeed},
		"no attempt":       {func(r *audit.Record) { r.Answer.Attempt = 0 }, audit.RuleAttempt},
		"the last attempt": {func(r *audit.Record) { r.Answer.Attempt = 255 }, audit.RuleAttempt},
		// Seeds, roots, walks.
		"another unit":         {func(r *audit.Record) { r.Answer.Unit[0]++ }, audit.RuleSeed},
		"another product seed": {func(r *audit.Record) { r.Answer.ProductSeed[0]++ }, audit.RuleSeed},
		"another product root": {func(r *audit.Record) { r.Answer.ProductRoot[0]++ }, audit.RuleSeed},
		"another walk seed":    {func(r *audit.Record) { r.Answer.WalkSeed[0]++ }, audit.RuleSeed},
		"another dataset":      {func(r *audit.Record) { r.Answer.DatasetSeed[0]++ }, audit.RuleWalk},
		"another walk root":    {func(r *audit.Record) { r.Answer.WalkRoot[0]++ }, audit.RuleWalk},
		"more products":        {func(r *audit.Record) { r.Answer.Shape.Products++ }, audit.RuleOpenings},
		"a shape of nothing":   {func(r *audit.Record) { r.Answer.Shape = challenge.Shape{} }, audit.RuleOpenings},
		"a shape that overflows": {func(r *audit.Record) {
			r.Answer.Shape.Products = math.MaxUint32
		}, audit.RuleOpenings},
		"a shorter walk":        {func(r *audit.Record) { r.Answer.Walk.Steps-- }, audit.RuleWalk},
		"a walk over more":      {func(r *audit.Record) { r.Answer.Walk.Cells++ }, audit.RuleWalk},
		"more walkers":          {func(r *audit.Record) { r.Answer.Walk.Walkers++ }, audit.RuleWalk},
		"no walk":               {func(r *audit.Record) { r.Answer.Walk = challenge.Walk{} }, audit.RuleWalk},
		"a walk that overflows": {func(r *audit.Record) { r.Answer.Walk.Steps = math.MaxUint32 }, audit.RuleWalk},
		"cheaper cells":         {func(r *audit.Record) { r.Answer.Walk.Work = 1 }, audit.RuleWalk},
		"one opening less": {func(r *audit.Record) {
			r.Opened.Openings = r.Opened.Openings[1:]
		}, audit.RuleOpenings},
		"no opening": {func(r *audit.Record) { r.Opened.Openings = nil }, audit.RuleOpenings},
		"an opening twice": {func(r *audit.Record) {
			r.Opened.Openings = slices.Clone(r.Opened.Openings)
			r.Opened.Openings[1] = r.Opened.Openings[0]
		}, audit.RuleOpenings},
		"a node less":   {func(r *audit.Record) { r.Opened.Nodes = r.Opened.Nodes[1:] }, audit.RuleOpenings},
		"no walker":     {func(r *audit.Record) { r.Walked.Ends = nil }, audit.RuleWalk},
		"a walker less": {func(r *audit.Record) { r.Walked.Ends = r.Walked.Ends[1:] }, audit.RuleWalk},
		"a walker twice": {func(r *audit.Record) {
			r.Walked.Ends = slices.Clone(r.Walked.Ends)
			r.Walked.Ends[1] = r.Walked.Ends[0]
		}, audit.RuleWalk},
		// Members.
		"somebody who was not drawn": {one(func(v *audit.Signed) {
			v.Member = audittest.Key("stranger").Key()
		}), audit.RuleSeed},
		"the provider itself": {one(func(v *audit.Signed) {
			v.Member = audittest.Key("provider").Key()
		}), audit.RuleCommittee},
		"somebody twice": {func(r *audit.Record) {
			r.Verdicts = slices.Clone(r.Verdicts)
			r.Verdicts[1] = r.Verdicts[0]
		}, audit.RuleVerdict},
		"nobody":                   {func(r *audit.Record) { r.Verdicts = nil }, audit.RuleMajority},
		"no committee":             {func(r *audit.Record) { r.Committee = 0 }, audit.RuleMajority},
		"fewer than judged":        {func(r *audit.Record) { r.Committee = 6 }, audit.RuleMajority},
		"a committee of 255":       {func(r *audit.Record) { r.Committee = 255 }, audit.RuleMajority},
		"a committee that is none": {func(r *audit.Record) { r.Committee = 8 }, ""}, // the bonded set says so: TestCommitteeSize
		"another first nonce":      {one(func(v *audit.Signed) { v.Nonces[0][0]++ }), audit.RuleNonce},
		"another second nonce":     {one(func(v *audit.Signed) { v.Nonces[1][0]++ }), audit.RuleNonce},
		"another third nonce":      {one(func(v *audit.Signed) { v.Nonces[2][0]++ }), audit.RuleNonce},
		"other nonces": {one(func(v *audit.Signed) {
			v.Nonces = audit.Chain(audit.Nonce{9})
		}), audit.RuleSeed},
		"nobody passed it":        {each(func(v *audit.Signed) { v.Outcome = audit.Late }), audit.RuleMajority},
		"an outcome that is none": {each(func(v *audit.Signed) { v.Outcome = 9 }), audit.RuleMajority},
		// Times.
		"begun in the window before":    {one(func(v *audit.Signed) { v.Slot = 699 }), audit.RuleTime},
		"begun in the next":             {one(func(v *audit.Signed) { v.Slot = 800 }), audit.RuleTime},
		"begun in the first slot":       {one(func(v *audit.Signed) { v.Slot = 0 }), audit.RuleTime},
		"begun in the last slot":        {one(func(v *audit.Signed) { v.Slot = math.MaxUint64 }), audit.RuleTime},
		"begun before the block":        {func(r *audit.Record) { r.Beacon.Slot += 60 }, audit.RuleTime},
		"begun at another instant":      {each(func(v *audit.Signed) { v.Slot += 40 }), audit.RuleInstant},
		"begun before the instant":      {each(func(v *audit.Signed) { v.Slot = 710 }), audit.RuleInstant},
		"products in no time":           {one(func(v *audit.Signed) { v.Product = 0 }), audit.RuleTime},
		"a walk in no time":             {one(func(v *audit.Signed) { v.Walk = 0 }), audit.RuleTime},
		"times that nobody could count": {one(func(v *audit.Signed) { v.Product, v.Walk = math.MaxUint64, math.MaxUint64 }), ""}, // they slow it
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := make7(t, nil)
			x.change(&r)
			signed(t, &r)
			err := r.CheckRules(bs)
			if err == nil {
				err = r.Check(audittest.Domain())
			}
			wantRule(t, name, err, x.want)
			if x.want != "" && x.want != audit.RuleOpenings && x.want != audit.RuleWalk && x.want != audit.RuleBeacon { // those it has not
				if err := r.Certificate().Check(bs,
					audit.Seen{Beacon: c.Beacon(), Era: c.Era(), Roster: c.Roster}); err == nil {
					t.Error("its certificate passes")
				}
			}
			for _, l := range audit.FindLie(r.Answer, r.Shown, r.ShownSig, r.Verdicts, r.Opened.Openings, false) {
				if l.Check(audittest.Domain()) == nil && r.Answer.ProductSeed == make7(t, nil).Answer.ProductSeed &&
					r.Answer.Shape == c.Shape {
					t.Errorf("%s is called a liar (%s) for right values", l.Liar().Short(), l.Kind)
				}
			}
		})
	}
}
