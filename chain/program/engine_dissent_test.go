package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
	"github.com/starling-network/starling/verify"
)

// Outputs of a work, the first of which is true.
var trueOutput, falseOutput = sign.Sum([]byte("true")), sign.Sum([]byte("false"))

func TestDissentsOnEngines(t *testing.T) {
	t.Parallel()
	programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
		c := newCouncilWith(t, e, id, 5000, 1<<30)
		c.bond(c.great, 2000)
		c.bond(c.less, 500)
		c.falseResult()
	})
}

// TestDissentsInTime is about slots to the one: only one engine's clock can be set.
func TestDissentsInTime(t *testing.T) {
	t.Parallel()
	e := programtest.LiteSVM(t)
	c := newCouncilWith(t, e, programtest.Deploy(t, e, program.ELF), 200, 100)
	c.until(10_000)
	c.bond(c.great, 2000)
	c.bond(c.less, 500)
	by, s, now := c.reporter("timed accuser"), c.seller(c.at, "timed liar", 1000), c.now()
	x := c.accuse("timed", s, by, c.result(s.peer, 1, now+10, falseOutput), trueOutput)
	c.must("confirm, timed", one(c.vote(c.great, c.great.peer, x.Ballot, true)), c.great.peer)
	good := x.Instruction(c.program)
	c.until(now + 9)
	c.deny("slash before the end of the receipt", program.ErrNotOver, good)
	c.until(now + 111)
	c.deny("slash for a receipt that is too old", program.ErrTooOld, good)
	again := c.accuse("timed again", s, by, c.result(s.peer, 2, c.now(), falseOutput), trueOutput)
	c.must("confirm, timed again", one(c.vote(c.great, c.great.peer, again.Ballot, true)), c.great.peer)
	end := c.ballot(again.Ballot).Ends
	c.until(c.now() + 100)
	c.must("slash in the last slot of the receipt", one(again.Instruction(c.program)))
	gone := program.CloseBallot{Ballot: again.Ballot, RentPayer: c.wallet.Key()}.Instruction(c.program)
	c.deny("close a dissent that could be voted on", program.ErrEarly, gone)
	c.until(end + 1 + 3 + 200 + 1)
	c.must("close a dissent", one(gone))
}

// result is a final receipt that ends in a slot.
func (c *council) result(peer sign.Private, lease byte, to uint64, output sign.Hash) verify.Receipt {
	c.Helper()
	core := verify.ReceiptCore{Version: verify.ReceiptVersion, Flags: verify.ReceiptFinal, Units: 1, Lease: market.LeaseID{lease}, Seq: 3, Provider: peer.Key(),
		Buyer: named("deceived").Key(), From: market.Slot(to - 5), To: market.Slot(to), Cumulative: 100, Output: output}
	return c.sign(c.domain(), core, peer, named("deceived"))
}

func (c *council) dissentProposal(s seller, d program.Dissent) solana.Instruction {
	c.Helper()
	c.opened = c.now()
	return program.ProposeDissent{Payer: c.wallet.Key(), Signer: s.peer.Key(), Network: c.at, Provider: s.address,
		Ballot: program.BallotAddress(c.program, c.at, s.address, c.opened), Opened: c.opened, Dissent: d}.Instruction(c.program)
}

// accuse shows a receipt, opens a ballot on it, and has the call that takes the stake.
func (c *council) accuse(name string, s seller, by reporter, r verify.Receipt, output sign.Hash) program.SlashDissent {
	c.Helper()
	c.until(max(c.now(), c.opened+1)) // for another address
	at := c.attest(name, c.at, by, r)
	ballot := c.open("propose a dissent, "+name, c.dissentProposal(c.great, program.Dissent{Receipt: r.ReceiptCore.Hash(), Output: output}), c.great.peer)
	return program.SlashDissent{Network: c.at, Provider: s.address, Vault: s.vault, Mint: c.token, Ballot: ballot, Attested: at,
		Victim: c.tokens(name+", deceived", c.token, r.Buyer, 0), Reporter: by.tokens}
}

func (c *council) falseResult() {
	by, other := c.reporter("accuser"), c.reporter("another accuser")
	s, neighbour := c.seller(c.at, "liar", 1000), c.seller(c.at, "truthful neighbour", 1000)
	r := c.result(s.peer, 1, c.now()-2, falseOutput)
	about := program.Dissent{Receipt: r.ReceiptCore.Hash(), Output: trueOutput}
	proposal := c.dissentProposal(c.great, about)
	c.deny("propose a dissent cut off", program.ErrData, edit(proposal, cut), c.great.peer)
	c.deny("propose a dissent with more", program.ErrData, edit(proposal, longer), c.great.peer)
	c.deny("propose a dissent by a stranger", program.ErrNotOwner, with(proposal, 1, c.stranger.Key()), c.stranger)
	c.deny("propose a dissent without anything bonded", program.ErrNotBonded, c.dissentProposal(c.idle, about), c.idle.peer)

	x := c.accuse("false result", s, by, r, trueOutput)
	good := x.Instruction(c.program)
	c.deny("slash for what nobody confirmed", program.ErrNotCarried, good)
	c.deny("vote against a dissent", program.ErrData, c.vote(c.less, c.less.peer, x.Ballot, false), c.less.peer)
	c.deny("vote on a dissent without anything bonded", program.ErrNotBonded, c.vote(c.idle, c.idle.peer, x.Ballot, true), c.idle.peer)
	c.deny("vote on a dissent by a stranger", program.ErrNotOwner, with(c.vote(c.less, c.less.peer, x.Ballot, true), 1, c.stranger.Key()), c.stranger)
	c.must("confirm a dissent by the lesser", one(c.vote(c.less, c.less.peer, x.Ballot, true)), c.less.peer)
	c.deny("confirm a dissent twice", program.ErrExists, c.vote(c.less, c.less.peer, x.Ballot, true), c.less.peer)
	c.deny("slash for what too few confirmed", program.ErrNotCarried, good)
	c.must("confirm a dissent", one(c.vote(c.great, c.great.peer, x.Ballot, true)), c.great.peer)

	const network, account, vault, mint, ballot, attested, victim, reporter, token = 0, 1, 2, 3, 4, 5, 6, 7, 8
	c.deny("slash for a dissent with data", program.ErrData, edit(good, longer))
	c.deny("slash for a dissent in another network", program.ErrAddress, with(good, network, c.hasty))
	c.deny("slash the truthful neighbour", program.ErrNotItsKey, with(with(good, account, neighbour.address), vault, neighbour.vault))
	c.deny("slash another's vault for a dissent", program.ErrAddress, with(good, vault, neighbour.vault))
	c.deny("slash for a dissent in another mint", program.ErrMint, with(good, mint, c.other))
	c.deny("slash by a network as a ballot", program.ErrKind, with(good, ballot, c.at))
	c.deny("slash for a ballot as a receipt", program.ErrKind, with(good, attested, x.Ballot))
	c.deny("slash for a dissent without its victim", program.ErrTokenOwner, with(good, victim, by.tokens))
	c.deny("slash for a dissent for another reporter", program.ErrTokenOwner, with(good, reporter, other.tokens))
	c.deny("slash for a dissent by another token program", program.ErrAddress, with(good, token, program.SystemProgram))
	for _, place := range []int{network, account, vault, mint, ballot, victim, reporter} {
		c.deny("slash read-only for a dissent", program.ErrNotWritable, edit(good, readOnly(place)))
	}
	honest := c.result(s.peer, 2, c.now()-2, trueOutput)
	c.deny("slash for another receipt", program.ErrSubject, with(good, attested, c.attest("a true result", c.at, by, honest)))
	going := r.ReceiptCore
	going.Flags = 0
	c.deny("slash for a receipt that is not the last", program.ErrReceipt,
		with(good, attested, c.attest("not the last", c.at, by, c.sign(c.domain(), going, s.peer, named("deceived")))))
	c.deny("slash for a receipt shown elsewhere", program.ErrOtherNetwork, with(good, attested, c.attest("elsewhere", c.patient, by, r)))
	right := c.accuse("what is right", s, by, c.result(s.peer, 3, c.now()-2, trueOutput), trueOutput)
	c.must("confirm what is right", one(c.vote(c.great, c.great.peer, right.Ballot, true)), c.great.peer)
	c.deny("slash for what is right", program.ErrNoLie, right.Instruction(c.program))
	c.until(c.opened + 1)
	c.deny("slash by a ballot on rules", program.ErrSubject, with(good, ballot, c.open("propose rules meanwhile", c.proposal(c.great, c.rules(501)), c.great.owner)))
	c.deny("accept a dissent", program.ErrSubject, program.Accept{Payer: c.wallet.Key(), Network: c.at, Ballot: x.Ballot, Source: c.emission, Mint: c.token,
		Payout: c.stranger.Key(), Vault: c.stranger.Key()}.Instruction(c.program))
	c.deny("enact a dissent", program.ErrSubject, program.Enact{Network: c.at, Ballot: x.Ballot}.Instruction(c.program))

	if n := c.size(one(good), by); n > maxTransaction {
		c.Errorf("%d bytes", n)
	} else {
		c.Logf("SlashDissent: %d bytes", n)
	}
	supply := c.supply(c.token)
	c.must("slash for a false result", one(good))
	if got := [...]uint64{supply - c.supply(c.token), c.balance(x.Victim), c.balance(by.tokens), c.balance(s.vault)}; got != [...]uint64{775, 100, 125, 0} {
		c.Errorf("burned, victim, reporter, left: %d", got)
	}
	if p, n := c.provider(s), c.network(); !p.WasSlashed || p.Stake != 0 || n.Bonded != 2500 {
		c.Errorf("slashed: %+v, %d bonded in the network", p, n.Bonded)
	}
	c.deny("slash by a dissent twice", program.ErrOver, good)
	c.must("stake again", []solana.Instruction{c.stake(s, 1000)})
	again := c.accuse("false result again", s, by, c.result(s.peer, 4, c.now()+1<<20, falseOutput), trueOutput)
	c.must("confirm a dissent again", one(c.vote(c.great, c.great.peer, again.Ballot, true)), c.great.peer)
	c.deny("slash for what is not over yet", program.ErrNotOver, again.Instruction(c.program))
	c.until(c.opened + 1)
	second := c.open("propose the same dissent", c.dissentProposal(c.great, about), c.great.peer)
	c.must("confirm the same dissent", one(c.vote(c.great, c.great.peer, second, true)), c.great.peer)
	c.deny("slash for a receipt twice", program.ErrSlashedBefore, with(good, ballot, second))
}
