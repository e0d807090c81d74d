package account_test

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// TestRulesAllowed: windows are once to four times the parameter, the least stake a quarter to four times, fees within
// every network's limits.
func TestRulesAllowed(t *testing.T) {
	t.Parallel()
	p := accounttest.Params()
	p.ResponseSlots, p.UnbondingSlots, p.MinStake = 200, 1000, 77
	for name, c := range map[string]struct {
		change func(*account.Rules)
		ok     bool
	}{
		"the parameters' own":     {func(*account.Rules) {}, true},
		"a shorter response":      {func(r *account.Rules) { r.ResponseSlots = 199 }, false},
		"the longest response":    {func(r *account.Rules) { r.ResponseSlots = 800 }, true},
		"a longer response":       {func(r *account.Rules) { r.ResponseSlots = 801 }, false},
		"an endless response":     {func(r *account.Rules) { r.ResponseSlots = math.MaxUint32 }, false},
		"a shorter unbonding":     {func(r *account.Rules) { r.UnbondingSlots = 999 }, false},
		"the longest unbonding":   {func(r *account.Rules) { r.UnbondingSlots = 4000 }, true},
		"a longer unbonding":      {func(r *account.Rules) { r.UnbondingSlots = 4001 }, false},
		"an endless unbonding":    {func(r *account.Rules) { r.UnbondingSlots = math.MaxUint64 }, false},
		"too small a stake":       {func(r *account.Rules) { r.MinStake = 18 }, false},
		"the smallest stake":      {func(r *account.Rules) { r.MinStake = 19 }, true},
		"the largest stake":       {func(r *account.Rules) { r.MinStake = 308 }, true},
		"too large a stake":       {func(r *account.Rules) { r.MinStake = 309 }, false},
		"a stake that would wrap": {func(r *account.Rules) { r.MinStake = 1 << 63 }, false},
		"a fee less":              {func(r *account.Rules) { r.Fees = r.Fees[:1] }, false},
		"a fee more":              {func(r *account.Rules) { r.Fees = append(r.Fees, r.Fees[0]) }, false},
		"the least fee":           {func(r *account.Rules) { r.Fees[0].FeeBps = account.MinFeeBps }, true},
		"too low a fee":           {func(r *account.Rules) { r.Fees[0].FeeBps = account.MinFeeBps - 1 }, false},
		"too high a fee":          {func(r *account.Rules) { r.Fees[1].FeeBps = account.MaxFeeBps + 1 }, false},
		"burns least":             {func(r *account.Rules) { r.Fees[1] = account.Fees{FeeBps: 10, BurnBps: 2000, PoolBps: 8000} }, true},
		"burns too little":        {func(r *account.Rules) { r.Fees[1] = account.Fees{FeeBps: 10, BurnBps: 1999, PoolBps: 8001} }, false},
		"shares of less":          {func(r *account.Rules) { r.Fees[1].TreasuryBps-- }, false},
		"shares of more":          {func(r *account.Rules) { r.Fees[1].ReferrerBps++ }, false},
	} {
		r := p.Rules()
		c.change(&r)
		if err := p.Allows(r); (err == nil) != c.ok || err != nil && !errors.Is(err, account.ErrParams) {
			t.Errorf("%s: %v, want allowed %v", name, err, c.ok)
		}
	}
}

// TestTerms: a network's terms are its mint with the fees that hold now.
func TestTerms(t *testing.T) {
	t.Parallel()
	n := accounttest.Network()
	for i, m := range n.Params.Mints {
		want := m
		want.FeeBps, want.BurnBps, want.PoolBps = n.Rules.Fees[i].FeeBps, n.Rules.Fees[i].BurnBps, n.Rules.Fees[i].PoolBps
		want.TreasuryBps, want.ReferrerBps = n.Rules.Fees[i].TreasuryBps, n.Rules.Fees[i].ReferrerBps
		if got := n.Terms(i); got != want || got.Fees() != n.Rules.Fees[i] || got == m {
			t.Errorf("mint %d: %+v, want %+v", i, got, want)
		}
	}
	first := account.NewNetwork(n.Params)
	for i, m := range n.Params.Mints {
		if got := first.Terms(i); got != m {
			t.Errorf("mint %d of a new network: %+v, want %+v", i, got, m)
		}
	}
	if first.Authority != n.Params.Authority || n.Params.Allows(first.Rules) != nil {
		t.Errorf("a new network: %+v", first)
	}
	p := n.Params
	if p.Mints = []account.MintTerms{account.DefaultTerms(accounttest.Key(1), market.MaxDecimals)}; p.Validate() != nil {
		t.Errorf("the default terms: %v", p.Validate())
	}
}

// TestPaysPool: somebody must be able to pay out of the pool.
func TestPaysPool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ authority, votes, want bool }{
		{false, false, false}, {true, false, true}, {false, true, true}, {true, true, true},
	} {
		n := accounttest.Network()
		if !c.authority {
			n.Authority = sign.Key{}
		}
		if !c.votes {
			n.Params.Votes = account.Votes{}
		}
		if got := n.PaysPool(); got != c.want {
			t.Errorf("authority %v, votes %v: %v", c.authority, c.votes, got)
		}
	}
}

// TestEpochEnd compares with integers of any length: an end past the last slot is the last slot.
func TestEpochEnd(t *testing.T) {
	t.Parallel()
	edge := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 1000), rapid.Uint64Range(math.MaxUint64-5, math.MaxUint64))
	rapid.Check(t, func(t *rapid.T) {
		v := account.Votes{FirstSlot: edge.Draw(t, "first"), EpochSlots: edge.Draw(t, "slots")}
		epoch := edge.Draw(t, "epoch")
		b := func(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
		end := b(epoch)
		end.Add(end, big.NewInt(1)).Mul(end, b(v.EpochSlots)).Add(end, b(v.FirstSlot))
		want := uint64(math.MaxUint64)
		if end.IsUint64() {
			want = end.Uint64()
		}
		if got := v.EpochEnd(epoch); got != want {
			t.Fatalf("epoch %d of %d slots from %d ends at %d, want %d", epoch, v.EpochSlots, v.FirstSlot, got, want)
		}
	})
	v := account.Votes{EpochSlots: 7, EpochsOfMonth: 5}
	if v.Month() != 35 || v.Claiming() != 105 || v.On() || !accounttest.Params().Votes.On() {
		t.Errorf("a month of %d slots, claims for %d; on: %v", v.Month(), v.Claiming(), v.On())
	}
}

// TestCarried compares with integers of any length: rules need more than half of all and twice those against, rewards
// two thirds of all.
func TestCarried(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total, yes, no uint64
		rules, rewards bool
	}{
		{9, 6, 3, false, false}, {9, 7, 2, true, true}, {9, 5, 2, true, false}, {9, 5, 3, false, false},
		{10, 5, 0, false, false}, {10, 6, 0, true, false}, {10, 7, 0, true, true}, {0, 0, 0, false, false},
		{math.MaxUint64, math.MaxUint64, 0, true, true}, {math.MaxUint64, 1 << 63, 1 << 62, false, false},
	} {
		b := account.Ballot{Total: c.total, For: c.yes, Against: c.no, Subject: account.SubjectRules}
		if got := b.Carried(); got != c.rules {
			t.Errorf("rules with %d for and %d against of %d: %v", c.yes, c.no, c.total, got)
		}
		if b.Subject = account.SubjectRewards; b.Carried() != c.rewards {
			t.Errorf("rewards with %d for and %d against of %d: %v", c.yes, c.no, c.total, b.Carried())
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint64().Draw(t, "total")
		yes := rapid.Uint64Range(0, total).Draw(t, "for")
		no := rapid.Uint64Range(0, total-yes).Draw(t, "against")
		b := func(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
		more := func(a uint64, times int64, of uint64) bool {
			return b(a).Cmp(new(big.Int).Mul(b(of), big.NewInt(times))) > 0
		}
		x := account.Ballot{Total: total, For: yes, Against: no, Subject: account.SubjectRules}
		if want := more(yes, 2, no) && more(yes, 1, total-yes); x.Carried() != want {
			t.Fatalf("rules: %v, want %v", x.Carried(), want)
		}
		if x.Subject = account.SubjectRewards; x.Carried() != more(yes, 2, total-yes) {
			t.Fatalf("rewards: %v", x.Carried())
		}
	})
}

// TestTopic: a provider votes once on each ballot about rules, but once on an epoch's rewards of a source.
func TestTopic(t *testing.T) {
	t.Parallel()
	one, two := accounttest.Key(1), accounttest.Key(2)
	rules, rewards := accounttest.Ballot(account.SubjectRules), accounttest.Ballot(account.SubjectRewards)
	if rules.Topic(one) != sign.Hash(one) || rules.Topic(two) != sign.Hash(two) {
		t.Errorf("two ballots on rules: %s, %s", rules.Topic(one), rules.Topic(two))
	}
	if rewards.Topic(one) != rewards.Topic(two) {
		t.Error("two ballots on one epoch's rewards have two topics")
	}
	for name, change := range map[string]func(*account.Ballot){
		"network": func(b *account.Ballot) { b.Network[0] ^= 1 },
		"source":  func(b *account.Ballot) { b.Rewards.Source++ },
		"epoch":   func(b *account.Ballot) { b.Rewards.Epoch++ },
	} {
		b := rewards
		if change(&b); b.Topic(one) == rewards.Topic(one) {
			t.Errorf("another %s has the same topic", name)
		}
	}
	same := rewards
	if same.Rewards.Root[0] ^= 1; same.Topic(one) != rewards.Topic(one) {
		t.Error("another root for the same epoch has another topic")
	}
}

// TestLeft: paid, freed and left make up a leaf's cap, and nothing is left of less.
func TestLeft(t *testing.T) {
	t.Parallel()
	edge := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 20))
	rapid.Check(t, func(t *rapid.T) {
		s := account.LeafState{Paid: edge.Draw(t, "paid"), Freed: edge.Draw(t, "freed")}
		most := edge.Draw(t, "cap")
		gone := new(big.Int).Add(new(big.Int).SetUint64(s.Paid), new(big.Int).SetUint64(s.Freed))
		want := new(big.Int).Sub(new(big.Int).SetUint64(most), gone)
		if want.Sign() < 0 {
			want.SetInt64(0)
		}
		if got := s.Left(market.Amount(most)); got != want.Uint64() {
			t.Fatalf("%d paid and %d freed of %d: %d left, want %s", s.Paid, s.Freed, most, got, want)
		}
	})
}

// TestParamsHash: each field of the parameters is in their hash, and so in the network's address.
func TestParamsHash(t *testing.T) {
	t.Parallel()
	seen := map[sign.Hash]string{accounttest.Params().Hash(): "the parameters"}
	for name, change := range map[string]func(*account.Params){
		"network":   func(p *account.Params) { p.Network = "tesu" },
		"chain":     func(p *account.Params) { p.Chain[31] ^= 1 },
		"treasury":  func(p *account.Params) { p.Treasury[31] ^= 1 },
		"authority": func(p *account.Params) { p.Authority[31] ^= 1 },
		"mint":      func(p *account.Params) { p.StakeMint[31] ^= 1 },
		"margin":    func(p *account.Params) { p.MarginSlots++ },
		"response":  func(p *account.Params) { p.ResponseSlots++ },
		"unbonding": func(p *account.Params) { p.UnbondingSlots++ },
		"evidence":  func(p *account.Params) { p.EvidenceSlots-- },
		"stake":     func(p *account.Params) { p.MinStake++ },
		"audits":    func(p *account.Params) { p.AuditSlots++ },
		"voting":    func(p *account.Params) { p.Votes.VotingSlots++ },
		"lock":      func(p *account.Params) { p.Votes.LockSlots++ },
		"bonded":    func(p *account.Params) { p.Votes.LeastBonded++ },
		"bond":      func(p *account.Params) { p.Votes.LeastBond++ },
		"emission":  func(p *account.Params) { p.Votes.Emission++ },
		"first":     func(p *account.Params) { p.Votes.FirstSlot++ },
		"epoch":     func(p *account.Params) { p.Votes.EpochSlots++ },
		"month":     func(p *account.Params) { p.Votes.EpochsOfMonth++ },
		"mints":     func(p *account.Params) { p.Mints = p.Mints[:1] },
		"a fee":     func(p *account.Params) { p.Mints[1].FeeBps-- },
		"decimals":  func(p *account.Params) { p.Mints[1].Decimals-- },
		"order":     func(p *account.Params) { p.Mints[0], p.Mints[1] = p.Mints[1], p.Mints[0] },
	} {
		p := accounttest.Params()
		change(&p)
		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if was := seen[p.Hash()]; was != "" {
			t.Errorf("other %s hash as %s", name, was)
		}
		seen[p.Hash()] = name
		if got, err := account.UnmarshalParams(p.Marshal()); err != nil || got.Hash() != p.Hash() ||
			len(p.Marshal()) != account.ParamsSize(len(p.Mints)) {
			t.Errorf("%s come back as %+v, %v", name, got, err)
		}
	}
	d := accounttest.Params().Domain(accounttest.Key(1))
	if want := (sign.Domain{Network: "test", Chain: accounttest.Hash(2), Program: accounttest.Key(1)}); d != want {
		t.Errorf("signed in %+v, want %+v", d, want)
	}
}
