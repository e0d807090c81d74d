package verify

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"pgregory.net/rapid"
)

func private(name string) sign.Private { return sign.NewPrivate(sha256.Sum256([]byte(name))) }

var (
	provider = private("provider")
	buyer    = private("buyer")
	other    = private("other")
	domain   = sign.Domain{Network: "test", Chain: sign.Sum([]byte("chain"))}
)

func keySet(tb interface{ Fatal(...any) }, threshold uint8, keys ...sign.Private) market.KeySet {
	var ks []sign.Key
	for _, k := range keys {
		ks = append(ks, k.Key())
	}
	set, err := market.NewKeySet(threshold, ks...)
	if err != nil {
		tb.Fatal(err)
	}
	return set
}

var units = []market.UnitID{{1}, {2}, {3}}

func leaseCore(tb interface{ Fatal(...any) }) market.LeaseCore {
	c := market.LeaseCore{
		Version: market.LeaseVersion, Units: uint16(len(units)), Rank: 3, RankEpoch: 2, Order: market.OrderID{1}, Buyer: buyer.Key(),
		Provider: provider.Key(), Payout: sign.Key{7}, UnitsRoot: market.UnitsRoot(units), Terms: sign.Hash{3},
		VoucherKeys: keySet(tb, 1, buyer).Hash(), Rate: 2_333_333, Cap: 1_000_000, Start: 1000, ActivateBefore: 1100, End: 401_000,
		Nonce: market.Nonce{5},
	}
	if err := c.Validate(); err != nil {
		tb.Fatal(err)
	}
	return c
}

func signed(tb interface{ Fatal(...any) }, c ReceiptCore) Receipt {
	p, err := c.Sign(domain, provider)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := c.Sign(domain, buyer)
	if err != nil {
		tb.Fatal(err)
	}
	return Receipt{ReceiptCore: c, ProviderSig: p, BuyerSig: b}
}

// chainOf makes a right chain: len(slots) receipts of so many slots, the last one final if final.
func chainOf(tb interface{ Fatal(...any) }, core market.LeaseCore, start market.Slot, slots []uint64, final bool) []Receipt {
	chain := NewChain(core)
	var out []Receipt
	at := start
	for i, n := range slots {
		r, err := chain.Next(at, at+market.Slot(n), func(r *ReceiptCore) {
			r.CPUMillis, r.Supervision = n*7, uint64(i/3)
			if final && i == len(slots)-1 {
				r.Flags, r.Output = ReceiptFinal, sign.Sum([]byte("result"))
			}
		})
		if err != nil {
			tb.Fatal(err)
		}
		at = r.To
		if chain, err = chain.Follow(r); err != nil {
			tb.Fatal(err)
		}
		out = append(out, signed(tb, r))
	}
	return out
}

func genChain(t *rapid.T, core market.LeaseCore) []Receipt {
	start := market.Slot(rapid.Uint64Range(1000, 1100).Draw(t, "start"))
	slots := rapid.SliceOfN(rapid.Uint64Range(1, 500), 1, 8).Draw(t, "slots")
	final := rapid.Bool().Draw(t, "final")
	if final && rapid.Bool().Draw(t, "empty final") {
		slots = append(slots, 0)
	}
	return chainOf(t, core, start, slots, final)
}

// What the builder makes is accepted, and so is every beginning of it; any single changed bit is not.
func TestChainAcceptsExactlyWhatWasBuilt(t *testing.T) {
	t.Parallel()
	core := leaseCore(t)
	rapid.Check(t, func(t *rapid.T) {
		rs := genChain(t, core)
		if err := CheckChain(domain, core, rs); err != nil {
			t.Fatal(err)
		}
		if err := CheckChain(domain, core, rs[:1+rapid.IntRange(0, len(rs)-1).Draw(t, "beginning")]); err != nil {
			t.Fatal(err)
		}
		at := rapid.IntRange(0, len(rs)-1).Draw(t, "receipt")
		bit := rapid.IntRange(0, ReceiptSize*8-1).Draw(t, "bit")
		b := rs[at].Marshal()
		b[bit/8] ^= 1 << (bit % 8)
		changed, err := UnmarshalReceipt(b)
		if err != nil {
			return
		}
		bad := append([]Receipt{}, rs...)
		bad[at] = changed
		var broke *ChainError
		if err := CheckChain(domain, core, bad); !errors.As(err, &broke) || broke.Seq < uint64(at)+1 {
			t.Fatalf("bit %d of receipt %d changed: %v", bit, at+1, err)
		}
	})
}

// Every bit of one receipt, not a sample.
func TestEveryBitOfAReceipt(t *testing.T) {
	t.Parallel()
	core := leaseCore(t)
	rs := chainOf(t, core, 1005, []uint64{25, 25, 7}, true)
	good := rs[1].Marshal()
	for bit := range len(good) * 8 {
		b := append([]byte{}, good...)
		b[bit/8] ^= 1 << (bit % 8)
		r, err := UnmarshalReceipt(b)
		if err != nil {
			continue
		}
		if CheckChain(domain, core, []Receipt{rs[0], r, rs[2]}) == nil {
			t.Fatalf("bit %d changed and still accepted", bit)
		}
	}
}

// What two colluding peers may sign, and the rule it breaks. All signatures are right unless said.
func TestChainRules(t *testing.T) {
	t.Parallel()
	core := leaseCore(t)
	rs := chainOf(t, core, 1005, []uint64{25, 25, 25, 7}, true)
	resign := func(i int, change func(*ReceiptCore)) []Receipt {
		out := append([]Receipt{}, rs...)
		c := out[i].ReceiptCore
		change(&c)
		out[i] = signed(t, c)
		return out
	}
	costly := core
	costly.Cap = 100 // 43 slots
	first := chainOf(t, costly, 1005, []uint64{42}, false)[0]
	more := first.ReceiptCore
	more.Seq, more.Prev, more.From, more.To, more.Amount, more.Cumulative = 2, first.Hash(), more.To, more.To+2, 102-more.Cumulative, 102
	for name, c := range map[string]struct {
		core market.LeaseCore
		rs   []Receipt
		seq  uint64
		rule Rule
	}{
		"nothing":             {core, nil, 0, RuleEmpty},
		"gap":                 {core, []Receipt{rs[0], rs[2]}, 2, RuleSeq},
		"no first":            {core, rs[1:], 1, RuleSeq},
		"twice":               {core, []Receipt{rs[0], rs[0]}, 2, RuleSeq},
		"after the final":     {core, append(append([]Receipt{}, rs...), signed(t, ReceiptCore{Version: 1, Lease: core.ID(), Seq: 5})), 5, RuleFinal},
		"version":             {core, resign(1, func(r *ReceiptCore) { r.Version = 2 }), 2, RuleLease},
		"flags":               {core, resign(1, func(r *ReceiptCore) { r.Flags = 2 }), 2, RuleLease},
		"lease":               {core, resign(1, func(r *ReceiptCore) { r.Lease[0]++ }), 2, RuleLease},
		"prev":                {core, resign(1, func(r *ReceiptCore) { r.Prev[0]++ }), 2, RulePrev},
		"first prev":          {core, resign(0, func(r *ReceiptCore) { r.Prev[0]++ }), 1, RulePrev},
		"provider":            {core, resign(1, func(r *ReceiptCore) { r.Provider = other.Key() }), 2, RuleParties},
		"buyer":               {core, resign(1, func(r *ReceiptCore) { r.Buyer = other.Key() }), 2, RuleParties},
		"units":               {core, resign(1, func(r *ReceiptCore) { r.Units++ }), 2, RuleUnits},
		"units root":          {core, resign(1, func(r *ReceiptCore) { r.UnitsRoot[0]++ }), 2, RuleUnits},
		"rank epoch":          {core, resign(1, func(r *ReceiptCore) { r.RankEpoch++ }), 2, RuleRankEpoch},
		"from later":          {core, resign(1, func(r *ReceiptCore) { r.From++ }), 2, RuleFrom},
		"from earlier":        {core, resign(1, func(r *ReceiptCore) { r.From-- }), 2, RuleFrom},
		"first too early":     {core, resign(0, func(r *ReceiptCore) { r.From = 999 }), 1, RuleFrom},
		"first too late":      {core, resign(0, func(r *ReceiptCore) { r.From, r.To = 1101, 1126 }), 1, RuleFrom},
		"empty":               {core, resign(1, func(r *ReceiptCore) { r.To = r.From }), 2, RuleTo},
		"backwards":           {core, resign(1, func(r *ReceiptCore) { r.To = r.From - 1 }), 2, RuleTo},
		"past the lease":      {core, resign(1, func(r *ReceiptCore) { r.To = 401_001 }), 2, RuleTo},
		"amount":              {core, resign(1, func(r *ReceiptCore) { r.Amount++ }), 2, RuleAmount},
		"cumulative":          {core, resign(1, func(r *ReceiptCore) { r.Cumulative++ }), 2, RuleCumulative},
		"over the cap":        {costly, []Receipt{first, signed(t, more)}, 2, RuleCap},
		"provider's by other": {core, func() []Receipt { x := resign(1, func(*ReceiptCore) {}); x[1].ProviderSig = x[1].BuyerSig; return x }(), 2, RuleProvider},
		"buyer's missing":     {core, func() []Receipt { x := resign(1, func(*ReceiptCore) {}); x[1].BuyerSig = sign.Signature{}; return x }(), 2, RuleBuyer},
	} {
		err := CheckChain(domain, c.core, c.rs)
		var broke *ChainError
		if !errors.As(err, &broke) || broke.Seq != c.seq || broke.Rule != c.rule {
			t.Errorf("%s: %v, want rule %s at %d", name, err, c.rule, c.seq)
		}
	}
	elsewhere := domain
	elsewhere.Network = "other"
	var broke *ChainError
	if err := CheckChain(elsewhere, core, rs); !errors.As(err, &broke) || broke.Rule != RuleProvider {
		t.Errorf("another network: %v", err)
	}
	back := resign(2, func(r *ReceiptCore) { r.Supervision = 9 })
	last := back[3].ReceiptCore
	last.Prev = back[2].Hash()
	back[3] = signed(t, last)
	if err := CheckChain(domain, core, back); !errors.As(err, &broke) || broke.Rule != RuleSupervision || broke.Seq != 4 {
		t.Errorf("supervision goes back: %v", err)
	}
}

func voucher(core market.LeaseCore) Voucher {
	return Voucher{Version: VoucherVersion, Lease: core.ID(), Seq: 4, Cumulative: 5000, Horizon: 2000, Supervision: 2}
}

func TestVoucherRules(t *testing.T) {
	t.Parallel()
	set := keySet(t, 2, buyer, provider, other)
	core := leaseCore(t)
	core.VoucherKeys = set.Hash()
	good, err := SignVoucher(domain, voucher(core), set, buyer, other)
	if err != nil {
		t.Fatal(err)
	}
	if err := good.Check(domain, core); err != nil {
		t.Fatal(err)
	}
	again, err := good.With(domain, other)
	if err != nil || len(again.Sigs) != 2 {
		t.Fatalf("signing twice: %d signatures, %v", len(again.Sigs), err)
	}
	all, err := good.With(domain, provider)
	if err != nil || all.Check(domain, core) != nil {
		t.Fatalf("three of two: %v", err)
	}
	resign := func(change func(*Voucher)) SignedVoucher {
		v := good.Voucher
		change(&v)
		s, err := SignVoucher(domain, v, set, buyer, other)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, err := SignVoucher(domain, good.Voucher, set, buyer)
	if err != nil {
		t.Fatal(err)
	}
	lower := good
	lower.Set.Threshold = 1
	double := good
	double.Sigs = []IndexedSignature{good.Sigs[0], good.Sigs[0]}
	beyond := good
	beyond.Sigs = []IndexedSignature{good.Sigs[0], {Index: 3, Signature: good.Sigs[1].Signature}}
	small := good
	small.Set = market.KeySet{Threshold: 1, Keys: []sign.Key{{1}}} // the identity point
	program := domain
	program.Program = sign.Key{9}
	for name, c := range map[string]struct {
		v    SignedVoucher
		d    sign.Domain
		rule Rule
	}{
		"other lease":       {resign(func(v *Voucher) { v.Lease[1]++ }), domain, RuleLease},
		"escrow, free":      {resign(func(v *Voucher) { v.Escrow[1]++ }), domain, RuleDomain},
		"no escrow":         {good, program, RuleDomain},
		"number 0":          {resign(func(v *Voucher) { v.Seq = 0 }), domain, RuleSeq},
		"over the cap":      {resign(func(v *Voucher) { v.Cumulative = core.Cap + 1 }), domain, RuleCap},
		"past the end":      {resign(func(v *Voucher) { v.Horizon = core.End + 1 }), domain, RuleHorizon},
		"one of two":        {one, domain, RuleThreshold},
		"threshold lowered": {lower, domain, RuleKeySet},
		"one key twice":     {double, domain, RuleThreshold},
		"no such key":       {beyond, domain, RuleThreshold},
		"small order key":   {small, domain, RuleKeySet},
		"other network":     {good, sign.Domain{Network: "other", Chain: domain.Chain}, RuleSignature},
		"changed":           {func() SignedVoucher { x := good; x.Cumulative++; return x }(), domain, RuleSignature},
	} {
		var broke *RuleError
		if err := c.v.Check(c.d, core); !errors.As(err, &broke) || broke.Rule != c.rule {
			t.Errorf("%s: %v, want rule %s", name, err, c.rule)
		}
	}
	if _, err := good.With(domain, private("stranger")); err == nil {
		t.Error("a stranger signed")
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	job := sign.Sum([]byte("job"))
	guardians := keySet(t, 2, buyer, provider, other)
	grant := SignedSupervisionGrant{
		SupervisionGrant: SupervisionGrant{Version: GrantVersion, Job: job, Epoch: 3, Supervisor: other.Key(), Guardians: guardians.Hash(), Slot: 77},
		Signatures:       Signatures{Set: guardians},
	}
	var err error
	for _, by := range []sign.Private{buyer, other} {
		if grant, err = grant.With(domain, by); err != nil {
			t.Fatal(err)
		}
	}
	if err := grant.Check(domain, job, guardians.Hash()); err != nil {
		t.Fatal(err)
	}
	rule := func(name string, err error, want Rule) {
		t.Helper()
		var broke *RuleError
		if !errors.As(err, &broke) || broke.Rule != want {
			t.Errorf("%s: %v, want rule %s", name, err, want)
		}
	}
	rule("other job", grant.Check(domain, sign.Hash{1}, guardians.Hash()), RuleLease)
	rule("other guardians", grant.Check(domain, job, sign.Hash{1}), RuleKeySet)
	changed := grant
	changed.Epoch++
	rule("changed", changed.Check(domain, job, guardians.Hash()), RuleSignature)
	changed.Epoch = 0
	rule("epoch 0", changed.Check(domain, job, guardians.Hash()), RuleSupervision)
	half := keySet(t, 1, buyer, provider)
	minority := SignedSupervisionGrant{SupervisionGrant: grant.SupervisionGrant, Signatures: Signatures{Set: half}}
	minority.Guardians = half.Hash()
	if minority, err = minority.With(domain, buyer); err != nil {
		t.Fatal(err)
	}
	rule("half", minority.Check(domain, job, half.Hash()), RuleMajority)
}

// conflictOf is a provider that sold unit 2 to two buyers at once.
func conflictOf(tb interface{ Fatal(...any) }) (Receipt, Receipt, []market.UnitID, []market.UnitID) {
	a := leaseCore(tb)
	b := a
	unitsB := []market.UnitID{{2}, {7}}
	b.Order[0], b.UnitsRoot, b.Units = 9, market.UnitsRoot(unitsB), 2
	return chainOf(tb, a, 1005, []uint64{25}, false)[0], chainOf(tb, b, 1020, []uint64{25}, false)[0], units, unitsB
}

func TestConflict(t *testing.T) {
	t.Parallel()
	a, b, unitsA, unitsB := conflictOf(t)
	c, err := NewConflict(domain, a, b, unitsA, unitsB)
	if err != nil {
		t.Fatal(err)
	}
	if c.Unit != (market.UnitID{2}) {
		t.Fatalf("unit %s", c.Unit)
	}
	mirrored, err := NewConflict(domain, b, a, unitsB, unitsA)
	if err != nil || fmt.Sprint(mirrored) != fmt.Sprint(c) {
		t.Fatalf("the same conflict has two forms: %v", err)
	}
	with := func(change func(*Conflict)) error {
		x := c
		change(&x)
		return CheckConflict(domain, x)
	}
	resign := func(r *Receipt, change func(*ReceiptCore)) {
		change(&r.ReceiptCore)
		*r = signed(t, r.ReceiptCore)
	}
	for name, x := range map[string]struct {
		change func(*Conflict)
		rule   Rule
	}{
		"other provider":        {func(x *Conflict) { x.A.Provider = other.Key() }, RuleParties},
		"one lease":             {func(x *Conflict) { x.B = x.A; x.InB = x.InA }, RuleDifferent},
		"one after other":       {func(x *Conflict) { resign(&x.A, func(r *ReceiptCore) { r.To = x.B.From; r.From = x.B.From - 5 }) }, RuleOverlap},
		"empty":                 {func(x *Conflict) { resign(&x.A, func(r *ReceiptCore) { r.To = r.From }) }, RuleOverlap},
		"other unit":            {func(x *Conflict) { x.Unit[0] = 3 }, RuleUnits},
		"other proof":           {func(x *Conflict) { x.InA, x.InB = x.InB, x.InA }, RuleUnits},
		"provider did not sign": {func(x *Conflict) { x.A.ProviderSig = x.A.BuyerSig }, RuleProvider},
		"buyer did not sign":    {func(x *Conflict) { x.B.BuyerSig = sign.Signature{} }, RuleBuyer},
	} {
		var broke *RuleError
		if err := with(x.change); !errors.As(err, &broke) || broke.Rule != x.rule {
			t.Errorf("%s: %v, want rule %s", name, err, x.rule)
		}
	}
	if err := with(func(x *Conflict) { x.A, x.B, x.InA, x.InB = x.B, x.A, x.InB, x.InA }); !errors.Is(err, market.ErrMalformed) {
		t.Errorf("wrong order: %v", err)
	}
	var broke *RuleError
	if _, err := NewConflict(domain, a, b, []market.UnitID{{1}}, []market.UnitID{{7}}); !errors.As(err, &broke) || broke.Rule != RuleUnits {
		t.Errorf("no common unit: %v", err)
	}
}
