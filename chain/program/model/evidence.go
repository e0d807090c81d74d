package model

import (
	"bytes"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
)

// evidence are the calls that write down receipts, or slash by them.
type evidence struct{ *tx }

// signed reads the precompile's checks in instruction number i of the transaction: keys, signatures, and the layout of
// size bytes that is signed under the tag on this network. ok is false if there are none.
func (t *tx) signed(i uint8, n account.Network, tag sign.Tag, size int) (s svm.Signed, layout []byte, ok bool) {
	switch {
	case int(i) > len(t.beside):
		t.no(true, program.ErrNoInstruction)
		return s, nil, false
	case int(i) == len(t.beside): // the call itself
		t.no(true, program.ErrPrecompile)
		return s, nil, false
	}
	s = t.beside[i]
	if len(s.Keys) > svm.MaxSignatures || len(s.Message) != sign.PrefixSize+size {
		t.no(true, program.ErrPrecompile)
		return s, nil, false
	}
	layout = s.Message[sign.PrefixSize:]
	if !bytes.Equal(n.Params.Domain(t.Program).Preimage(tag, layout), s.Message) {
		t.no(true, program.ErrMessage)
		return s, nil, false
	}
	return s, layout, true
}

// attest: a receipt that provider and buyer signed on this network is written down.
func (t evidence) attest(c program.Attest) error {
	n, ok := find(t.tx, t.Networks, c.Network)
	if !ok {
		return t.refused()
	}
	s, layout, ok := t.signed(c.Ed, n, sign.TagReceipt, verify.ReceiptCoreSize)
	if !ok {
		return t.refused()
	}
	core, err := verify.UnmarshalReceiptCore(layout)
	t.no(err != nil, program.ErrReceipt)
	t.no(!slices.Equal(s.Keys, []sign.Key{core.Provider, core.Buyer}), program.ErrSigner)
	at, bump := svm.FindAddress(t.Program, program.AttestedSeeds(c.Network, c.Reporter, core.Hash())...)
	t.create(c.Attested, at)
	if err := t.refused(); err != nil {
		return err
	}
	t.Attested[at] = program.Attested{Bump: bump, Network: c.Network, Reporter: c.Reporter, Core: core, Slot: t.now}
	t.pay(c.Reporter, program.AttestedSize)
	return nil
}

// closeAttested: the reporter of a receipt takes the rent back.
func (t evidence) closeAttested(c program.CloseAttested) error {
	a, ok := find(t.tx, t.Attested, c.Attested)
	t.no(ok && a.Reporter != c.Reporter, program.ErrNotReporter)
	if err := t.refused(); err != nil {
		return err
	}
	delete(t.Attested, c.Attested)
	t.repay(a.Reporter, program.AttestedSize)
	return nil
}

// slash: a provider that sold one unit twice at one time loses everything. At least half burns. The two buyers come
// first with their payments, the reporter gets at most a quarter of the rest, and the remainder burns too, as do
// amounts that cannot be paid.
func (t evidence) slash(c program.Slash) error {
	p, okP := find(t.tx, t.Providers, c.Provider)
	n, okN := t.networkOf(p, okP, c.Network)
	a, okA := find(t.tx, t.Attested, c.A)
	b, okB := find(t.tx, t.Attested, c.B)
	t.no(okP && c.Vault != account.StakeAddress(t.Program, c.Provider), program.ErrAddress)
	if !okP || !okN || !okA || !okB {
		return t.refused()
	}
	t.no(a.Network != c.Network || b.Network != c.Network, program.ErrOtherNetwork)
	t.no(a.Reporter != b.Reporter, program.ErrReporters)
	t.conflict(a.Core, b.Core, c)
	t.no(p.Peer != a.Core.Provider, program.ErrNotItsKey)
	for _, r := range []verify.ReceiptCore{a.Core, b.Core} {
		to := uint64(r.To)
		t.no(to > t.now, program.ErrNotOver)
		t.no(add(to, n.Params.EvidenceSlots) < t.now, program.ErrTooOld)
		t.no(to <= p.Slashed, program.ErrSlashedBefore)
	}
	total := t.sum(p.Stake, p.Unbonding)
	t.no(total == 0, program.ErrNothingStaked)
	t.mint(c.Mint)
	t.no(t.Tokens[c.Vault].Mint != c.Mint, ErrToken)
	payees := [3]struct{ at, owner sign.Key }{{c.VictimA, a.Core.Buyer}, {c.VictimB, b.Core.Buyer},
		{c.Reporter, a.Reporter}}
	for _, to := range payees {
		t.no(!has(t.Tokens, to.at), program.ErrOwner)
		t.known(to.at, c.Mint, to.owner, sign.Key{})
	}
	if err := t.refused(); err != nil {
		return err
	}

	s := program.TakenFor(total, uint64(a.Core.Cumulative), uint64(b.Core.Cumulative))
	for i, amount := range [3]uint64{s.VictimA, s.VictimB, s.Reporter} {
		if to := t.Tokens[payees[i].at]; to.Plain && to.Owner == payees[i].owner {
			t.moved(c.Vault, payees[i].at, amount)
		} else { // it was frozen, handed on, or lent to be closed
			t.burned(c.Vault, amount)
		}
	}
	t.burned(c.Vault, s.Burned)
	t.unbonded(p.Network, p.Bonded)
	p.Stake, p.Bonded, p.Unbonding, p.Ready, p.Slashed, p.WasSlashed = 0, 0, 0, 0, t.now, true
	t.Providers[c.Provider] = p
	return nil
}

// conflict: one provider, two leases in order, a slot in common, and the unit in both.
func (t evidence) conflict(a, b verify.ReceiptCore, c program.Slash) {
	order := bytes.Compare(a.Lease[:], b.Lease[:])
	t.no(a.Provider != b.Provider, program.ErrParties)
	t.no(order == 0, program.ErrOneLease)
	t.no(order > 0, program.ErrLeaseOrder)
	t.no(max(a.From, b.From) >= min(a.To, b.To), program.ErrNoOverlap)
	t.unit(a, c.Unit, c.InA)
	t.unit(b, c.Unit, c.InB)
}

func (t evidence) unit(r verify.ReceiptCore, unit market.UnitID, in market.UnitProof) {
	t.no(in.Units != r.Units, program.ErrUnitCount)
	t.path(r.UnitsRoot, unit[:], uint64(in.Index), uint64(in.Units), in.Path)
}

// path: data is leaf number index of count under the root.
func (t *tx) path(root sign.Hash, data []byte, index, count uint64, path merkle.Proof) {
	if index >= count || count > program.MaxAnchored {
		t.no(true, program.ErrIndex)
		return
	}
	needed := 0
	for at, width := index, count; width > 1; at, width = at/2, (width+1)/2 {
		if at^1 < width {
			needed++
		}
	}
	t.no(len(path) != needed, program.ErrPath)
	t.no(len(path) == needed && path.Verify(root, data, int(index), int(count)) != nil, program.ErrRoot)
}

// anchor: any key records a root, once.
func (t evidence) anchor(c program.Anchor) error {
	t.no(c.Count == 0 || c.Count > program.MaxAnchored, program.ErrIndex)
	t.create(c.Anchor, account.AnchorAddress(t.Program, c.Authority, c.Root))
	if err := t.refused(); err != nil {
		return err
	}
	t.Anchors[c.Anchor] = account.Anchored{Authority: c.Authority, Root: c.Root, Count: c.Count, Slot: t.now}
	t.pay(c.Authority, account.AnchorSize)
	return nil
}

// prove succeeds for leaves under an anchor, and changes nothing.
func (t evidence) prove(c program.Prove) error {
	a, ok := find(t.tx, t.Anchors, c.Anchor)
	if ok {
		t.path(a.Root, c.Receipt[:], c.Index, a.Count, c.Path)
	}
	return t.refused()
}

// closeAnchor: its author takes the rent back.
func (t evidence) closeAnchor(c program.CloseAnchor) error {
	a, ok := find(t.tx, t.Anchors, c.Anchor)
	t.no(ok && a.Authority != c.Authority, program.ErrAddress)
	if err := t.refused(); err != nil {
		return err
	}
	delete(t.Anchors, c.Anchor)
	t.repay(a.Authority, account.AnchorSize)
	return nil
}
