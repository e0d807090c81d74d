package proof

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// anchors are those that a program has, by who made them, and those that transactions made.
type anchors struct {
	chain.Memos
	accounts map[sign.Key]account.Anchored
	calls    map[chain.TxID]account.Anchored
	down     bool
}

func (a anchors) Anchored(_ context.Context, by sign.Key, root sign.Hash) (account.Anchored, error) {
	if a.down {
		return account.Anchored{}, chain.ErrDown
	}
	if found, ok := a.accounts[by]; ok && found.Root == root {
		return found, nil
	}
	return account.Anchored{}, chain.ErrNotFound
}

func (a anchors) AnchorIn(_ context.Context, id chain.TxID) (account.Anchored, error) {
	if found, ok := a.calls[id]; ok {
		return found, nil
	}
	return account.Anchored{}, chain.ErrNotFound
}

// A program's account shows that receipts were anchored, and once that is closed the transaction that made it.
func TestCheckAnchors(t *testing.T) {
	t.Parallel()
	root, buyer, provider := sign.Hash{7}, sign.Key{1}, sign.Key{2}
	by := func(k sign.Key, slot uint64) account.Anchored {
		return account.Anchored{Authority: k, Root: root, Count: 3, Slot: slot}
	}
	other, fewer := by(buyer, 9), by(buyer, 9)
	other.Root, fewer.Count = sign.Hash{8}, 2
	at := func(a account.Anchored) map[sign.Key]account.Anchored {
		return map[sign.Key]account.Anchored{a.Authority: a}
	}
	call := func(a account.Anchored) map[chain.TxID]account.Anchored {
		return map[chain.TxID]account.Anchored{"tx": a}
	}
	for name, c := range map[string]struct {
		chain    anchors
		receipts int
		listed   bool // the transaction
		anchored int
		slot     market.Slot // of the transaction
		rule     verify.Rule
		err      error
	}{
		"account and transaction":            {chain: anchors{accounts: at(by(buyer, 40)), calls: call(by(buyer, 40))}, receipts: 3, listed: true, anchored: 1, slot: 40},
		"the account was closed":             {chain: anchors{calls: call(by(buyer, 40))}, receipts: 3, listed: true, slot: 40},
		"the transaction is forgotten":       {chain: anchors{accounts: at(by(buyer, 40))}, receipts: 3, listed: true, anchored: 1, slot: 40},
		"by a provider":                      {chain: anchors{accounts: at(by(provider, 40))}, receipts: 3, anchored: 1},
		"by nobody":                          {receipts: 3},
		"no receipts":                        {chain: anchors{accounts: at(by(buyer, 40)), down: true}},
		"both are gone":                      {receipts: 3, listed: true, rule: RuleLanded},
		"forgotten, and only the provider's": {chain: anchors{accounts: at(by(provider, 40))}, receipts: 3, listed: true, rule: RuleLanded},
		"transaction with another root":      {chain: anchors{accounts: at(by(buyer, 40)), calls: call(other)}, receipts: 3, listed: true, rule: RuleAnchor},
		"transaction with another number":    {chain: anchors{calls: call(fewer)}, receipts: 3, listed: true, rule: RuleAnchor},
		"somebody else's transaction":        {chain: anchors{calls: call(by(provider, 40))}, receipts: 3, listed: true, rule: RuleAnchor},
		"account with another number":        {chain: anchors{accounts: at(fewer)}, receipts: 3, rule: RuleAnchor},
		"the chain is away":                  {chain: anchors{down: true}, receipts: 3, err: ErrChain},
	} {
		v := Verdict{Buyer: buyer, Leases: []LeaseVerdict{{Provider: provider}, {Provider: provider}}, Receipts: c.receipts, Root: root, Owed: 5,
			Genesis: market.Genesis{Program: sign.Key{5}}}
		if c.listed {
			v.Transactions = []TxVerdict{{ID: "tx"}}
		}
		err := v.CheckAnchors(t.Context(), c.chain)
		said := "matches"
		if len(c.chain.calls) == 0 {
			said = "not found, but the buyer's account matches"
		}
		var rule *BrokenRule
		switch errors.As(err, &rule); {
		case c.rule != "":
			if rule == nil || rule.Rule != c.rule {
				t.Errorf("%s: %v, want rule %s broken", name, err, c.rule)
			}
		case !errors.Is(err, c.err):
			t.Errorf("%s: %v", name, err)
		case err == nil && (len(v.Anchors) != c.anchored || c.listed && (v.Transactions[0].Slot != c.slot || v.Transactions[0].Anchor != said)):
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// A free network's receipts are anchored nowhere.
func TestCheckAnchorsFree(t *testing.T) {
	t.Parallel()
	v := Verdict{Genesis: market.Genesis{Free: true}, Receipts: 3, Root: sign.Hash{7}}
	if err := v.CheckAnchors(t.Context(), nil); err != nil || !strings.Contains(v.Chain, "free") {
		t.Errorf("%q, %v", v.Chain, err)
	}
	v.Transactions = []TxVerdict{{ID: "tx"}}
	var rule *BrokenRule
	if err := v.CheckAnchors(t.Context(), nil); !errors.As(err, &rule) || rule.Rule != RuleAnchor {
		t.Errorf("a transaction of a free network: %v", err)
	}
}
