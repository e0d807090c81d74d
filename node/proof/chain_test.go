package proof_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/chaintest"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/proof"
	"github.com/starling-network/starling/node/proof/prooftest"
)

// fakeChain has memos of a ledger, and anchors of transactions.
type fakeChain struct {
	chain.Memos
	calls map[chain.TxID]account.Anchored
	err   error // of every call
}

func (c fakeChain) Anchored(context.Context, sign.Key, sign.Hash) (account.Anchored, error) {
	if c.err != nil {
		return account.Anchored{}, c.err
	}
	return account.Anchored{}, chain.ErrNotFound
}

func (c fakeChain) AnchorIn(_ context.Context, tx chain.TxID) (account.Anchored, error) {
	if c.err != nil {
		return account.Anchored{}, c.err
	}
	if a, ok := c.calls[tx]; ok {
		return a, nil
	}
	return account.Anchored{}, chain.ErrNotFound
}

// calls is a chain on which transaction tx made an anchor.
func calls(a account.Anchored) fakeChain {
	return fakeChain{calls: map[chain.TxID]account.Anchored{"tx": a}}
}

func found(t *testing.T, c proof.Content, g market.Genesis) proof.Finding {
	t.Helper()
	f, err := proof.Check(c, g)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The chain confirms the anchors of receipts, or contradicts them.
func TestReceiptsOnChain(t *testing.T) {
	t.Parallel()
	p := prooftest.Receipts()
	right := account.Anchored{
		Authority: prooftest.Key("buyer").Key(), Root: chain.RootOf(p.Hashes()), Count: 6, Slot: 50,
	}
	root, count, by := right, right, right
	root.Root[0]++
	count.Count--
	by.Authority = sign.Key{1}
	for name, c := range map[string]struct {
		on   fakeChain
		rule any
		err  error
		says string
	}{
		"right":          {on: calls(right), says: "checked: the program wrote down these receipts' root"},
		"another root":   {on: calls(root), rule: proof.RuleAnchor},
		"another number": {on: calls(count), rule: proof.RuleAnchor},
		"somebody's":     {on: calls(by), rule: proof.RuleAnchor},
		"not there":      {rule: proof.RuleLanded},
		"away":           {on: fakeChain{err: chain.ErrDown}, err: proof.ErrChain},
	} {
		f := found(t, p, prooftest.Genesis())
		err := f.CheckChain(t.Context(), c.on)
		wantFinding(t, name, f, err, c.rule, c.err, c.says)
	}
	p.Owner = sign.Key{1} // a detached job's
	if f := found(t, p, prooftest.Genesis()); f.CheckChain(t.Context(), calls(by)) != nil {
		t.Error("an anchor by the owner of the job does not count")
	}
	p.Transactions = nil
	f := found(t, p, prooftest.Genesis())
	wantFinding(t, "not anchored", f, f.CheckChain(t.Context(), fakeChain{}), nil, nil, "neither the buyer nor")
}

func wantFinding(t *testing.T, name string, f proof.Finding, err error, rule any, want error, says string) {
	t.Helper()
	if rule != nil {
		if !brokenBy(err, rule) {
			t.Errorf("%s: %v, want rule %v broken", name, err, rule)
		}
		return
	}
	if !errors.Is(err, want) || !strings.Contains(f.Chain, says) || !strings.Contains(text(f), "chain "+f.Chain) {
		t.Errorf("%s: %v, %q, want %v, %q", name, err, f.Chain, want, says)
	}
}

// Each deal of a history is held against the transaction that anchors it.
func TestHistoryOnChain(t *testing.T) {
	t.Parallel()
	h := prooftest.History()
	deal, err := chain.UnmarshalTestimony(h.Receipts[0])
	if err != nil {
		t.Fatal(err)
	}
	right := account.Anchored{
		Authority: prooftest.Key("buyer").Key(), Root: deal.In.Anchor.Root, Count: deal.In.Anchor.Count, Slot: 510,
	}
	root, slot, by := right, right, right
	root.Root[0]++
	slot.Slot++
	by.Authority = sign.Key{1}
	for name, c := range map[string]struct {
		on   fakeChain
		rule any
		err  error
	}{
		"right":        {on: calls(right)},
		"another root": {on: calls(root), rule: proof.RuleAnchor},
		"another slot": {on: calls(slot), rule: proof.RuleAnchor},
		"somebody's":   {on: calls(by), rule: proof.RuleAnchor},
		"not there":    {rule: proof.RuleLanded},
		"no anchor":    {on: fakeChain{err: chain.ErrMalformed}, rule: proof.RuleAnchor},
		"away":         {on: fakeChain{err: chain.ErrDown}, err: proof.ErrChain},
	} {
		f := found(t, h, prooftest.Genesis())
		err := f.CheckChain(t.Context(), c.on)
		says := "checked: each transaction is final"
		if c.err != nil {
			says = "not asked"
		}
		wantFinding(t, name, f, err, c.rule, c.err, says)
	}
}

// Receipts of a history are between the peer and others, and signed and anchored in time.
func TestForgedHistory(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(h *proof.History){
		"another peer":  func(h *proof.History) { h.Peer = sign.Key{1} },
		"no receipt":    func(h *proof.History) { h.Receipts[0] = nil },
		"cut off":       func(h *proof.History) { h.Receipts[0] = h.Receipts[0][:40] },
		"a byte":        func(h *proof.History) { h.Receipts[0][30]++ },
		"last byte":     func(h *proof.History) { h.Receipts[0][len(h.Receipts[0])-1]++ },
		"one and a bad": func(h *proof.History) { h.Receipts = append(h.Receipts, []byte{1}) },
	} {
		h := prooftest.History()
		forge(&h)
		if _, err := proof.Check(h, prooftest.Genesis()); !brokenBy(err, proof.RuleReceipt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	h := prooftest.History()
	h.Peer = prooftest.Key("buyer").Key() // its other side
	if _, err := proof.Check(h, prooftest.Genesis()); err != nil {
		t.Error(err)
	}
}

// An audit's record is under its anchor's root, and that is on chain.
func TestAuditOnChain(t *testing.T) {
	t.Parallel()
	world := chaintest.NewChain(chaintest.Config{})
	l := world.Ledger(sign.Key{1})
	a := prooftest.Audit()
	records := []sign.Hash{{1}, a.Hash(), {3}}
	anchor := chain.Anchor{Of: chain.OfRecords, Root: chain.RootOf(records), Count: 3}
	tx, err := l.SignMemo(t.Context(), anchor.Memo())
	if err == nil {
		err = l.Send(t.Context(), tx)
	}
	if err != nil {
		t.Fatal(err)
	}
	world.Advance(chaintest.FinalBlocks + 2)
	_, slot, err := l.Memo(t.Context(), tx.ID)
	if err != nil {
		t.Fatal(err)
	}
	in := chain.Include(anchor, records, 1, tx.ID, slot)
	other := in
	other.Slot++
	gone := in
	gone.Tx = "nothing"
	down := chaintest.NewChain(chaintest.Config{})
	down.SetDown(true)
	for name, c := range map[string]struct {
		in   chain.Inclusion
		on   chain.Memos
		rule any
		err  error
		says string
	}{
		"right":        {in: in, on: l, says: "checked: it has this root"},
		"another slot": {in: other, on: l, rule: proof.RuleAnchor},
		"not there":    {in: gone, on: l, rule: proof.RuleLanded},
		"away":         {in: in, on: down.Ledger(sign.Key{1}), err: proof.ErrChain, says: "not asked"},
	} {
		a.Anchor = c.in.Marshal()
		f := found(t, a, prooftest.Genesis())
		if said := text(f); !strings.Contains(said, "number 1 of 3 under root") {
			t.Errorf("%s: %s", name, said)
		}
		wantFinding(t, name, f, f.CheckChain(t.Context(), fakeChain{Memos: c.on}), c.rule, c.err, c.says)
	}
	wrong := in
	wrong.Index = 2
	a.Anchor = wrong.Marshal()
	if _, err := proof.Check(a, prooftest.Genesis()); !brokenBy(err, proof.RuleAnchor) {
		t.Errorf("under another place: %v", err)
	}
	a.Anchor = nil
	if _, ok := a.Inclusion(); ok {
		t.Error("a record without an anchor has one")
	}
	if f := found(t, a, prooftest.Genesis()); f.CheckChain(t.Context(), fakeChain{}) != nil || f.Chain != "" {
		t.Errorf("a record without an anchor: %q", f.Chain)
	}
}

// Proofs without anchors ask nobody.
func TestNothingOnChain(t *testing.T) {
	t.Parallel()
	for _, c := range prooftest.All() {
		f := found(t, c, prooftest.Genesis())
		switch c.Kind() {
		case proof.KindReceipts, proof.KindHistory, proof.KindAudit:
		default:
			if err := f.CheckChain(t.Context(), nil); err != nil || f.Chain != "" {
				t.Errorf("%s: %q, %v", c.Kind(), f.Chain, err)
			}
		}
	}
}

// The first form of a dispute's work, run again, names the results that differ from it.
func TestRerunText(t *testing.T) {
	t.Parallel()
	d := prooftest.Dispute(0, 9, 1, 1)
	f := found(t, d, prooftest.Genesis())
	x := f.Detail.(*proof.DisputeDetail)
	for _, c := range []struct {
		result int
		wrong  []int
		says   string
	}{
		{1, []int{0}, "false the results of " + prooftest.Key("a").Key().String()},
		{0, []int{1, 2}, "false the results of " + prooftest.Key("b").Key().String() + ", "},
	} {
		r := d.Results[c.result].Result
		x.Again = &proof.Rerun{Result: r, Wrong: d.Against(r)}
		if said := text(f); !strings.Contains(said, c.says) || len(x.Again.Wrong) != len(c.wrong) {
			t.Errorf("%v: %s", x.Again.Wrong, said)
		}
	}
	x.Again.Wrong = nil
	if said := text(f); !strings.Contains(said, "none of them") {
		t.Error(said)
	}
}
