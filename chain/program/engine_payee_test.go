package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
)

// TestAttackPayScattered: somebody claims for a provider, or refunds a buyer whose deadline is over, into an account of theirs that their
// wallets do not show. Only who is paid may choose another than the associated account, by signing.
func TestAttackPayScattered(t *testing.T) {
	t.Parallel()
	e := programtest.LiteSVM(t)
	c := newCounter(t, e, programtest.Deploy(t, e, program.ELF))
	c.until(10_000)
	c.must("network", []svm.Instruction{c.initNetwork()})
	payout, owner := named("payout"), c.owner
	paidAside, backAside := c.aside("payout's other", c.token, payout.Key(), 0), c.aside("refund owner's other", c.token, owner.Key(), 0)
	d := c.deal("scattered", 1000, 1, named("voucher key")).open()
	b := d.batch(0, d.leases("scattered", 2, c.now()-20, 10)).open()
	signed := func(in svm.Instruction, payee sign.Key) svm.Instruction {
		return edit(in, func(in *svm.Instruction) { in.Accounts = append(in.Accounts, svm.Meta{Key: payee, Signer: true}) })
	}

	claim := b.claim(0, 50, paidAside)
	voucher, pay := claim[0], claim[1]
	c.deny("claim into an account that the payee does not look at", program.ErrAddress, claim)
	c.deny("the same, signed by another", program.ErrAddress, []svm.Instruction{voucher, signed(pay, c.stranger.Key())}, c.stranger)
	c.must("claim where the payee wants it", []svm.Instruction{voucher, signed(pay, payout.Key())}, payout)
	if got := c.balance(paidAside); got != 50-feeOf(50) {
		c.Errorf("the payee got %d", got)
	}

	aside := func(buyer sign.Key) svm.Instruction { return with(d.refund(buyer), 2, backAside) }
	c.deny("refund by the buyer into an account that the refund owner does not look at", program.ErrAddress, one(aside(c.buyer.Key())),
		c.buyer)
	c.until(d.call.Deadline + margin + 1)
	c.deny("refund by anybody into it", program.ErrAddress, one(aside(sign.Key{})))
	before := c.balance(c.back)
	c.must("refund where the refund owner wants it", one(signed(aside(sign.Key{}), owner.Key())), owner)
	if c.balance(backAside) == 0 || c.balance(c.back) != before {
		c.Errorf("refunded %d and %d", c.balance(backAside), c.balance(c.back)-before)
	}
}

// TestAttackVictimBlocksSlash: a friend of a double seller bought from it, and makes its account such as nobody can be paid into. The stake
// is taken all the same, the other victim and the reporter get their shares, and the friend's burns.
func TestAttackVictimBlocksSlash(t *testing.T) {
	t.Parallel()
	e := programtest.LiteSVM(t)
	d := newDesk(t, e, programtest.Deploy(t, e, program.ELF))
	d.until(10_000)
	s := d.seller(d.patient, "double seller", 1000)
	friend, bob := named("friend"), named("bob")
	by, now := d.reporter("reporter"), d.now()
	c := d.caught("blocked", s, d.sell(s.peer, friend, 1, 1, now-20, now-10, 100), d.sell(s.peer, bob, 2, 1, now-15, now-5, 30), by)
	d.theirs(c.toA, friend, by.Key())
	supply := d.supply(d.token)
	d.must("slash", one(d.slash(c)))
	got := [...]uint64{supply - d.supply(d.token), d.balance(c.toA), d.balance(c.toB), d.balance(by.tokens), d.balance(s.vault)}
	if want := [...]uint64{1000 - 30 - 125, 0, 30, 125, 0}; got != want {
		t.Errorf("burned, friend, victim, reporter, vault: %d, want %d", got, want)
	}
}
