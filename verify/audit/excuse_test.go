package audit_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
)

const excuseSlots = 100

var excusedUnits = []market.UnitID{{1}, market.UnitID(sign.Sum([]byte("unit"))), {3}}

// excuse is one for a window in which the unit has worked since its first lease began: leases from slot to slot.
func excuse(t testing.TB, w audit.Window, leases ...market.Slot) audit.Excuse {
	t.Helper()
	provider := audittest.Key("provider")
	e := audit.Excuse{Provider: provider.Key(), Unit: excusedUnits[1], Window: w, WindowSlots: excuseSlots, Since: leases[0]}
	for i := 0; i+1 < len(leases); i += 2 {
		l, err := audittest.Worked(provider, audittest.Key("buyer"), excusedUnits, e.Unit, leases[i], leases[i+1])
		if err != nil {
			t.Fatal(err)
		}
		e.Leases = append(e.Leases, l)
	}
	return e
}

func TestExcuse(t *testing.T) {
	t.Parallel()
	good := excuse(t, 9, 750, 800, 820, 950)
	if err := good.Check(audittest.Domain()); err != nil {
		t.Fatal(err)
	}
	read, err := audit.UnmarshalExcuse(good.Marshal())
	if err != nil || read.Hash() != good.Hash() || read.Check(audittest.Domain()) != nil {
		t.Fatalf("an excuse is not read as it was written: %v", err)
	}
	half := func(audit.Worked) (market.Amount, error) { return 65, nil }
	busy, err := good.Busy(audit.Fee{Fee: 10_000, Burn: 5_000}, half)
	// 50 and 130 were receipted, of the second 65 paid; half burns, shared by three units.
	if err != nil || len(busy) != 2 || busy[0].Burned != 25/3 || busy[1].Burned != 32/3 {
		t.Errorf("%v, %v", busy, err)
	}
	// A lease comes again with its last receipt, and after it another: it burned once what the last says.
	longer := excuse(t, 9, 750, 800, 820, 1000, 1010, 1020)
	end := later(t, longer.Leases[1], 950, 1000, 177)
	longer.Leases[1] = later(t, end, 850, 950, 130)
	longer.Leases = []audit.Worked{longer.Leases[0], longer.Leases[1], end, longer.Leases[2]}
	if err := longer.Check(audittest.Domain()); err != nil {
		t.Fatal(err)
	}
	all := func(w audit.Worked) (market.Amount, error) { return w.Receipt.Cumulative, nil }
	busy, err = longer.Busy(audit.Fee{Fee: 10_000, Burn: 10_000}, all)
	if want := []audit.Busy{stretch(750, 800, 50/3), stretch(820, 1000, 177/3), stretch(1010, 1020, 10/3)}; err != nil || !slices.Equal(busy, want) {
		t.Errorf("%v, %v, want %v", busy, err, want)
	}
	for name, c := range map[string]struct {
		change func(e *audit.Excuse)
		want   audit.Rule
	}{
		"another unit":                  {func(e *audit.Excuse) { e.Unit = market.UnitID{9} }, audit.RuleUnit},
		"another provider":              {func(e *audit.Excuse) { e.Provider = audittest.Key("x").Key() }, audit.RuleUnit},
		"the window after":              {func(e *audit.Excuse) { e.Window++ }, audit.RuleExcuse},
		"the window before":             {func(e *audit.Excuse) { e.Window-- }, audit.RuleExcuse},
		"a window at the end of time":   {func(e *audit.Excuse) { e.Window = 1<<64 - 1 }, audit.RuleWindow},
		"windows of no length":          {func(e *audit.Excuse) { e.WindowSlots = 0 }, audit.RuleWindow},
		"no lease":                      {func(e *audit.Excuse) { e.Leases = nil }, audit.RuleExcuse},
		"nine leases":                   {func(e *audit.Excuse) { e.Leases = make([]audit.Worked, 9) }, audit.RuleExcuse},
		"work from before it counts":    {func(e *audit.Excuse) { e.Since = 751 }, audit.RuleTime},
		"one lease twice":               {func(e *audit.Excuse) { e.Leases[0] = e.Leases[1] }, audit.RuleTime},
		"in the wrong order":            {func(e *audit.Excuse) { e.Leases[0], e.Leases[1] = e.Leases[1], e.Leases[0] }, audit.RuleTime},
		"a receipt of another lease":    {func(e *audit.Excuse) { e.Leases[1].Receipt = e.Leases[0].Receipt }, audit.RuleExcuse},
		"a receipt that runs backwards": {func(e *audit.Excuse) { r := &e.Leases[1].Receipt; r.From, r.To = r.To, r.From }, audit.RuleTime},
		"a receipt beyond its lease":    {func(e *audit.Excuse) { e.Leases[1].Receipt.To++ }, audit.RuleTime},
		"more was received":             {func(e *audit.Excuse) { e.Leases[1].Receipt.Cumulative++ }, audit.RuleProvider},
		"the buyer did not sign":        {func(e *audit.Excuse) { e.Leases[1].Receipt.BuyerSig = sign.Signature{} }, audit.RuleProvider},
		"nor the lease":                 {func(e *audit.Excuse) { e.Leases[1].Lease.BuyerSig = sign.Signature{} }, audit.RuleProvider},
		"a proof of another length":     {func(e *audit.Excuse) { e.Leases[1].In.Path = e.Leases[1].In.Path[:0] }, audit.RuleUnit},
		"a lease and its end in another escrow": {func(e *audit.Excuse) {
			e.Leases = append(e.Leases, e.Leases[1])
			e.Leases[2].Funded.Index++
		}, audit.RuleTime},
		"one receipt twice": {func(e *audit.Excuse) { e.Leases = append(e.Leases, e.Leases[1]) }, audit.RuleTime},
	} {
		e := excuse(t, 9, 750, 800, 820, 950)
		c.change(&e)
		wantRule(t, name, e.Check(audittest.Domain()), c.want)
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "cut off": good.Marshal()[:500], "more than it says": append(good.Marshal(), 0),
		"reserved bytes": func() []byte { b := good.Marshal(); b[3] = 1; return b }(),
	} {
		if _, err := audit.UnmarshalExcuse(b); !errors.Is(err, market.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// later is a lease with a receipt for slots from to to, of as much as that.
func later(t testing.TB, w audit.Worked, from, to market.Slot, amount market.Amount) audit.Worked {
	t.Helper()
	w, err := audittest.Later(w, audittest.Key("provider"), audittest.Key("buyer"), from, to, amount)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestFresh(t *testing.T) {
	t.Parallel()
	unit, provider := excusedUnits[1], audittest.Key("provider").Key()
	record := audit.Record{WindowSlots: excuseSlots, Answer: audit.Answer{Target: audit.Target{Provider: provider, Unit: unit, Window: 7}}}
	record.Verdicts = []audit.Signed{{Verdict: audit.Verdict{Slot: 740}}, {Verdict: audit.Verdict{Slot: 742}}}
	all := func(w audit.Worked) (market.Amount, error) { return w.Receipt.Cumulative, nil }
	terms := audit.Terms{
		WindowSlots: excuseSlots, Fee: audit.Fee{Fee: 1000, Burn: 5000}, Price: 1, Paid: all,
	}
	free := func(_ *audit.Record, t *audit.Terms) { t.Price = 0 }
	dear := func(_ *audit.Record, t *audit.Terms) { t.Price = market.RateScale / 50 } // 2 for 100 slots
	excuses := []audit.Excuse{excuse(t, 9, 750, 950), excuse(t, 8, 750, 850)}         // 10/3 burned, 5/3 burned
	for name, c := range map[string]struct {
		now     market.Slot
		excuses []audit.Excuse
		change  func(r *audit.Record, t *audit.Terms)
		want    audit.Rule
	}{
		"of this window":                             {750, nil, nil, ""},
		"of the one before":                          {899, nil, nil, ""},
		"of the one before that":                     {900, nil, nil, audit.RuleFresh},
		"of a window to come":                        {699, nil, nil, audit.RuleTime},
		"of other windows":                           {750, nil, func(r *audit.Record, _ *audit.Terms) { r.WindowSlots++ }, audit.RuleWindow},
		"no windows":                                 {750, nil, func(r *audit.Record, t *audit.Terms) { r.WindowSlots, t.WindowSlots = 0, 0 }, audit.RuleWindow},
		"excused in one, by what it did in the next": {900, excuses, dear, ""},
		"by what it did in that one alone":           {900, excuses[1:], dear, audit.RuleFresh}, // ⌊5/3⌋ = 1 burned, 50 slots are worth 1
		"and is sold for nothing":                    {900, excuses[1:], free, ""},
		"in two":                                     {1000, excuses, dear, ""},
		"in two, as long as that burned":             {1099, excuses, func(_ *audit.Record, t *audit.Terms) { t.Price = market.RateScale / 50 }, ""}, // 3 burned, 149 slots are worth 2
		"not in the third":                           {1100, excuses, free, audit.RuleFresh},
		"worth more than burned":                     {1000, excuses, func(_ *audit.Record, t *audit.Terms) { t.Price = market.RateScale }, audit.RuleFresh},
		"passed since":                               {1000, excuses, func(r *audit.Record, _ *audit.Terms) { r.Verdicts[0].Slot = 751 }, audit.RuleExcuse},
		"another unit":                               {1000, excuses, func(r *audit.Record, _ *audit.Terms) { r.Answer.Unit = market.UnitID{} }, audit.RuleUnit},
		"another provider":                           {1000, excuses, func(r *audit.Record, _ *audit.Terms) { r.Answer.Provider = sign.Key{} }, audit.RuleUnit},
		"no chain":                                   {1000, excuses, func(_ *audit.Record, t *audit.Terms) { t.Paid = nil }, audit.RuleExcuse},
		"the chain does not know": {1000, excuses, func(_ *audit.Record, t *audit.Terms) {
			t.Paid = func(audit.Worked) (market.Amount, error) { return 0, errors.New("down") }
		}, audit.RuleExcuse},
		"nothing was paid": {1000, excuses, func(_ *audit.Record, t *audit.Terms) {
			t.Paid = func(audit.Worked) (market.Amount, error) { return 0, nil }
		}, audit.RuleExcuse},
		"the end of time": {1<<64 - 1, excuses, nil, audit.RuleFresh},
	} {
		r, terms := record, terms
		r.Verdicts = append([]audit.Signed{}, record.Verdicts...)
		if c.change != nil {
			c.change(&r, &terms)
		}
		wantRule(t, name, audit.Fresh(r, c.excuses, c.now, terms), c.want)
	}
}

func FuzzExcuse(f *testing.F) {
	f.Add(excuse(f, 9, 750, 800, 820, 950).Marshal())
	f.Add(excuse(f, 8, 750, 850).Marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := audit.UnmarshalExcuse(b)
		if err != nil {
			return
		}
		if !bytes.Equal(e.Marshal(), b) {
			t.Fatal("an excuse is not written as it was read")
		}
		_ = e.Check(audittest.Domain())
		_ = audit.Fresh(audit.Record{WindowSlots: e.WindowSlots}, []audit.Excuse{e}, 300, audit.Terms{WindowSlots: e.WindowSlots})
	})
}
