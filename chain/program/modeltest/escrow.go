package modeltest

import (
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/tranche"
)

// escrowCalls makes the calls about one escrow of a world.
type escrowCalls struct{ *World }

// guardians are 2 of 3.
func (w *World) guardians() market.KeySet {
	ks, err := market.NewKeySet(2, w.people[4].Key(), w.people[5].Key(), w.people[6].Key())
	if err != nil {
		w.t.Fatal(err)
	}
	return ks
}

func (w escrowCalls) openEscrow() (program.Call, []svm.Signed) {
	network, n, ok := pick(w.World, w.Networks)
	if !ok || len(w.Escrows) > 2 && !w.oneIn(6) {
		return nil, nil
	}
	buyer := w.people[w.upTo(2)].Key()
	c := program.OpenEscrow{
		Payer: w.person(), Buyer: buyer, Network: network, Order: market.OrderID(sign.Sum([]byte{byte(w.upTo(3))})),
		Opened: w.Slot, Deadline: w.Slot + one(w.World, []uint64{1, 30, 200, 200, 1000}), Deposit: 1 + w.amount(40_000),
		RefundOwner: w.person(), MintIndex: uint8(w.choice(len(n.Params.Mints))),
	}
	if w.oneIn(4) {
		c.Opened -= w.upTo(account.OpeningSlots + 1)
	}
	if w.oneIn(2) {
		c.Referrer = w.person()
	}
	c.Mint = n.Params.Mints[c.MintIndex].Mint
	c.Authority = w.person()
	c.Keys = market.KeySet{Threshold: 1, Keys: []sign.Key{buyer}}
	if w.oneIn(2) {
		c.Keys = w.guardians()
		c.Payer, c.Authority = buyer, buyer // or the signatures would not fit
		for range w.choice(3) {
			c.Standbys = append(c.Standbys, account.Standby{Provider: w.person(), Payout: w.person(),
				MaxRate: 3_000_000, Budget: amountOf(w.amount(5000))})
		}
	}
	c.Source = Account(c.Authority, c.Mint)
	c.Escrow = account.EscrowAddress(w.Program, network, buyer, sign.Hash(c.Order), c.Opened)
	c.Vault = account.VaultAddress(w.Program, c.Escrow)
	return c, nil
}

func (w escrowCalls) free(e account.Escrow) uint64 {
	return w.Tokens[e.Vault].Amount - e.Outstanding - e.Fee
}

func (w escrowCalls) addTranche() (program.Call, []svm.Signed) {
	at, e, ok := pick(w.World, w.Escrows)
	if !ok {
		return nil, nil
	}
	free := w.free(e)
	n := int(one(w.World, []uint64{1, 1, 2, 3, 5, 8}))
	leaves := make([]tranche.Leaf, n)
	for i := range leaves {
		start := w.between(w.Slot-5, w.Slot+5)
		leaves[i] = tranche.Leaf{
			Version: tranche.LeafVersion, Index: uint16(i), Provider: w.person(), Lease: market.LeaseID(w.next()),
			Payout: w.person(), Rate: one(w.World, []market.Rate{0, 333_333, 1_000_000, 40_000_000, 1 << 62}),
			Cap: amountOf(w.amount(free / uint64(n))), Start: market.Slot(start),
			End: market.Slot(start + 1 + w.upTo(100)),
		}
	}
	if w.oneIn(10) {
		leaves[0].Cap++
	}
	built, err := tranche.Build(leaves)
	if err != nil {
		w.t.Fatal(err)
	}
	c := program.AddTranche{Payer: w.person(), Buyer: e.Buyer, Escrow: at, Vault: e.Vault, Index: e.Tranches,
		Root: built.Root(), Tranche: account.TrancheAddress(w.Program, at, e.Tranches)}
	if !has(w.Tranches, c.Tranche) {
		w.trees[c.Tranche] = tree{leaves, built}
	}
	return c, nil
}

func has[V any](m map[sign.Key]V, k sign.Key) bool {
	_, ok := m[k]
	return ok
}

// keys are as many voucher keys as must sign, sometimes one more or less.
func (w escrowCalls) keys(e account.Escrow) []sign.Key {
	n := int(e.Keys.Threshold)
	if w.oneIn(10) {
		n = int(w.upTo(uint64(len(e.Keys.Keys))))
	}
	skip := 0
	if spare := len(e.Keys.Keys) - n; spare > 0 {
		skip = int(w.upTo(uint64(spare)))
	}
	return e.Keys.Keys[skip : skip+n]
}

func (w escrowCalls) addStandbyTranche() (program.Call, []svm.Signed) {
	at, e, ok := pick(w.World, w.Escrows)
	if !ok || len(e.Standbys) == 0 {
		return nil, nil
	}
	c := program.AddStandbyTranche{Payer: w.person(), Escrow: at, Vault: e.Vault, Signers: w.keys(e), Index: e.Tranches,
		Tranche: account.TrancheAddress(w.Program, at, e.Tranches)}
	var leaves []tranche.Leaf
	for i := range w.between(1, 4) {
		which := w.upTo(uint64(len(e.Standbys) - 1))
		s := e.Standbys[which]
		start := w.between(w.Slot, w.Slot+5)
		if w.oneIn(6) {
			start = w.Slot - account.OpeningSlots - w.upTo(1)
		}
		l := program.StandbyLeaf{Standby: uint8(which), Lease: market.LeaseID(w.next()),
			Rate: market.Rate(w.between(1, uint64(s.MaxRate))), Cap: amountOf(w.amount(uint64(s.Budget) / 2)),
			Start: market.Slot(start), End: market.Slot(min(start+1+w.upTo(50), max(e.Deadline, start+1)))}
		c.Leaves = append(c.Leaves, l)
		leaves = append(leaves, tranche.Leaf{Version: tranche.LeafVersion, Index: uint16(i), Provider: s.Provider,
			Lease: l.Lease, Payout: s.Payout, Rate: l.Rate, Cap: l.Cap, Start: l.Start, End: l.End})
	}
	if built, err := tranche.Build(leaves); err == nil && !has(w.Tranches, c.Tranche) {
		w.trees[c.Tranche] = tree{leaves, built}
	}
	return c, nil
}

func (w escrowCalls) topUp() (program.Call, []svm.Signed) {
	at, e, ok := pick(w.World, w.Escrows)
	if !ok {
		return nil, nil
	}
	who := w.person()
	return program.TopUp{Escrow: at, Vault: e.Vault, Source: Account(who, e.Mint), Authority: who, Mint: e.Mint,
		Amount: w.amount(10_000)}, nil
}

// retiring returns a leaf with an open window, if the tranche has one.
func (w escrowCalls) retiring(n account.Tranche, leaves []tranche.Leaf) tranche.Leaf {
	for i, s := range n.Leaves {
		if s.Window != 0 && s.Freed == 0 {
			return leaves[i]
		}
	}
	return one(w.World, leaves)
}

// someLeaf is a leaf of a tranche that is there, with its proof.
func (w escrowCalls) someLeaf(
	which func(account.Tranche, []tranche.Leaf) tranche.Leaf,
) (at sign.Key, e account.Escrow, l tranche.Leaf, p tranche.Proof, ok bool) {
	at, n, ok := pick(w.World, w.Tranches)
	made, known := w.trees[at]
	if !ok || !known ||
		made.tree.Root() != (tranche.Root{Hash: n.Root, Sum: amountOf(n.Sum), Count: uint16(len(n.Leaves))}) {
		return at, e, l, p, false
	}
	l = which(n, made.leaves)
	p, err := made.tree.Prove(int(l.Index))
	if err != nil {
		w.t.Fatal(err)
	}
	return at, w.Escrows[n.Escrow], l, p, true
}

func (w escrowCalls) claim() (program.Call, []svm.Signed) {
	at, e, l, p, ok := w.someLeaf(func(_ account.Tranche, of []tranche.Leaf) tranche.Leaf { return one(w.World, of) })
	if !ok {
		return nil, nil
	}
	escrow := w.Tranches[at].Escrow
	v := verify.Voucher{Version: verify.VoucherVersion, Lease: l.Lease, Escrow: escrow, Seq: 1,
		Cumulative: amountOf(w.amount(uint64(l.Cap) + 2))}
	switch w.choice(20) {
	case 0:
		v.Escrow = w.person()
	case 1:
		v.Lease = market.LeaseID(w.next())
	case 2:
		v.Version = 2
	}
	c := program.Claim{Escrow: escrow, Tranche: at, Vault: e.Vault, Destination: Account(l.Payout, e.Mint),
		Mint: e.Mint, Network: e.Network, Leaf: l, Proof: p}
	layout := v.Marshal()
	return c, []svm.Signed{w.sign(e.Network, sign.TagVoucher, layout[:], w.keys(e))}
}

// sign is an instruction that the precompile accepts; sometimes for another network, or as another kind of object.
func (w *World) sign(network sign.Key, tag sign.Tag, layout []byte, keys []sign.Key) svm.Signed {
	d := w.Networks[network].Params.Domain(w.Program)
	switch w.choice(40) {
	case 0:
		d.Network = "other"
	case 1:
		d.Program = sign.Key{}
	case 2:
		tag = sign.TagLease
	case 3:
		layout = append(layout, 0)
	}
	if len(keys) == 0 { // the precompile needs at least one
		keys = []sign.Key{w.people[9].Key()}
	}
	return w.signed(d, tag, layout, keys...)
}

// signed returns a valid voucher: all keys sign.
func (w *World) signed(d sign.Domain, tag sign.Tag, layout []byte, keys ...sign.Key) svm.Signed {
	s := svm.Signed{Message: d.Preimage(tag, layout)}
	for _, k := range keys {
		by := w.signer(k)
		signature, err := by.Sign(s.Message)
		if err != nil {
			w.t.Fatal(err)
		}
		s.Keys, s.Signatures = append(s.Keys, by.Key()), append(s.Signatures, signature)
	}
	return s
}

func (w escrowCalls) retireBegin() (program.Call, []svm.Signed) {
	at, n, ok := pick(w.World, w.Tranches)
	if !ok || !w.oneIn(3) {
		return nil, nil
	}
	e := w.Escrows[n.Escrow]
	c := program.RetireBegin{Escrow: n.Escrow, Tranche: at, Network: e.Network, Signers: []sign.Key{e.Buyer},
		Index: uint16(w.upTo(uint64(len(n.Leaves) - 1)))}
	if w.oneIn(2) {
		c.Signers = w.keys(e)
	}
	return c, nil
}

func (w escrowCalls) retireFinish() (program.Call, []svm.Signed) {
	at, _, l, p, ok := w.someLeaf(w.retiring)
	if !ok {
		return nil, nil
	}
	return program.RetireFinish{Escrow: w.Tranches[at].Escrow, Tranche: at, Leaf: l, Proof: p}, nil
}

func (w escrowCalls) retireFinal() (program.Call, []svm.Signed) {
	at, e, l, p, ok := w.someLeaf(func(_ account.Tranche, of []tranche.Leaf) tranche.Leaf { return one(w.World, of) })
	if !ok || !w.oneIn(3) {
		return nil, nil
	}
	core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: l.Lease,
		Seq: 1, Provider: l.Provider, Buyer: e.Buyer, From: l.Start, To: l.End,
		Cumulative: amountOf(w.amount(uint64(l.Cap) + 2))}
	if w.oneIn(12) {
		core.Flags = 0
	}
	layout := core.Marshal()
	by := []sign.Key{l.Provider}
	if w.oneIn(12) {
		by[0] = w.person()
	}
	return program.RetireFinal{Escrow: w.Tranches[at].Escrow, Tranche: at, Network: e.Network, Leaf: l, Proof: p},
		[]svm.Signed{w.sign(e.Network, sign.TagReceipt, layout[:], by)}
}

func (w escrowCalls) refund() (program.Call, []svm.Signed) {
	at, e, ok := pick(w.World, w.Escrows)
	if !ok || w.Slot <= e.Deadline && !w.oneIn(3) {
		return nil, nil
	}
	c := program.Refund{Escrow: at, Vault: e.Vault, Destination: Account(e.RefundOwner, e.Mint), Mint: e.Mint,
		Network: e.Network}
	if w.oneIn(2) {
		c.Buyer = e.Buyer
	}
	return c, nil
}

func (w escrowCalls) sweep() (program.Call, []svm.Signed) {
	at, e, ok := pick(w.World, w.Escrows)
	if !ok || e.Fee == 0 && !w.oneIn(5) {
		return nil, nil
	}
	n := w.Networks[e.Network]
	c := program.Sweep{Escrow: at, Vault: e.Vault, Mint: e.Mint, Network: e.Network}
	if n.PaysPool() {
		c.Pool = account.PoolAddress(w.Program, e.Network, e.Mint)
	}
	if !n.Params.Treasury.IsZero() {
		c.Treasury = Account(n.Params.Treasury, e.Mint)
	}
	if !e.Referrer.IsZero() {
		c.Referrer = Account(e.Referrer, e.Mint)
	}
	return c, nil
}

func (w escrowCalls) closeTranche() (program.Call, []svm.Signed) {
	at, n, ok := pick(w.World, w.Tranches)
	if !ok || n.Outstanding > 0 && w.Escrows[n.Escrow].State == account.EscrowOpen && !w.oneIn(5) {
		return nil, nil
	}
	return program.CloseTranche{Escrow: n.Escrow, Tranche: at, RentPayer: n.RentPayer}, nil
}

func (w escrowCalls) closeEscrow() (program.Call, []svm.Signed) {
	at, e, ok := pick(w.World, w.Escrows)
	if !ok {
		return nil, nil
	}
	c := program.CloseEscrow{Escrow: at, Vault: e.Vault, Destination: Account(e.RefundOwner, e.Mint), Mint: e.Mint,
		RentPayer: e.RentPayer}
	if w.oneIn(2) {
		c.Buyer = e.Buyer
	}
	return c, nil
}

// Leaf is the leaf that was really put into a tranche.
func (w *World) Leaf(at sign.Key, index uint16) tranche.Leaf { return w.trees[at].leaves[index] }
