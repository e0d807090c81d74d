package account_test

import (
	"errors"
	"testing"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/program/account/accounttest"
	"github.com/starling-network/starling/market"
)

func TestParamsRefuse(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*account.Params){
		"no name":                       func(p *account.Params) { p.Network = "" },
		"a bad name":                    func(p *account.Params) { p.Network = "Test" },
		"evidence as old as unbonding":  func(p *account.Params) { p.EvidenceSlots = p.UnbondingSlots },
		"no time to respond":            func(p *account.Params) { p.ResponseSlots = 0 },
		"no mint":                       func(p *account.Params) { p.Mints = nil },
		"five mints":                    func(p *account.Params) { p.Mints = make([]account.MintTerms, 5) },
		"a mint twice":                  func(p *account.Params) { p.Mints[1].Mint = p.Mints[0].Mint },
		"fee too low":                   func(p *account.Params) { p.Mints[0].FeeBps = account.MinFeeBps - 1 },
		"fee too high":                  func(p *account.Params) { p.Mints[0].FeeBps = account.MaxFeeBps + 1 },
		"burns too little":              func(p *account.Params) { p.Mints[0].BurnBps, p.Mints[0].PoolBps = 1999, 5501 },
		"shares below the whole":        func(p *account.Params) { p.Mints[0].PoolBps-- },
		"shares that wrap to the whole": func(p *account.Params) { p.Mints[0].PoolBps, p.Mints[0].TreasuryBps = 0xffff, 0xffff },
		"no lock":                       func(p *account.Params) { p.Votes.LockSlots = 0 },
		"votes with nothing bonded":     func(p *account.Params) { p.Votes.LeastBonded = 0 },
		"ballots by who bonded nothing": func(p *account.Params) { p.Votes.LeastBond = 0 },
		"terms for votes without any":   func(p *account.Params) { p.Votes.VotingSlots = 0 },
		"epochs without slots":          func(p *account.Params) { p.Votes.EpochSlots = 0 },
		"months without epochs":         func(p *account.Params) { p.Votes.EpochsOfMonth = 0 },
		"months without end":            func(p *account.Params) { p.Votes.EpochSlots = 1 << 60 },
		"too many decimals":             func(p *account.Params) { p.Mints[0].Decimals = market.MaxDecimals + 1 },
	} {
		p := accounttest.Params()
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if !errors.Is(p.Validate(), account.ErrParams) {
			t.Errorf("%s is taken", name)
		}
		if _, err := account.UnmarshalParams(p.Marshal()); err == nil {
			t.Errorf("%s reads back", name)
		}
	}
	if a, b := accounttest.Params(), accounttest.Params(); true {
		b.MinStake++
		if account.NetworkAddress(accounttest.Key(1), a) == account.NetworkAddress(accounttest.Key(1), b) {
			t.Error("two networks have one address")
		}
	}
}
