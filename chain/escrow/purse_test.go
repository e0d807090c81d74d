package escrow_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/starling-network/starling/chain/chaintest/escrowtest"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Only an account's owner spends all of it, and its delegate no more than was approved and is there.
func TestSpendable(t *testing.T) {
	t.Parallel()
	owner, delegate, other := escrowtest.Key("owner"), escrowtest.Key("delegate"), escrowtest.Key("other")
	for name, c := range map[string]struct {
		purse escrow.Purse
		by    sign.Key
		want  market.Amount
	}{
		"owner":                  {escrow.Purse{Owner: owner, Amount: 100}, owner, 100},
		"owner with a delegate":  {escrow.Purse{Owner: owner, Delegate: delegate, Amount: 100, Delegated: 30}, owner, 100},
		"delegate":               {escrow.Purse{Owner: owner, Delegate: delegate, Amount: 100, Delegated: 30}, delegate, 30},
		"delegate of too little": {escrow.Purse{Owner: owner, Delegate: delegate, Amount: 20, Delegated: 30}, delegate, 20},
		"another":                {escrow.Purse{Owner: owner, Delegate: delegate, Amount: 100, Delegated: 30}, other, 0},
		"no account":             {escrow.Purse{}, owner, 0},
	} {
		if got := c.purse.Spendable(c.by); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The amount for which a standby can be hired is at most its budget and the free part of the deposit, and 0 for peers
// that are no parties of the escrow.
func TestHires(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Uint64Range(0, 1000)
		standby := func(name string) account.Standby {
			return account.Standby{Provider: escrowtest.Key(name), Budget: market.Amount(amount.Draw(t, "budget"))}
		}
		e := account.Escrow{State: rapid.SampledFrom([]account.EscrowState{account.EscrowOpen,
			account.EscrowRefunded}).Draw(t, "state"), Buyer: escrowtest.Key("buyer"), Deposited: amount.Draw(t, "deposited"),
			Paid: amount.Draw(t, "paid"), Refunded: amount.Draw(t, "refunded"), Outstanding: amount.Draw(t, "outstanding"),
			Keys:     escrowtest.KeySet(t, 1, "guardian"),
			Standbys: []account.Standby{standby("standby"), standby("standby"), standby("other")}}
		by := rapid.SampledFrom([]string{"buyer", "guardian", "x"}).Draw(t, "by")
		provider := rapid.SampledFrom([]string{"standby", "other", "x"}).Draw(t, "provider")
		got := escrow.Purse{Escrow: &e}.Hires(escrowtest.Key(by), escrowtest.Key(provider))

		var budget market.Amount
		for _, s := range e.Standbys {
			if s.Provider == escrowtest.Key(provider) {
				budget = max(budget, s.Budget)
			}
		}
		free := int64(e.Deposited) - int64(e.Paid+e.Refunded+e.Outstanding)
		want := min(budget, market.Amount(max(free, 0)))
		if by == "x" || e.State != account.EscrowOpen {
			want = 0
		}
		if got != want {
			t.Fatalf("%s hires %s for up to %d, want %d", by, provider, got, want)
		}
	})
	if got := (escrow.Purse{}).Hires(escrowtest.Key("buyer"), escrowtest.Key("x")); got != 0 {
		t.Errorf("without an escrow: %d", got)
	}
}
