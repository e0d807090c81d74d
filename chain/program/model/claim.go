package model

import (
	"errors"
	"math/big"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// claims are the calls that pay out of an escrow, or back.
type claims struct{ escrows }

// leaf adds the reasons why a leaf is not one of the tranche's; ok is true without any.
func (t claims) leaf(n account.Tranche, l tranche.Leaf, p tranche.Proof) (ok bool) {
	l.Version = tranche.LeafVersion
	err := p.Verify(tranche.Root{Hash: n.Root, Sum: market.Amount(n.Sum), Count: uint16(len(n.Leaves))}, l)
	for is, rule := range map[error]program.Code{
		tranche.ErrCount: program.ErrIndex, tranche.ErrIndex: program.ErrIndex, tranche.ErrLength: program.ErrPath,
		tranche.ErrSum: program.ErrSum, tranche.ErrOverflow: program.ErrOverflow, tranche.ErrRoot: program.ErrRoot,
		market.ErrMalformed: program.ErrLeaf,
	} {
		t.no(errors.Is(err, is), rule)
	}
	return err == nil
}

// within reads a tranche of an escrow that still pays.
func (t claims) within(escrow, at sign.Key) (e account.Escrow, n account.Tranche, ok bool) {
	e, okE := t.openOne(escrow)
	n, okN := find(t.tx, t.Tranches, at)
	t.no(okN && n.Escrow != escrow, program.ErrAddress)
	return e, n, okE && okN
}

// networkAt reads the escrow's network.
func (t claims) networkAt(e account.Escrow, at sign.Key) (account.Network, bool) {
	t.no(at != e.Network, program.ErrAddress)
	n, ok := t.Networks[at]
	return n, ok
}

// claim: a provider gets min(voucher, cap, rate × slots passed), less earlier payments and the fee; only to the leaf's
// payout, in its associated token account, and nothing after the window's end or the escrow's refund.
func (t claims) claim(c program.Claim) error {
	e, n, ok := t.within(c.Escrow, c.Tranche)
	if !ok {
		return t.refused()
	}
	net, ok := t.networkAt(e, c.Network)
	t.no(c.Vault != e.Vault, program.ErrAddress)
	t.no(c.Destination == c.Vault, program.ErrDuplicate)
	t.no(c.Mint != e.Mint, program.ErrMint)
	to, okTo := t.holding(c.Destination)
	t.no(okTo && to.Mint != c.Mint, program.ErrMint)
	t.known(c.Destination, c.Mint, to.Owner, c.Payee)
	if !ok || !okTo {
		return t.refused()
	}
	s, layout, ok := t.signed(c.Ed, net, sign.TagVoucher, verify.VoucherSize)
	if !ok {
		return t.refused()
	}
	t.signedBy(e, s.Keys)
	v, err := verify.UnmarshalVoucher(layout)
	t.no(err != nil || v.Escrow != c.Escrow, program.ErrVoucher)
	l := c.Leaf
	l.Lease, l.Payout = v.Lease, to.Owner
	if !t.leaf(n, l, c.Proof) || err != nil {
		return t.refused()
	}
	state := n.Leaves[l.Index]
	t.no(state.Window != 0 && t.now > n.Opened+uint64(state.Window), program.ErrRetired)
	passed := min(max(t.now, uint64(l.Start)), uint64(l.End)) - uint64(l.Start)
	earned, err := l.Rate.Owed(passed)
	t.no(err != nil, program.ErrOverflow)
	due := min(uint64(v.Cumulative), uint64(l.Cap)-state.Freed, uint64(earned))
	t.no(due <= state.Paid, program.ErrNothingDue)
	if err := t.refused(); err != nil {
		return err
	}

	bps := net.Rules.Fees[e.MintIndex].FeeBps
	gross, fee := due-state.Paid, ceil(due, bps)-ceil(state.Paid, bps)
	state.Paid = due
	t.setLeaf(c.Tranche, l.Index, state, gross)
	e.Outstanding -= gross
	e.Paid += gross
	e.Fee += fee
	t.Escrows[c.Escrow] = e
	t.moved(c.Vault, c.Destination, gross-fee)
	return nil
}

// ceil and floor are of amount · bps / 10,000.
func ceil(amount uint64, bps uint16) uint64 {
	x := new(big.Int).Mul(new(big.Int).SetUint64(amount), big.NewInt(int64(bps)))
	return x.Add(x, big.NewInt(account.Shares-1)).Div(x, big.NewInt(account.Shares)).Uint64()
}

func floor(amount uint64, bps uint16) uint64 {
	x := new(big.Int).Mul(new(big.Int).SetUint64(amount), big.NewInt(int64(bps)))
	return x.Div(x, big.NewInt(account.Shares)).Uint64()
}

// setLeaf writes the state of a leaf, and reduces the tranche's outstanding amount by less.
func (t claims) setLeaf(at sign.Key, i uint16, state account.LeafState, less uint64) {
	n := t.Tranches[at]
	n.Leaves = slices.Clone(n.Leaves)
	n.Leaves[i] = state
	n.Outstanding -= less
	t.Tranches[at] = n
}

// retireBegin: the buyer, or the voucher keys, give a leaf's provider the response slots to claim, and no more.
func (t claims) retireBegin(c program.RetireBegin) error {
	e, n, ok := t.within(c.Escrow, c.Tranche)
	if !ok {
		return t.refused()
	}
	net, okNet := t.networkAt(e, c.Network)
	if len(c.Signers) != 1 || c.Signers[0] != e.Buyer {
		t.signedBy(e, c.Signers)
	}
	if int(c.Index) >= len(n.Leaves) || !okNet {
		t.no(okNet, program.ErrIndex)
		return t.refused()
	}
	state := n.Leaves[c.Index]
	t.no(state.Window != 0, program.ErrRetired)
	window := max(t.now+uint64(net.Rules.ResponseSlots)-n.Opened, 1)
	t.no(window > 1<<32-1, program.ErrOverflow)
	if err := t.refused(); err != nil {
		return err
	}
	state.Window = uint32(window)
	t.setLeaf(c.Tranche, c.Index, state, 0)
	return nil
}

// retireFinish: after the window the unclaimed rest is free.
func (t claims) retireFinish(c program.RetireFinish) error {
	_, n, ok := t.within(c.Escrow, c.Tranche)
	if !ok || !t.leaf(n, c.Leaf, c.Proof) {
		return t.refused()
	}
	state := n.Leaves[c.Leaf.Index]
	t.no(state.Window == 0 || t.now <= n.Opened+uint64(state.Window), program.ErrEarly)
	return t.freed(c.Escrow, c.Tranche, c.Leaf, left(c.Leaf, state))
}

// left is the rest of a leaf's cap.
func left(l tranche.Leaf, s account.LeafState) uint64 { return uint64(l.Cap) - s.Freed - s.Paid }

// freed frees an amount of a leaf.
func (t claims) freed(escrow, at sign.Key, l tranche.Leaf, amount uint64) error {
	t.no(amount == 0, program.ErrNothingDue)
	if err := t.refused(); err != nil {
		return err
	}
	state := t.Tranches[at].Leaves[l.Index]
	state.Freed += amount
	t.setLeaf(at, l.Index, state, amount)
	e := t.Escrows[escrow]
	e.Outstanding -= amount
	t.Escrows[escrow] = e
	return nil
}

// retireFinal: a provider's signature of its final receipt immediately waives everything beyond it.
func (t claims) retireFinal(c program.RetireFinal) error {
	e, n, ok := t.within(c.Escrow, c.Tranche)
	if !ok {
		return t.refused()
	}
	net, ok := t.networkAt(e, c.Network)
	if !ok {
		return t.refused()
	}
	s, layout, ok := t.signed(c.Ed, net, sign.TagReceipt, verify.ReceiptCoreSize)
	if !ok {
		return t.refused()
	}
	core, err := verify.UnmarshalReceiptCore(layout)
	t.no(err != nil || !core.Final(), program.ErrReceipt)
	t.no(!slices.Equal(s.Keys, []sign.Key{core.Provider}), program.ErrThreshold)
	l := c.Leaf
	l.Provider, l.Lease = core.Provider, core.Lease
	if !t.leaf(n, l, c.Proof) {
		return t.refused()
	}
	state := n.Leaves[l.Index]
	keeps := uint64(core.Cumulative) - min(uint64(core.Cumulative), state.Paid)
	rest := left(l, state)
	return t.freed(c.Escrow, c.Tranche, l, rest-min(rest, keeps))
}

// refund: until the deadline plus margin, the buyer may withdraw the free money. After it, any key may refund
// everything but the fees, and claims fail.
func (t claims) refund(c program.Refund) error {
	e, ok := find(t.tx, t.Escrows, c.Escrow)
	if !ok {
		return t.refused()
	}
	n, ok := t.networkAt(e, c.Network)
	t.no(c.Vault != e.Vault, program.ErrAddress)
	if !ok {
		return t.refused()
	}
	over := t.now > t.sum(e.Deadline, uint64(n.Params.MarginSlots))
	t.no(!over && c.Buyer.IsZero(), program.ErrEarly)
	t.no(!over && !c.Buyer.IsZero() && c.Buyer != e.Buyer, program.ErrAddress)
	ends := over && e.State == account.EscrowOpen
	if ends {
		e.State, e.Outstanding = account.EscrowRefunded, 0
	}
	amount := t.free(e)
	t.no(amount == 0 && !ends, program.ErrNothingDue)
	if amount > 0 {
		t.payBack(e, c.Destination, c.Mint, c.Payee, amount)
	}
	if err := t.refused(); err != nil {
		return err
	}
	if amount > 0 {
		t.moved(c.Vault, c.Destination, amount)
	}
	e.Refunded += amount
	t.Escrows[c.Escrow] = e
	return nil
}

// sweep: fees go to the pool, the treasury and the referrer; the rest, and the shares without a receiver, burn.
func (t claims) sweep(c program.Sweep) error {
	e, ok := find(t.tx, t.Escrows, c.Escrow)
	if !ok {
		return t.refused()
	}
	n, ok := t.networkAt(e, c.Network)
	t.no(c.Vault != e.Vault, program.ErrAddress)
	t.no(c.Mint != e.Mint, program.ErrMint)
	t.no(e.Fee == 0, program.ErrNothingDue)
	if !ok {
		return t.refused()
	}
	terms := n.Terms(int(e.MintIndex))
	total, rest := e.Swept+e.Fee, e.Fee
	share := func(to, owner sign.Key, bps uint16, there bool) uint64 {
		t.no(!there && !to.IsZero(), program.ErrAddress)
		t.no(there && to.IsZero(), program.ErrNotWritable)
		if !there || to.IsZero() {
			return 0
		}
		t.no(to == c.Vault, program.ErrDuplicate)
		t.payee(to, c.Mint, owner)
		due := min(floor(total, bps)-floor(e.Swept, bps), rest) // of totals, so that rounding does not add up
		rest -= due
		return due
	}
	hasPool := n.PaysPool()
	t.no(hasPool && !c.Pool.IsZero() && c.Pool != account.PoolAddress(t.Program, c.Network, c.Mint), program.ErrAddress)
	pool := share(c.Pool, c.Network, terms.PoolBps, hasPool)
	treasury := share(c.Treasury, n.Params.Treasury, terms.TreasuryBps, !n.Params.Treasury.IsZero())
	referrer := share(c.Referrer, e.Referrer, terms.ReferrerBps, !e.Referrer.IsZero())
	if err := t.refused(); err != nil {
		return err
	}
	t.give(c.Vault, c.Pool, pool)
	t.give(c.Vault, c.Treasury, treasury)
	t.give(c.Vault, c.Referrer, referrer)
	t.burned(c.Vault, rest)
	e.Swept, e.Fee = total, 0
	t.Escrows[c.Escrow] = e
	return nil
}

// give moves an amount above zero.
func (t claims) give(from, to sign.Key, amount uint64) {
	if amount > 0 {
		t.moved(from, to, amount)
	}
}
