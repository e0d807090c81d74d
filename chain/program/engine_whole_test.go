package program_test

import (
	"fmt"
	"math"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

// lamports of a wallet.
func (c *counter) lamports(k sign.Key) uint64 {
	c.Helper()
	a, err := c.Account(c.Context(), k)
	if err != nil {
		c.Fatal(err)
	}
	if a == nil {
		return 0
	}
	return a.Lamports
}

func (c *counter) gone(name string, accounts ...sign.Key) {
	c.Helper()
	for _, k := range accounts {
		if a, err := c.Account(c.Context(), k); err != nil || a != nil {
			c.Errorf("%s: %s is still there: %+v, %v", name, k, a, err)
		}
	}
}

// whole plays an escrow from its opening to its end on a clock that stands still: two tranches, claims at several times,
// leaves retired in three ways, all shares swept, refunds before and after the deadline, all rent back.
func (c *counter) whole() {
	supply, treasury, referrer, pool, back, payout := c.supply(c.token), c.balance(c.treasury), c.balance(c.referrer), c.balance(c.pool), c.balance(c.back),
		c.balance(c.payout)
	source, rent := c.balance(c.source), c.lamports(c.wallet.Key())
	// A stranger pays every transaction, so that the payer's lamports are rent alone.
	stranger := programtest.Wallet(c.TB, c.Engine, "transactions", 10*sol)
	do := func(name string, in []svm.Instruction, signers ...sign.Signer) uint64 {
		c.Helper()
		return c.run(name, "", in, append([]sign.Signer{stranger}, signers...)...).Units
	}

	deny := func(name string, want program.Code, in []svm.Instruction, signers ...sign.Signer) {
		c.Helper()
		c.run(name, programtest.Custom(len(in)-1, uint32(want)), in, append([]sign.Signer{stranger}, signers...)...)
	}

	d := c.deal("whole", 1000, 1, c.buyer)
	begin := c.now()
	do("open", []svm.Instruction{d.at()}, append(d.signers, c.wallet)...)
	small, large := d.batch(0, d.leases("small", 3, begin, 100)), d.batch(1, d.leases("large", 256, begin, 100))
	do("add tranche of 3", []svm.Instruction{small.add()}, c.buyer, c.wallet)
	do("top up", []svm.Instruction{program.TopUp{Escrow: d.call.Escrow, Vault: d.call.Vault, Source: c.source,
		Authority: c.buyer.Key(), Mint: c.token, Amount: 5}.Instruction(c.program)}, c.buyer)
	do("add tranche of 256", []svm.Instruction{large.add()}, c.buyer, c.wallet)
	held := account.EscrowRent(1, 0) + account.TrancheRent(3) + account.TrancheRent(256)
	if spent := rent - c.lamports(c.wallet.Key()); spent != held {
		c.Errorf("rent of %d, want %d", spent, held)
	}
	if e := d.check("opened"); e.Deposited != 1_000_005 || e.Outstanding != 259*1000 || e.Tranches != 2 || e.State != account.EscrowOpen {
		c.Errorf("opened: %+v", e)
	}

	// Time is the limit, then the voucher, then the cap.
	paid := uint64(0)
	claim := func(b *batch, i int, cumulative, want uint64) {
		c.Helper()
		units := do(fmt.Sprintf("claim from %d leaves", len(b.leaves)), b.claim(i, cumulative, c.payout))
		if paid += want; b.state().Leaves[i].Paid != want+b.before[i] || d.check("claim").Paid != paid {
			c.Errorf("claimed up to %d of leaf %d: %+v, want %d more", cumulative, i, b.state().Leaves[i], want)
		}
		b.before[i] += want
		if b == large && units > 30_000 {
			c.Errorf("claim at depth 8: %d CU, at most 30,000", units)
		}
	}
	claimed := func(b *batch, i int, cumulative uint64) {
		c.Helper()
		deny("claim again", program.ErrNothingDue, b.claim(i, cumulative, c.payout))
	}
	claimed(small, 0, 1000)
	c.until(begin + 7)
	claim(small, 0, 1000, 70)
	claimed(small, 0, 1000)
	claim(large, 255, 35, 35)
	claimed(large, 255, 35)
	claim(large, 0, 1000, 70)
	c.until(begin + 8)
	claim(small, 0, 1000, 10)
	claim(small, 1, 1, 1)
	c.until(begin + 50)
	claim(small, 1, 500, 499)
	claimed(small, 1, 500)
	claimed(small, 1, 499)

	// Leaf 2 is retired with time to respond, in which its provider claims; leaf 1 by its final receipt.
	do("retire, begin", []svm.Instruction{small.begin(2, c.buyer.Key())}, c.buyer)
	deny("finish early", program.ErrEarly, []svm.Instruction{small.finish(2)})
	c.until(begin + 50 + response)
	deny("finish in the last slot", program.ErrEarly, []svm.Instruction{small.finish(2)})
	claim(small, 2, 300, 300)
	c.until(begin + 51 + response)
	deny("claim when the window is over", program.ErrRetired, small.claim(2, 400, c.payout))
	do("retire, finish", []svm.Instruction{small.finish(2)})
	deny("finish again", program.ErrNothingDue, []svm.Instruction{small.finish(2)})
	do("retire, final", small.final(1, small.receipt(1, 520), c.provider))
	deny("final again", program.ErrNothingDue, small.final(1, small.receipt(1, 520), c.provider))
	claim(small, 1, 1000, 20)
	claimed(small, 1, 1000)
	// A second final receipt for less takes nothing back that was paid.
	deny("final for less than was paid", program.ErrNothingDue, small.final(1, small.receipt(1, 3), c.provider))
	if e := d.check("retired"); e.Outstanding != 259*1000-paid-480-700 {
		c.Errorf("retired: %+v, %d paid", e, paid)
	}
	deny("close an unfinished tranche", program.ErrOutstanding, []svm.Instruction{small.close()})
	c.until(begin + 200)
	claim(small, 0, math.MaxUint64, 920)
	do("close tranche", []svm.Instruction{small.close()})
	c.gone("close tranche", small.address)
	deny("claim from a closed tranche", program.ErrOwner, small.claim(0, 1000, c.payout))
	deny("a closed tranche's number again", program.ErrLeaf, []svm.Instruction{small.add()}, c.buyer, c.wallet)

	// What is free goes back before the deadline if the buyer says so, and no more.
	deny("refund without buyer", program.ErrEarly, []svm.Instruction{d.refund(sign.Key{})})
	do("refund", []svm.Instruction{d.refund(c.buyer.Key())}, c.buyer)
	e := d.check("refunded what is free")
	if c.balance(d.call.Vault) != e.Outstanding+e.Fee || c.balance(c.back)-back != e.Refunded {
		c.Errorf("refunded: %+v, vault %d", e, c.balance(d.call.Vault))
	}
	deny("refund again", program.ErrNothingDue, []svm.Instruction{d.refund(c.buyer.Key())}, c.buyer)

	// Fees, swept twice, are shared as if they were swept once.
	fees := e.Fee
	do("sweep", []svm.Instruction{d.sweep()})
	deny("sweep again", program.ErrNothingDue, []svm.Instruction{d.sweep()})
	claim(large, 7, 999, 999)
	fees += d.state().Fee
	do("sweep", []svm.Instruction{d.sweep()})
	wantFees := feeOf(1000) + feeOf(520) + feeOf(300) + feeOf(35) + feeOf(70) + feeOf(999)
	burnt := fees - fees*2500/10_000 - fees*1500/10_000 - fees*1000/10_000
	if fees != wantFees || c.balance(c.pool)-pool != fees*2500/10_000 || c.balance(c.treasury)-treasury != fees*1500/10_000 ||
		c.balance(c.referrer)-referrer != fees*1000/10_000 || supply-c.supply(c.token) != burnt || burnt*2 < fees {
		c.Errorf("fees %d, want %d; pool %d, treasury %d, referrer %d, burnt %d", fees, wantFees, c.balance(c.pool)-pool, c.balance(c.treasury)-treasury,
			c.balance(c.referrer)-referrer, supply-c.supply(c.token))
	}
	if got := c.balance(c.payout) - payout; got != paid-fees {
		c.Errorf("the provider got %d, want %d", got, paid-fees)
	}

	// The end: nothing can be claimed after it.
	deny("close while something is outstanding", program.ErrEarly, []svm.Instruction{d.close(sign.Key{})})
	c.until(d.call.Deadline + margin)
	deny("refund in the margin's last slot", program.ErrEarly, []svm.Instruction{d.refund(sign.Key{})})
	claim(large, 9, 1000, 1000)
	c.until(d.call.Deadline + margin + 1)
	deny("close before what is outstanding is refunded", program.ErrOutstanding, []svm.Instruction{d.close(sign.Key{})})
	do("refund everything", []svm.Instruction{d.refund(sign.Key{})})
	e = d.check("refunded")
	if e.State != account.EscrowRefunded || e.Outstanding != 0 || c.balance(d.call.Vault) != e.Fee || e.Fee != feeOf(1000) {
		c.Errorf("refunded: %+v", e)
	}
	deny("claim after refund", program.ErrRefunded, large.claim(10, 1000, c.payout))
	deny("refund after refund", program.ErrNothingDue, []svm.Instruction{d.refund(sign.Key{})})
	deny("add a tranche after refund", program.ErrRefunded, []svm.Instruction{d.batch(2, d.leases("late", 1, begin, 1)).add()}, c.buyer, c.wallet)
	deny("close with a tranche open", program.ErrOutstanding, []svm.Instruction{d.close(sign.Key{})})
	do("close tranche of 256", []svm.Instruction{large.close()})
	deny("close with fees", program.ErrFees, []svm.Instruction{d.close(sign.Key{})})
	do("sweep the last", []svm.Instruction{d.sweep()})
	// Somebody leaves tokens in the vault: they go to the refund owner.
	do("gift", []svm.Instruction{c.give(d.call.Vault, 3)}, c.wallet)
	do("close", []svm.Instruction{d.close(sign.Key{})})
	c.gone("close", d.call.Escrow, d.call.Vault, large.address)
	if now := c.lamports(c.wallet.Key()); now != rent {
		c.Errorf("the payer has %d lamports, had %d", now, rent)
	}
	spent, swept := source-c.balance(c.source), e.Swept+e.Fee
	if got := c.balance(c.back) - back; spent != 1_000_005 || got != spent-paid+3 || c.balance(c.payout)-payout != paid-swept {
		c.Errorf("of %d the refund owner got %d, the provider %d; %d was paid", spent, got, c.balance(c.payout)-payout, paid)
	}
	deny("open it again", program.ErrOpened, []svm.Instruction{d.at()}, append(d.signers, c.wallet)...)
}

// give makes tokens out of nothing.
func (c *counter) give(to sign.Key, amount uint64) svm.Instruction {
	return svm.Instruction{Program: svm.TokenProgram, Data: u64([]byte{7}, amount), Accounts: []svm.Meta{
		{Key: c.token, Writable: true}, {Key: to, Writable: true}, {Key: c.wallet.Key(), Signer: true}}}
}

// times: what may be done in which slot, to the slot.
func (c *counter) times() {
	c.until(c.now() + 2*account.OpeningSlots)
	now := c.now()
	d := c.deal("times", 100, 1, c.buyer)
	d.call.Opened = now + 1
	c.deny("opened in the future", program.ErrOpened, []svm.Instruction{d.at()}, d.signers...)
	d.call.Opened = now - account.OpeningSlots - 1
	c.deny("opened too long ago", program.ErrOpened, []svm.Instruction{d.at()}, d.signers...)
	d.call.Opened = now - account.OpeningSlots
	d.call.Deadline = now
	c.deny("deadline now", program.ErrDeadline, []svm.Instruction{d.at()}, d.signers...)
	d.call.Deadline = d.call.Opened + account.MaxEscrowSlots + 1
	c.deny("deadline too far", program.ErrDeadline, []svm.Instruction{d.at()}, d.signers...)
	d.call.Deadline = math.MaxUint64
	c.deny("deadline at the end of time", program.ErrDeadline, []svm.Instruction{d.at()}, d.signers...)
	d.call.Deadline = now + 10
	d.open()
	c.deny("close within 150 slots", program.ErrEarly, []svm.Instruction{d.close(c.buyer.Key())}, c.buyer)
	c.until(now + 9)
	d.batch(0, d.leases("last", 1, now, 10)).open()
	c.until(now + 10)
	c.deny("add a tranche at the deadline", program.ErrDeadline, []svm.Instruction{d.batch(1, d.leases("late", 1, now, 10)).add()}, c.buyer)

	// Closed in the first slot in which it may be, its address is out of reach in the same slot.
	d = c.deal("reopened", 1000, 1, c.buyer)
	now = c.now()
	d.call.Opened = now - 3
	d.open()
	c.until(now - 3 + account.OpeningSlots)
	c.deny("close in the last slot of its opening", program.ErrEarly, []svm.Instruction{d.close(c.buyer.Key())}, c.buyer)
	c.until(now - 2 + account.OpeningSlots)
	c.deny("close without buyer before the deadline", program.ErrEarly, []svm.Instruction{d.close(sign.Key{})})
	c.run("close and open again", programtest.Custom(1, uint32(program.ErrOpened)), []svm.Instruction{d.close(c.buyer.Key()), d.at()}, c.wallet, c.buyer)
	c.must("close before the deadline", []svm.Instruction{d.close(c.buyer.Key())}, c.buyer)
	c.gone("close before the deadline", d.call.Escrow, d.call.Vault)
	c.deny("open it again", program.ErrOpened, []svm.Instruction{d.at()}, d.signers...)

	// u64 limits: what a lease comes to may not fit.
	d = c.deal("limits", 100_000, 1, c.buyer)
	d.call.Deposit = 1000
	d.open()
	now = c.now()
	leaves := d.leases("limits", 2, now, 100_000)
	leaves[0].Rate, leaves[0].Cap, leaves[0].End = math.MaxUint64, 500, market.Slot(now+100)
	leaves[1].Rate, leaves[1].Cap, leaves[1].Start, leaves[1].End = math.MaxUint64, 400, 0, math.MaxUint64
	b := d.batch(0, leaves).open()
	c.until(now + 100)
	c.must("claim at the highest rate", b.claim(0, math.MaxUint64, c.payout))
	if b.state().Leaves[0].Paid != 500 {
		c.Errorf("paid %d, want the cap", b.state().Leaves[0].Paid)
	}
	c.until(now + 1_000_000)
	c.deny("claim what does not fit", program.ErrOverflow, b.claim(1, 400, c.payout))
}

// closing: an escrow that everybody forgot, on any engine's clock.
func (c *counter) closing() {
	back := c.balance(c.back)
	d := c.deal("forgotten", account.OpeningSlots/2+10, 1, c.buyer)
	d.call.Opened -= account.OpeningSlots / 2 // so that it can be closed sooner
	d.open()
	b := d.batch(0, d.leases("forgotten", 2, c.now()-20, 10)).open()
	c.must("claim", b.claim(0, 60, c.payout))
	d.check("forgotten")
	c.until(d.call.Deadline + margin + 1)
	other := c.deal("another", 100_000, 1, c.buyer).open()
	good := d.refund(sign.Key{})
	c.deny("refund to somebody", program.ErrTokenOwner, []svm.Instruction{with(good, 2, c.source)})
	c.deny("refund to the vault", program.ErrDuplicate, []svm.Instruction{with(good, 2, d.call.Vault)})
	c.deny("refund to an account of another mint", program.ErrMint, []svm.Instruction{with(good, 2, c.tokens("refund owner's other", c.other, c.owner.Key(), 0))})
	c.deny("refund from another vault", program.ErrAddress, []svm.Instruction{with(good, 1, other.call.Vault)})
	c.deny("refund with another mint", program.ErrMint, []svm.Instruction{with(good, 3, c.other)})
	c.deny("refund by another network", program.ErrAddress, []svm.Instruction{with(good, 4, d.call.Escrow)})
	c.deny("refund by another token program", program.ErrAddress, []svm.Instruction{with(good, 5, svm.SystemProgram)})
	c.deny("refund with data", program.ErrData, []svm.Instruction{edit(good, func(in *svm.Instruction) { in.Data = append(in.Data, 0) })})
	c.deny("refund of another whose time is not over", program.ErrEarly, []svm.Instruction{other.refund(sign.Key{})})
	c.deny("refund by a stranger", program.ErrAddress, []svm.Instruction{other.refund(c.stranger.Key())}, c.stranger)
	unsigned := edit(other.refund(c.buyer.Key()), func(in *svm.Instruction) { in.Accounts[6].Signer = false })
	c.deny("refund without the buyer's signature", program.ErrNotSigner, []svm.Instruction{unsigned})

	c.must("refund", []svm.Instruction{good})
	if e := d.check("forgotten"); e.State != account.EscrowRefunded || c.balance(c.back)-back != 1_000_000-60 || e.Fee != 1 {
		c.Errorf("forgotten: %+v", e)
	}
	c.deny("claim after refund", program.ErrRefunded, b.claim(1, 100, c.payout))
	c.deny("retire after refund", program.ErrRefunded, []svm.Instruction{b.begin(1, c.buyer.Key())}, c.buyer)
	c.deny("top up after refund", program.ErrRefunded, []svm.Instruction{d.topUp(1)}, c.buyer)
	shut := b.close()
	c.deny("close a tranche of another escrow", program.ErrAddress, []svm.Instruction{with(shut, 0, other.call.Escrow)})
	c.deny("close a tranche to somebody", program.ErrAddress, []svm.Instruction{with(shut, 2, c.stranger.Key())})
	c.deny("close a tranche that is an escrow", program.ErrKind, []svm.Instruction{with(shut, 1, other.call.Escrow)})
	c.must("close tranche", []svm.Instruction{shut})
	c.deny("close a tranche again", program.ErrOwner, []svm.Instruction{shut})

	sweep := d.sweep()
	c.deny("sweep that skips the pool", program.ErrNotWritable, []svm.Instruction{edit(sweep, func(in *svm.Instruction) { in.Accounts[5] = svm.Meta{Key: c.program} })})
	c.deny("sweep to another pool", program.ErrAddress, []svm.Instruction{with(sweep, 5, c.treasury)})
	c.deny("sweep without treasury", program.ErrTokenOwner, []svm.Instruction{with(sweep, 6, c.payout)})
	c.deny("sweep without referrer", program.ErrOwner, []svm.Instruction{with(sweep, 7, c.stranger.Key())})
	c.deny("sweep that skips the treasury", program.ErrNotWritable, []svm.Instruction{edit(sweep, func(in *svm.Instruction) { in.Accounts[6] = svm.Meta{Key: c.program} })})
	c.deny("sweep that skips the referrer", program.ErrNotWritable, []svm.Instruction{edit(sweep, func(in *svm.Instruction) { in.Accounts[7] = svm.Meta{Key: c.program} })})
	c.deny("sweep to the vault", program.ErrDuplicate, []svm.Instruction{with(sweep, 7, d.call.Vault)})
	c.deny("sweep another vault", program.ErrAddress, []svm.Instruction{with(sweep, 1, other.call.Vault)})
	c.deny("sweep another mint", program.ErrMint, []svm.Instruction{with(sweep, 2, c.other)})
	c.must("sweep", []svm.Instruction{sweep})

	end := d.close(sign.Key{})
	c.deny("close to somebody", program.ErrAddress, []svm.Instruction{with(end, 5, c.stranger.Key())})
	c.deny("close with another vault", program.ErrAddress, []svm.Instruction{with(end, 1, other.call.Vault)})
	c.deny("close a network", program.ErrKind, []svm.Instruction{edit(end, func(in *svm.Instruction) { in.Accounts[0] = svm.Meta{Key: c.network, Writable: true} })})
	c.must("gift", []svm.Instruction{c.give(d.call.Vault, 3)})
	c.deny("close with the gift for somebody", program.ErrTokenOwner, []svm.Instruction{with(end, 2, c.source)})
	c.must("close", []svm.Instruction{end})
	c.gone("close", d.call.Escrow, d.call.Vault, b.address)
	c.deny("refund of a closed escrow", program.ErrOwner, []svm.Instruction{good})
	c.deny("open it again", program.ErrOpened, []svm.Instruction{d.at()}, d.signers...)
}

func (d *deal) topUp(amount uint64) svm.Instruction {
	return program.TopUp{Escrow: d.call.Escrow, Vault: d.call.Vault, Source: d.source, Authority: d.buyer.Key(), Mint: d.call.Mint, Amount: amount}.Instruction(d.program)
}
