package proof

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// anchors are those that a program has, by who made them, and those that transactions made.
type anchors struct {
	chain.Memos
	accounts map[sign.Key]program.Anchored
	calls    map[chain.TxID]program.Anchored
	down     bool
}

func (a anchors) Anchored(_ context.Context, by sign.Key, root sign.Hash) (program.Anchored, error) {
	if a.down {
		return program.Anchored{}, chain.ErrDown
	}
	if found, ok := a.accounts[by]; ok && found.Root == root {
		return found, nil
	}
	return program.Anchored{}, chain.ErrNotFound
}

func (a anchors) AnchorIn(_ context.Context, id chain.TxID) (program.Anchored, error) {
	if found, ok := a.calls[id]; ok {
		return found, nil
	}
	return program.Anchored{}, chain.ErrNotFound
}

// A program's account shows that receipts were anchored, and once that is closed the transaction that made it.
func TestCheckAnchors(t *testing.T) {
	t.Parallel()
	root, buyer, provider := sign.Hash{7}, sign.Key{1}, sign.Key{2}
	by := func(k sign.Key, slot uint64) program.Anchored {
		return program.Anchored{Authority: k, Root: root, Count: 3, Slot: slot}
	}
	other, fewer := by(buyer, 9), by(buyer, 9)
	other.Root, fewer.Count = sign.Hash{8}, 2
	account := func(a program.Anchored) map[sign.Key]program.Anchored {
		return map[sign.Key]program.Anchored{a.Authority: a}
	}
	call := func(a program.Anchored) map[chain.TxID]program.Anchored {
		return map[chain.TxID]program.Anchored{"tx": a}
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
		"account and transaction":            {chain: anchors{accounts: account(by(buyer, 40)), calls: call(by(buyer, 40))}, receipts: 3, listed: true, anchored: 1, slot: 40},
		"the account was closed":             {chain: anchors{calls: call(by(buyer, 40))}, receipts: 3, listed: true, slot: 40},
		"the transaction is forgotten":       {chain: anchors{accounts: account(by(buyer, 40))}, receipts: 3, listed: true, anchored: 1, slot: 40},
		"by a provider":                      {chain: anchors{accounts: account(by(provider, 40))}, receipts: 3, anchored: 1},
		"by nobody":                          {receipts: 3},
		"no receipts":                        {chain: anchors{accounts: account(by(buyer, 40)), down: true}},
		"both are gone":                      {receipts: 3, listed: true, rule: RuleLanded},
		"forgotten, and only the provider's": {chain: anchors{accounts: account(by(provider, 40))}, receipts: 3, listed: true, rule: RuleLanded},
		"transaction with another root":      {chain: anchors{accounts: account(by(buyer, 40)), calls: call(other)}, receipts: 3, listed: true, rule: RuleAnchor},
		"transaction with another number":    {chain: anchors{calls: call(fewer)}, receipts: 3, listed: true, rule: RuleAnchor},
		"somebody else's transaction":        {chain: anchors{calls: call(by(provider, 40))}, receipts: 3, listed: true, rule: RuleAnchor},
		"account with another number":        {chain: anchors{accounts: account(fewer)}, receipts: 3, rule: RuleAnchor},
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
