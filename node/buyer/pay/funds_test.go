package pay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/settle"
)

var testGenesis = market.Genesis{Network: "test", Symbol: "STAR", Decimals: 6, SlotMillis: 100, IntervalSlots: 10}

// affording is payments that know the network and the jobs of a peer.
func affording(cfg Config, p *peer) *Payments {
	cfg.Genesis, cfg.Jobs = testGenesis, p
	return &Payments{cfg: cfg, views: newViews(cfg)}
}

// TestAffordNamesTheAllowance: the error of a peer that its owner allows too little names the allowance, and the command
// that renews it. The wallet holds enough.
func TestAffordNamesTheAllowance(t *testing.T) {
	t.Parallel()
	owner, self := sign.Key{7}, sign.Key{8}
	for name, c := range map[string]struct {
		has  chain.Funds
		want string
	}{
		"allowance": {chain.Funds{Balance: 999, Own: 20, Spendable: 110},
			"holds 0.000999 STAR, and its owner lets the peer " + self.String() +
				" spend 0.00011 STAR; allow it more (starling wallet allow)"},
		"wallet": {chain.Funds{Balance: 90, Own: 20, Spendable: 110},
			"holds 0.00009 STAR; lower payment.budget or timeouts.run, or fund the wallet"},
	} {
		c.has.Lamports = 1 << 40
		x := affording(Config{Escrows: Escrows{Chain: purse{has: c.has}}, Self: self, Owner: owner}, newPeer())
		err := x.Afford(t.Context(), "", 320, 1)
		if !errors.Is(err, record.ErrFunds) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// purse is a chain that says what the key can spend.
type purse struct {
	settle.Chain
	has chain.Funds
}

func (p purse) Provide(context.Context, market.Amount) error { return nil }

func (p purse) Funds(context.Context) (chain.Funds, error) { return p.has, nil }

// TestAfford: a job is taken only if the rest pays for it beside the jobs that were taken before and have set nothing
// aside yet. One that is made longer needs no second escrow.
func TestAfford(t *testing.T) {
	t.Parallel()
	fees := func(need market.Amount) uint64 { return affording(Config{}, newPeer()).Lamports(2, need).Most }
	first := account.EscrowRent(1, 0) + anchorRent + account.TrancheRent(2) + fees(600)
	beside := fmt.Sprintf("of which %d are for jobs", first)
	longer := first - account.EscrowRent(1, 0)
	opened := map[string]map[string]record.Escrow{"b": {"o": {Deposited: 500, Refunded: 100}}}
	for name, c := range map[string]struct {
		before   bool // job a was taken and has set nothing aside
		set      bool // job b has set money aside
		have     market.Amount
		lamports uint64
		job      string
		need     market.Amount
		refused  string
	}{
		"enough":              {false, false, 600, first, "", 600, ""},
		"too little":          {false, false, 599, first, "", 600, "holds 0.000599 STAR;"},
		"no rent":             {false, false, 600, first - 1, "", 600, "lamports"},
		"beside another":      {true, false, 1200, 2 * first, "", 600, ""},
		"beside a larger one": {true, false, 1199, 2 * first, "", 600, "of which 0.0006 STAR are for jobs"},
		"no rent beside it":   {true, false, 1200, 2*first - 1, "", 600, beside},
		"it began":            {false, false, 600, first, "", 600, ""},
		"longer":              {false, true, 200, longer, "b", 600, ""},
		"too long":            {false, true, 199, longer, "b", 600, "can cost up to 0.0002 STAR"},
		"no rent for longer":  {false, true, 200, longer - 1, "b", 600, "lamports"},
	} {
		p := newPeer()
		if c.before {
			p.waiting = []Waiting{{Job: "a", Ranks: 2, Most: 600}}
		}
		funds := chain.Funds{Balance: c.have, Spendable: c.have, Lamports: c.lamports}
		x := affording(Config{Escrows: Escrows{Chain: purse{has: funds}}}, p)
		if c.set {
			x.views.shown = opened
		}
		err := x.Afford(t.Context(), c.job, c.need, 2)
		if (err == nil) != (c.refused == "") ||
			err != nil && (!errors.Is(err, record.ErrFunds) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
	}
}
