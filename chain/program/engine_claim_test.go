package program_test

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/tranche"
)

func (c *counter) claims() {
	guardians := []sign.Private{named("guardian 1"), named("guardian 2"), named("guardian 3")}
	d, other := c.deal("claims", 1000, 2, guardians...).open(), c.deal("other claims", 1000, 2, guardians...).open()
	start := c.now() - 20
	leaves := d.leases("claims", 6, start, 10)
	leaves[5].Cap = 1000 // ten times what it can come to
	b := d.batch(0, leaves).open()
	twin := other.batch(0, b.leaves).open() // the same leases in another escrow
	second := d.batch(1, d.leases("more claims", 2, start, 10)).open()
	alone := c.vouchers(b, twin)
	c.leaves(b, second)
	c.claimAccounts(b, twin)

	good := b.claim(2, 50, c.payout)
	deny := func(name string, want program.Code, in ...svm.Instruction) {
		c.Helper()
		c.deny("claim "+name, want, in)
	}
	before := c.balance(c.payout)
	c.must("claim", good)
	deny("twice", program.ErrNothingDue, good...)
	deny("for less", program.ErrNothingDue, b.claim(2, 49, c.payout)...)
	c.must("claim all", b.claim(2, math.MaxUint64, c.payout))
	deny("more than the cap", program.ErrNothingDue, b.claim(2, math.MaxUint64, c.payout)...)
	if s := b.state(); s.Leaves[2].Paid != 100 || c.balance(c.payout)-before != 100-feeOf(100) || s.Outstanding != 1400 {
		c.Errorf("claimed %+v, got %d", s, c.balance(c.payout)-before)
	}
	c.must("claim up to the lease's end", b.claim(5, math.MaxUint64, c.payout))
	deny("after the lease's end", program.ErrNothingDue, b.claim(5, math.MaxUint64, c.payout)...)
	if s := b.state(); s.Leaves[5].Paid != 100 || s.Outstanding != 1300 {
		c.Errorf("claimed %+v", s)
	}
	c.must("claim the same lease in another escrow", twin.claim(2, 100, c.payout))
	c.deny("claim twice in one transaction", program.ErrNothingDue, []svm.Instruction{alone[0], alone[1], alone[1]})
	c.must("claim with three signers' voucher", []svm.Instruction{b.signed(b.domain(), b.voucher(1, 40), d.keys...), b.pay(1, c.payout)})
	d.check("claims")
	other.check("other claims")
}

// vouchers that are refused; good instructions of a claim by one key.
func (c *counter) vouchers(b, twin *batch) []svm.Instruction {
	d, keys, good := b.deal, b.keys, b.claim(2, 50, c.payout)
	ed, pay := good[0], good[1]
	deny := func(name string, want program.Code, in ...svm.Instruction) {
		c.Helper()
		c.deny("claim "+name, want, in)
	}
	deny("cut off", program.ErrData, ed, edit(pay, cut))
	deny("with more", program.ErrData, ed, edit(pay, longer))
	deny("without voucher", program.ErrPrecompile, pay)
	deny("with a voucher that is not there", program.ErrNoInstruction, ed, edit(pay, func(in *svm.Instruction) { in.Data[1] = 2 }))
	deny("with itself as voucher", program.ErrPrecompile, ed, edit(pay, func(in *svm.Instruction) { in.Data[1] = 1 }))

	// Vouchers that say something else.
	v := b.voucher(2, 50)
	deny("by one guardian", program.ErrThreshold, b.signed(b.domain(), v, keys[0]), pay)
	foreign := d.call.Keys
	d.call.Keys, _ = market.NewKeySet(1, c.stranger.Key(), keys[0].Key())
	deny("by a guardian and a stranger", program.ErrThreshold, b.signed(b.domain(), v, keys[0], c.stranger), pay)
	d.call.Keys = foreign
	deny("of another escrow", program.ErrVoucher, twin.signed(b.domain(), twin.voucher(2, 50), keys[:2]...), pay)
	elsewhere := b.domain()
	elsewhere.Network = "elsewhere"
	deny("of another network", program.ErrMessage, b.signed(elsewhere, v, keys[:2]...), pay)
	elsewhere = b.domain()
	elsewhere.Chain[0] ^= 1
	deny("of another chain", program.ErrMessage, b.signed(elsewhere, v, keys[:2]...), pay)
	elsewhere = b.domain()
	elsewhere.Program = c.stranger.Key()
	deny("of another program", program.ErrMessage, b.signed(elsewhere, v, keys[:2]...), pay)
	deny("of another lease", program.ErrRoot, b.signed(b.domain(), b.voucher(3, 50), keys[:2]...), pay)
	v.Flags = 2
	deny("with an unknown flag", program.ErrVoucher, b.signed(b.domain(), v, keys[:2]...), pay)
	v.Flags, v.Version = 0, 2
	deny("of another version", program.ErrVoucher, b.signed(b.domain(), v, keys[:2]...), pay)
	receipt := b.receipt(2, 50)
	signature, err := receipt.Sign(b.domain(), keys[0])
	if err != nil {
		c.Fatal(err)
	}
	deny("with a receipt as voucher", program.ErrPrecompile, signedBy(program.FinalSigned(b.domain(), receipt, signature), keys[0]), pay)

	// The precompile made to check something else than what it seems to show.
	twist := func(change func([]byte)) svm.Instruction {
		return edit(ed, func(in *svm.Instruction) { change(in.Data) })
	}
	deny("with keys in another order", program.ErrThreshold, twist(func(b []byte) {
		swap := slices.Clone(b)
		copy(b[30:], swap[62:94])
		copy(b[62:], swap[30:62])
		copy(b[94:], swap[158:222])
		copy(b[158:], swap[94:158])
	}), pay)
	deny("by one guardian twice", program.ErrThreshold, twist(func(b []byte) {
		copy(b[62:94], b[30:62])
		copy(b[158:222], b[94:158])
	}), pay)
	// A second copy of the voucher's instruction to which the first points: good signatures, of other bytes than those shown.
	solo := c.deal("alone", 1000, 1, c.buyer).open()
	alone := solo.batch(0, solo.leases("alone", 1, c.now()-20, 10)).open().claim(0, 10, c.payout)
	pointing := edit(alone[0], func(in *svm.Instruction) {
		for _, at := range []int{4, 8, 14} { // signature, key, message: in instruction 1
			binary.LittleEndian.PutUint16(in.Data[at:], 1)
		}
		binary.LittleEndian.PutUint64(in.Data[len(in.Data)-24:], 1000) // cumulative, which nobody signed
	})
	deny("with signatures of other bytes", program.ErrPrecompile, pointing, alone[0], alone[1])
	deny("with another padding", program.ErrPrecompile, twist(func(b []byte) { b[1] = 1 }), pay)
	deny("with bytes behind", program.ErrPrecompile, edit(ed, longer), pay)
	return alone
}

// leaves and proofs that are refused.
func (c *counter) leaves(b, second *batch) {
	d, good := b.deal, b.claim(2, 50, c.payout)
	ed, pay := good[0], good[1]
	deny := func(name string, want program.Code, in ...svm.Instruction) {
		c.Helper()
		c.deny("claim "+name, want, in)
	}
	leaf := func(change func(*tranche.Leaf, *tranche.Proof)) svm.Instruction {
		l, p := b.leaves[2], b.proof(2)
		change(&l, &p)
		return program.Claim{Escrow: d.call.Escrow, Tranche: b.address, Vault: d.call.Vault, Destination: c.payout, Mint: c.token, Network: c.network, Leaf: l,
			Proof: p}.Instruction(c.program)
	}
	deny("of another provider", program.ErrRoot, ed, leaf(func(l *tranche.Leaf, _ *tranche.Proof) { l.Provider = c.stranger.Key() }))
	deny("of another index", program.ErrRoot, ed, leaf(func(l *tranche.Leaf, _ *tranche.Proof) { l.Index = 3 }))
	deny("of an index past the end", program.ErrIndex, ed, leaf(func(l *tranche.Leaf, _ *tranche.Proof) { l.Index = 6 }))
	deny("at another rate", program.ErrRoot, ed, leaf(func(l *tranche.Leaf, _ *tranche.Proof) { l.Rate++ }))
	deny("with a higher cap", program.ErrSum, ed, leaf(func(l *tranche.Leaf, _ *tranche.Proof) { l.Cap++ }))
	deny("with a higher cap and a lower sum beside it", program.ErrRoot, ed, leaf(func(l *tranche.Leaf, p *tranche.Proof) { l.Cap++; (*p)[0].Sum-- }))
	deny("with money moved between siblings", program.ErrRoot, ed, leaf(func(_ *tranche.Leaf, p *tranche.Proof) { (*p)[0].Sum++; (*p)[1].Sum-- }))
	deny("with sums that wrap", program.ErrOverflow, ed, leaf(func(_ *tranche.Leaf, p *tranche.Proof) { (*p)[0].Sum = math.MaxUint64 }))
	deny("from an earlier slot", program.ErrRoot, ed, leaf(func(l *tranche.Leaf, _ *tranche.Proof) { l.Start-- }))
	deny("of no slots", program.ErrLeaf, ed, leaf(func(l *tranche.Leaf, _ *tranche.Proof) { l.Start = l.End }))
	deny("by a path too short", program.ErrPath, ed, leaf(func(_ *tranche.Leaf, p *tranche.Proof) { *p = (*p)[:2] }))
	deny("by a path too long", program.ErrPath, ed, leaf(func(_ *tranche.Leaf, p *tranche.Proof) { *p = append(*p, (*p)[0]) }))
	deny("from another tranche", program.ErrIndex, ed, with(pay, 1, second.address))
}

// claimAccounts that are refused.
func (c *counter) claimAccounts(b, twin *batch) {
	d, other, good := b.deal, twin.deal, b.claim(2, 50, c.payout)
	ed, pay := good[0], good[1]
	deny := func(name string, want program.Code, in ...svm.Instruction) {
		c.Helper()
		c.deny("claim "+name, want, in)
	}
	deny("for another escrow", program.ErrAddress, ed, with(pay, 0, other.call.Escrow))
	deny("from a tranche of another escrow", program.ErrAddress, ed, with(pay, 1, twin.address))
	deny("from an escrow as tranche", program.ErrKind, ed, with(pay, 1, d.call.Escrow))
	deny("with a tranche as escrow", program.ErrKind, ed, with(pay, 0, b.address))
	deny("from another vault", program.ErrAddress, ed, with(pay, 2, other.call.Vault))
	deny("to the vault", program.ErrDuplicate, ed, with(pay, 3, d.call.Vault))
	deny("to somebody", program.ErrRoot, ed, with(pay, 3, c.source))
	theirs := c.aside("payout's, which another may close", c.token, named("payout").Key(), 0)
	c.theirs(theirs, named("payout"), c.stranger.Key())
	deny("to an account that another may close", program.ErrKind, ed, with(pay, 3, theirs))
	deny("in another mint", program.ErrMint, ed, with(pay, 3, c.wrong))
	deny("with another mint", program.ErrMint, ed, with(pay, 4, c.other))
	deny("by another network's terms", program.ErrAddress, ed, with(pay, 5, c.otherNetwork()))
	deny("with another token program", program.ErrAddress, ed, with(pay, 6, svm.SystemProgram))
	deny("with another sysvar", program.ErrAddress, ed, with(pay, 7, c.network))
	for _, place := range []int{0, 1, 2, 3} {
		deny("read-only", program.ErrNotWritable, ed, edit(pay, readOnly(place)))
	}
	more := func(in *svm.Instruction) { in.Accounts = append(in.Accounts, in.Accounts[0]) }
	deny("with an account more that does not sign", program.ErrNotSigner, ed, edit(pay, more))
	deny("with two accounts more", program.ErrAccountCount, ed, edit(edit(pay, more), more))
}

func (c *counter) retiring() {
	guardians := []sign.Private{named("guardian 1"), named("guardian 2"), named("guardian 3")}
	d, other := c.deal("retiring", 10_000, 2, guardians...).open(), c.deal("other retiring", 10_000, 2, guardians...).open()
	b := d.batch(0, d.leases("retiring", 3, c.now(), 5000)).open()
	twin := other.batch(0, b.leaves).open()
	k := []sign.Key{d.keys[0].Key(), d.keys[1].Key(), d.keys[2].Key()}
	good := b.begin(0, k[0], k[2])
	c.deny("retire in no way", program.ErrData, one(edit(good, func(in *svm.Instruction) { in.Data[1] = 3 })), d.keys[0], d.keys[2])
	c.deny("begin cut off", program.ErrData, one(edit(good, cut)), d.keys[0], d.keys[2])
	c.deny("begin by a stranger", program.ErrThreshold, one(b.begin(0, c.stranger.Key())), c.stranger)
	c.deny("begin by nobody", program.ErrThreshold, one(b.begin(0)))
	c.deny("begin by one guardian", program.ErrThreshold, one(b.begin(0, k[0])), d.keys[0])
	c.deny("begin by one guardian twice", program.ErrThreshold, one(b.begin(0, k[0], k[0])), d.keys[0])
	c.deny("begin by the provider", program.ErrThreshold, one(b.begin(0, c.provider.Key())), c.provider)
	c.deny("begin without signatures", program.ErrNotSigner, one(edit(good, unsigned(4))), d.keys[0])
	c.deny("begin by a buyer who does not sign", program.ErrNotSigner, one(edit(b.begin(0, c.buyer.Key()), unsigned(3))))
	c.deny("begin past the end", program.ErrIndex, one(b.begin(3, c.buyer.Key())), c.buyer)
	c.deny("begin by another network's time", program.ErrAddress, one(with(good, 2, c.otherNetwork())), d.keys[0], d.keys[2])
	c.deny("begin in a tranche of another escrow", program.ErrAddress, one(with(good, 1, twin.address)), d.keys[0], d.keys[2])
	c.deny("finish what has not begun", program.ErrEarly, one(b.finish(0)))
	c.must("begin by two guardians", one(good), d.keys[0], d.keys[2])
	c.deny("begin again", program.ErrRetired, one(b.begin(0, c.buyer.Key())), c.buyer)
	wrong := b.finish(0)
	c.deny("finish another leaf", program.ErrRoot, one(edit(wrong, func(in *svm.Instruction) { in.Data[2] = 1 })))
	c.deny("finish in a tranche of another escrow", program.ErrAddress, one(with(wrong, 1, twin.address)))
	c.deny("finish of another payout", program.ErrRoot, one(edit(wrong, func(in *svm.Instruction) { in.Data[4+64] ^= 1 })))
	c.until(b.state().Opened + uint64(b.state().Leaves[0].Window) + 1)
	c.deny("claim when the window is over", program.ErrRetired, b.claim(0, 50_000, c.payout))
	c.must("finish", one(wrong))
	if s := b.state(); s.Leaves[0].Paid+s.Leaves[0].Freed != 50_000 || s.Outstanding != 100_000 {
		c.Errorf("finished: %+v", s)
	}

	final := b.final(1, b.receipt(1, 100), c.provider)
	deny := func(name string, want program.Code, in ...svm.Instruction) {
		c.Helper()
		c.deny("final "+name, want, in)
	}
	deny("by the buyer", program.ErrThreshold, b.final(1, b.receipt(1, 100), c.buyer)...)
	deny("of another lease", program.ErrRoot, b.final(2, b.receipt(1, 100), c.provider)...)
	deny("of nothing", program.ErrPrecompile, final[1])
	draft := b.receipt(1, 100)
	draft.Flags = 0
	deny("that is not", program.ErrReceipt, b.final(1, draft, c.provider)...)
	another := b.receipt(1, 100)
	another.Provider = c.stranger.Key()
	deny("of another provider", program.ErrRoot, b.final(1, another, c.stranger)...)
	deny("that is a voucher", program.ErrPrecompile, b.signed(b.domain(), b.voucher(1, 0), d.keys[:2]...), final[1])
	deny("in a tranche of another escrow", program.ErrAddress, final[0], with(final[1], 1, twin.address))
	deny("by another network", program.ErrAddress, final[0], with(final[1], 2, c.otherNetwork()))
	c.must("final", final)
	if s := b.state(); s.Leaves[1].Freed != 49_900 || s.Outstanding != 50_100 {
		c.Errorf("final: %+v", s)
	}
	c.must("final for less", b.final(1, b.receipt(1, 40), c.provider))
	c.must("final for nothing", b.final(2, b.receipt(2, 0), c.provider))
	if s := b.state(); s.Leaves[1].Freed != 49_960 || s.Leaves[2].Freed != 50_000 || s.Outstanding != 40 {
		c.Errorf("final: %+v", s)
	}
	d.check("retired")
}

func (c *counter) standbys() {
	guardians := []sign.Private{named("guardian 1"), named("guardian 2"), named("guardian 3")}
	d := c.deal("standbys", 1000, 2, guardians...)
	who := []account.Standby{{Provider: named("standby").Key(), Payout: named("payout").Key(), MaxRate: rate, Budget: 2500},
		{Provider: named("other standby").Key(), Payout: named("other payout").Key(), MaxRate: 1, Budget: math.MaxUint64}}
	d.call.Standbys = who
	d.open()
	start := c.now()
	leaf := func(lease byte, slots uint64) program.StandbyLeaf {
		return program.StandbyLeaf{Standby: 0, Lease: market.LeaseID{lease}, Rate: rate, Cap: market.Amount(perSlot * slots), Start: market.Slot(start),
			End: market.Slot(start + slots)}
	}
	k := []sign.Key{d.keys[0].Key(), d.keys[1].Key(), d.keys[2].Key()}
	add := func(index uint16, leaves ...program.StandbyLeaf) svm.Instruction {
		return program.AddStandbyTranche{Payer: c.wallet.Key(), Escrow: d.call.Escrow, Vault: d.call.Vault,
			Tranche: account.TrancheAddress(c.program, d.call.Escrow, index), Signers: k[:2], Index: index, Leaves: leaves}.Instruction(c.program)
	}
	deny := func(name string, want program.Code, in svm.Instruction) {
		c.Helper()
		c.deny("standby tranche "+name, want, one(in), d.keys[0], d.keys[1])
	}
	change := func(change func(*program.StandbyLeaf)) svm.Instruction {
		l := leaf(1, 100)
		change(&l)
		return add(0, l)
	}
	deny("of nobody", program.ErrIndex, add(0))
	deny("of five", program.ErrIndex, add(0, leaf(1, 1), leaf(2, 1), leaf(3, 1), leaf(4, 1), leaf(5, 1)))
	deny("cut off", program.ErrData, edit(add(0, leaf(1, 100)), cut))
	deny("with more", program.ErrData, edit(add(0, leaf(1, 100)), longer))
	deny("of a standby that is not there", program.ErrStandby, change(func(l *program.StandbyLeaf) { l.Standby = 2 }))
	deny("at a higher rate", program.ErrStandby, change(func(l *program.StandbyLeaf) { l.Rate++ }))
	deny("beyond the deadline", program.ErrStandby, change(func(l *program.StandbyLeaf) { l.End = market.Slot(d.call.Deadline + 1) }))
	deny("for the past", program.ErrStandby, change(func(l *program.StandbyLeaf) { l.Start -= account.OpeningSlots + 10 }))
	deny("for no slots", program.ErrLeaf, change(func(l *program.StandbyLeaf) { l.End = l.Start }))
	deny("beyond the budget", program.ErrStandby, change(func(l *program.StandbyLeaf) { l.Cap = 2501 }))
	deny("beyond the budget together", program.ErrStandby, add(0, leaf(1, 100), leaf(2, 100), leaf(3, 51)))
	deny("for more than is free", program.ErrAmount, change(func(l *program.StandbyLeaf) { l.Standby, l.Rate, l.Cap = 1, 1, 1_000_001 }))
	deny("of another number", program.ErrLeaf, add(1, leaf(1, 100)))
	deny("by one guardian", program.ErrThreshold, edit(add(0, leaf(1, 100)), func(in *svm.Instruction) { in.Accounts = in.Accounts[:6] }))
	deny("by one guardian twice", program.ErrThreshold, with(add(0, leaf(1, 100)), 6, k[0]))
	deny("without signature", program.ErrNotSigner, edit(with(add(0, leaf(1, 100)), 6, k[2]), unsigned(6)))
	c.deny("standby tranche by the buyer", program.ErrThreshold, one(edit(with(add(0, leaf(1, 100)), 5, c.buyer.Key()), func(in *svm.Instruction) {
		in.Accounts = in.Accounts[:6]
	})), c.buyer)

	start = c.now()
	good := add(0, leaf(1, 100), leaf(2, 100), leaf(3, 50))
	c.must("standby tranche", one(good), d.keys[0], d.keys[1])
	if e := d.check("standbys"); e.Standbys[0].Budget != 0 || e.Outstanding != 2500 || e.Tranches != 1 || e.Standbys[1] != who[1] {
		c.Errorf("standbys: %+v", e)
	}
	deny("beyond what is left of the budget", program.ErrStandby, add(1, leaf(1, 1)))
	// What the program built is what Go builds.
	leaves := make([]tranche.Leaf, 3)
	for i, l := range []program.StandbyLeaf{leaf(1, 100), leaf(2, 100), leaf(3, 50)} {
		leaves[i] = tranche.Leaf{Version: tranche.LeafVersion, Index: uint16(i), Provider: who[0].Provider, Lease: l.Lease, Payout: who[0].Payout, Rate: l.Rate, Cap: l.Cap,
			Start: l.Start, End: l.End}
	}
	b := d.batch(0, leaves)
	if s := b.state(); s.By != account.ByKeys || s.Root != b.tree.Root().Hash || s.Sum != 2500 || s.RentPayer != c.wallet.Key() {
		c.Errorf("standby tranche %+v", s)
	}
	c.until(start + 2)
	c.must("claim of a standby", b.claim(2, 15, c.payout))
	if s := b.state(); s.Leaves[2].Paid != 15 {
		c.Errorf("standby: %+v", s)
	}
	d.check("standbys")
}
