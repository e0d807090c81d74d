package program_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana/transaction"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
	"github.com/starling-network/starling/verify"
)

const maxTransaction = 1232 // bytes

func TestSlashOnEngines(t *testing.T) {
	t.Parallel()
	programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
		d := newDesk(t, e, id)
		d.until(100) // so that there are slots to have sold
		d.attesting()
		d.slashing()
		d.slashingOneself()
	})
}

// TestSlashInTime is about slots to the one: only one engine's clock can be set.
func TestSlashInTime(t *testing.T) {
	t.Parallel()
	e := programtest.LiteSVM(t)
	d := newDesk(t, e, programtest.Deploy(t, e, program.ELF))
	d.until(10_000)
	d.unbondingInTime()
	d.evidenceInTime()
	d.slashAndWithdrawal()
}

// reporter is a wallet with a token account for its share.
type reporter struct {
	sign.Private
	tokens sign.Key
}

func (d *desk) reporter(name string) reporter {
	d.Helper()
	w := programtest.Wallet(d.TB, d.Engine, name, sol)
	return reporter{w, d.tokens("reporter "+name, d.token, w.Key(), 0)}
}

// attestation is the two instructions that show a receipt, and where it will be.
func (d *desk) attestation(network sign.Key, by reporter, r verify.Receipt) ([]svm.Instruction, sign.Key) {
	at := program.AttestedAddress(d.program, network, by.Key(), r.ReceiptCore.Hash())
	return []svm.Instruction{program.SignedReceipt(d.domain(), r).Instruction(),
		program.Attest{Reporter: by.Key(), Network: network, Attested: at}.Instruction(d.program)}, at
}

func (d *desk) attest(name string, network sign.Key, by reporter, r verify.Receipt) sign.Key {
	d.Helper()
	in, at := d.attestation(network, by, r)
	d.must("attest "+name, in, by)
	return at
}

func (d *desk) attesting() {
	by, other := d.reporter("shower"), d.reporter("other shower")
	peer, buyer, stranger := named("attested peer"), named("attested buyer"), named("attested stranger")
	now := d.now()
	s := d.sell(peer, buyer, 1, 3, now-20, now-10, 100)
	good, at := d.attestation(d.patient, by, s.Receipt)
	deny := func(name string, want program.Code, in ...svm.Instruction) {
		d.Helper()
		d.run(name, programtest.Custom(1, uint32(want)), in, d.wallet, by)
	}
	// shown is the same with something else signed.
	shown := func(domain sign.Domain, tag sign.Tag, core verify.ReceiptCore, signers ...sign.Private) svm.Instruction {
		d.Helper()
		layout := core.Marshal()
		m := svm.Signed{Message: domain.Preimage(tag, layout[:])}
		for _, k := range signers {
			sig, err := k.Sign(m.Message)
			if err != nil {
				d.Fatal(err)
			}
			m.Keys, m.Signatures = append(m.Keys, k.Key()), append(m.Signatures, sig)
		}
		return m.Instruction()
	}
	ours := d.domain()
	for name, domain := range map[string]sign.Domain{
		"network": {Network: "test2", Chain: ours.Chain, Program: ours.Program},
		"chain":   {Network: ours.Network, Chain: sign.Sum([]byte("elsewhere")), Program: ours.Program},
		"program": {Network: ours.Network, Chain: ours.Chain, Program: stranger.Key()},
		"direct":  {Network: ours.Network, Chain: ours.Chain},
	} {
		deny("attest of another "+name, program.ErrMessage, shown(domain, sign.TagReceipt, s.ReceiptCore, peer, buyer), good[1])
	}
	deny("attest a lease", program.ErrMessage, shown(ours, sign.TagLease, s.ReceiptCore, peer, buyer), good[1])
	deny("attest by the provider alone", program.ErrSigner, shown(ours, sign.TagReceipt, s.ReceiptCore, peer), good[1])
	deny("attest by the buyer first", program.ErrSigner, shown(ours, sign.TagReceipt, s.ReceiptCore, buyer, peer), good[1])
	deny("attest by a stranger as buyer", program.ErrSigner, shown(ours, sign.TagReceipt, s.ReceiptCore, peer, stranger), good[1])
	deny("attest by three", program.ErrSigner, shown(ours, sign.TagReceipt, s.ReceiptCore, peer, buyer, stranger), good[1])
	newer, odd := s.ReceiptCore, s.ReceiptCore
	newer.Version, odd.Flags = 2, 2
	deny("attest version 2", program.ErrReceipt, shown(ours, sign.TagReceipt, newer, peer, buyer), good[1])
	deny("attest unknown flags", program.ErrReceipt, shown(ours, sign.TagReceipt, odd, peer, buyer), good[1])
	// The precompile takes instruction 0 for its own, which it is; the program does not look.
	elsewhere := edit(good[0], func(in *svm.Instruction) { binary.LittleEndian.PutUint16(in.Data[2+12:], 0) })
	deny("attest by a pointer", program.ErrPrecompile, elsewhere, good[1])
	deny("attest without the precompile", program.ErrPrecompile, d.stake(d.seller(d.patient, "attester", 0), 1), good[1])
	number := func(n byte) svm.Instruction {
		return edit(good[1], func(in *svm.Instruction) { in.Data[1] = n })
	}
	deny("attest itself", program.ErrPrecompile, good[0], number(1))
	deny("attest no instruction", program.ErrNoInstruction, good[0], number(2))
	deny("attest cut off", program.ErrData, good[0], edit(good[1], func(in *svm.Instruction) { in.Data = in.Data[:1] }))
	deny("attest with more", program.ErrData, good[0], edit(good[1], func(in *svm.Instruction) { in.Data = append(in.Data, 0) }))
	deny("attest in another's place", program.ErrAddress, good[0], with(good[1], 2, program.AttestedAddress(d.program, d.patient, other.Key(), s.ReceiptCore.Hash())))
	deny("attest in another network's place", program.ErrAddress, good[0], with(good[1], 1, d.hasty))
	deny("attest in no network", program.ErrOwner, good[0], with(good[1], 1, stranger.Key()))
	deny("attest by another sysvar", program.ErrAddress, good[0], with(good[1], 3, d.patient))
	deny("attest without reporter", program.ErrNotSigner, good[0], edit(with(good[1], 0, other.Key()), func(in *svm.Instruction) { in.Accounts[0].Signer = false }))
	forged := edit(good[0], func(in *svm.Instruction) { in.Data[2+2*14+2*32] ^= 1 })
	if r, err := d.Run(d.Context(), []svm.Instruction{forged, good[1]}, d.wallet, by); err == nil && r.Err == "" {
		d.Error("a forged signature passed")
	}
	if a, err := d.Account(d.Context(), at); a != nil || err != nil {
		d.Fatalf("attested by mistake: %+v, %v", a, err)
	}

	r := d.run("attest", "", good, d.wallet, by)
	d.Logf("%6d CU  attest, %d bytes", r.Units, d.size(good, by))
	a, err := d.Account(d.Context(), at)
	if err != nil || a == nil || a.Owner != d.program || a.Lamports != svm.Rent(program.AttestedSize) {
		d.Fatalf("attested: %+v, %v", a, err)
	}
	got, err := program.UnmarshalAttested(a.Data)
	if err != nil || got.Core != s.ReceiptCore || got.Network != d.patient || got.Reporter != by.Key() || got.Slot < now {
		d.Errorf("attested %+v, %v", got, err)
	}
	deny("attest again", program.ErrExists, good...)
	d.attest("by another too", d.patient, other, s.Receipt)

	closing := program.CloseAttested{Reporter: by.Key(), Attested: at}.Instruction(d.program)
	d.deny("close by another", program.ErrNotReporter, with(closing, 0, other.Key()), other)
	d.deny("close without signature", program.ErrNotSigner, edit(closing, func(in *svm.Instruction) { in.Accounts[0].Signer = false }))
	d.deny("close a network", program.ErrKind, with(closing, 1, d.patient), by)
	before := d.lamports(by.Key())
	d.Logf("%6d CU  close", d.must("close", []svm.Instruction{closing}, by))
	if back := d.lamports(by.Key()) - before; back != svm.Rent(program.AttestedSize) {
		d.Errorf("%d lamports came back", back)
	}
	if a, err := d.Account(d.Context(), at); a != nil || err != nil {
		d.Errorf("closed: %+v, %v", a, err)
	}
	d.must("attest after closing", good, by)
}

func (d *desk) lamports(k sign.Key) uint64 {
	d.Helper()
	a, err := d.Account(d.Context(), k)
	if err != nil || a == nil {
		d.Fatalf("%s: %+v, %v", k, a, err)
	}
	return a.Lamports
}

// size is that of a transaction that the signer alone pays for and signs.
func (d *desk) size(in []svm.Instruction, signer sign.Signer) int {
	d.Helper()
	_, raw, err := transaction.Sign(in, nil, sign.Sum([]byte("blockhash")), signer)
	if err != nil {
		d.Fatal(err)
	}
	return len(raw)
}

// double is a seller's double sale, shown by a reporter.
type double struct {
	seller
	a, b     sale
	by       reporter
	atA, atB sign.Key // attested
	toA, toB sign.Key // the victims' token accounts
}

// caught attests both sales; the victims' token accounts are new.
func (d *desk) caught(name string, s seller, a, b sale, by reporter) double {
	d.Helper()
	return double{seller: s, a: a, b: b, by: by,
		atA: d.attest(name+", A", s.network, by, a.Receipt), atB: d.attest(name+", B", s.network, by, b.Receipt),
		toA: d.tokens(name+", victim A", d.token, a.Buyer, 0), toB: d.tokens(name+", victim B", d.token, b.Buyer, 0)}
}

func (d *desk) slash(c double) svm.Instruction {
	d.Helper()
	return program.Slash{Network: c.network, Provider: c.address, Vault: c.vault, Mint: d.token, A: c.atA, B: c.atB, VictimA: c.toA, VictimB: c.toB,
		Reporter: c.by.tokens, Unit: shared, InA: d.proof(c.a), InB: d.proof(c.b)}.Instruction(d.program)
}

func (d *desk) proof(s sale) market.UnitProof {
	d.Helper()
	p, err := market.ProveUnit(s.units, shared)
	if err != nil {
		d.Fatal(err)
	}
	return p
}

func (d *desk) slashing() {
	s := d.seller(d.patient, "double seller", 700)
	d.must("stake before the slash", []svm.Instruction{d.stake(s, 300)})
	d.must("unstake before the slash", []svm.Instruction{d.request(s, 400)}, s.owner)
	alice, bob := named("alice"), named("bob")
	by, now := d.reporter("reporter"), d.now()
	c := d.caught("double sale", s, d.sell(s.peer, alice, 1, 1024, now-20, now-10, 100), d.sell(s.peer, bob, 2, 1024, now-15, now-5, 30), by)
	if _, err := verify.NewConflict(d.domain(), c.a.Receipt, c.b.Receipt, c.a.units, c.b.units); err != nil {
		d.Fatalf("no conflict: %v", err)
	}
	good := d.slash(c)
	d.notSlashed(c, good)

	supply, held := d.supply(d.token), d.balance(s.vault)
	r := d.run("slash", "", []svm.Instruction{good}, by)
	d.Logf("%6d CU  slash for leases of 1024 units, %d bytes", r.Units, d.size([]svm.Instruction{good}, by))
	if n := d.size([]svm.Instruction{good, svm.ComputeLimit(200_000)}, by); n > maxTransaction {
		d.Errorf("a slash with a compute limit has %d bytes, over %d", n, maxTransaction)
	}
	p := d.provider(s)
	got := [...]uint64{supply - d.supply(d.token), d.balance(c.toA), d.balance(c.toB), d.balance(by.tokens), d.balance(s.vault), p.Stake, p.Unbonding, p.Ready}
	if want := [...]uint64{745, 100, 30, 125}; held != 1000 || [4]uint64(got[:4]) != want || [4]uint64(got[4:]) != [4]uint64{} {
		d.Errorf("slashed: burned, A, B, reporter, vault, stake, unbonding, ready are %d, want %d and nothing left", got, want)
	}
	if p.Slashed < now || !p.WasSlashed {
		d.Errorf("slashed: %+v", p)
	}
	d.deny("slash again", program.ErrSlashedBefore, good)
	d.must("stake after the slash", []svm.Instruction{d.stake(s, 50)})
	d.deny("slash new stake for old evidence", program.ErrSlashedBefore, good)

	d.until(p.Slashed + 3)
	again := c
	again.a, again.b = d.sell(s.peer, alice, 3, 1, now, p.Slashed+1, 5), d.sell(s.peer, alice, 4, 2, now, p.Slashed+2, 6)
	again.atA, again.atB = d.attest("again, A", s.network, by, again.a.Receipt), d.attest("again, B", s.network, by, again.b.Receipt)
	again.toB = again.toA
	d.must("slash for new evidence", []svm.Instruction{d.slash(again)})
	if got := [...]uint64{d.balance(again.toA), d.balance(by.tokens), d.balance(s.vault)}; got != [...]uint64{111, 131, 0} {
		d.Errorf("slashed again: victim, reporter, vault are %d", got)
	}
}

// notSlashed tries everything that is nearly right.
func (d *desk) notSlashed(c double, good svm.Instruction) {
	s, by, now := c.seller, c.by, uint64(c.a.To)+10
	other := d.reporter("other reporter")
	neighbour := d.seller(d.patient, "neighbour", 1000)
	const network, slashed, vault, mint, a, b, victimA, victimB, reporter, token = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	data := func(change func([]byte) []byte) svm.Instruction {
		return edit(good, func(in *svm.Instruction) { in.Data = change(in.Data) })
	}
	d.deny("slash for another kind", program.ErrEvidenceKind, data(func(b []byte) []byte { b[1] = 2; return b }))
	d.deny("slash cut off", program.ErrData, data(func(b []byte) []byte { return b[:len(b)-1] }))
	d.deny("slash with more", program.ErrData, data(func(b []byte) []byte { return append(b, 0) }))
	d.deny("slash for another unit", program.ErrRoot, data(func(b []byte) []byte { b[2] ^= 1; return b }))
	const proofA, proofB = 34, 34 + 325
	d.deny("slash by A's proof of another index", program.ErrRoot, data(func(b []byte) []byte { b[proofA] ^= 1; return b }))
	d.deny("slash by B's proof of another index", program.ErrRoot, data(func(b []byte) []byte { b[proofB] ^= 1; return b }))
	d.deny("slash by A's proof among fewer", program.ErrUnitCount, data(func(b []byte) []byte { b[proofA+2]--; return b }))
	d.deny("slash by B's proof among more", program.ErrUnitCount, data(func(b []byte) []byte { b[proofB+2]++; return b }))

	d.deny("slash in another network", program.ErrAddress, with(good, network, d.hasty))
	d.deny("slash another's vault", program.ErrAddress, with(good, vault, neighbour.vault))
	d.deny("slash a neighbour", program.ErrNotItsKey, with(with(good, slashed, neighbour.address), vault, neighbour.vault))
	d.deny("slash a network", program.ErrKind, with(good, slashed, d.patient))
	d.deny("slash in another mint", program.ErrAddress, with(good, mint, d.other))
	d.deny("slash by another token program", program.ErrAddress, with(good, token, svm.SystemProgram))
	for place := range 10 {
		if good.Accounts[place].Writable {
			d.deny("slash read-only", program.ErrNotWritable, edit(good, func(in *svm.Instruction) { in.Accounts[place].Writable = false }))
		}
	}

	d.deny("slash in the other order", program.ErrLeaseOrder, with(with(good, a, c.atB), b, c.atA))
	d.deny("slash for one receipt twice", program.ErrOneLease, with(good, b, c.atA))
	d.deny("slash for a provider's account", program.ErrKind, with(good, b, s.address))
	d.deny("slash for a token account", program.ErrOwner, with(good, b, c.toA))
	show := func(name string, r verify.Receipt) sign.Key { d.Helper(); return d.attest(name, d.patient, by, r) }
	d.deny("slash for receipts that two showed", program.ErrReporters, with(good, b, d.attest("by another reporter", d.patient, other, c.b.Receipt)))
	d.deny("slash for a receipt shown elsewhere", program.ErrOtherNetwork, with(good, b, d.attest("elsewhere", d.hasty, by, c.b.Receipt)))
	bob := named("bob")
	d.deny("slash for another's receipt", program.ErrParties, with(good, b, show("of a neighbour", d.sell(neighbour.peer, bob, 2, 1024, now-15, now-5, 30).Receipt)))
	d.deny("slash for the same lease", program.ErrOneLease, with(good, b, show("of the same lease", d.sell(s.peer, bob, 1, 1024, now-15, now-5, 30).Receipt)))
	from, to := uint64(c.a.To), uint64(c.a.To)+5
	d.deny("slash for what was sold after", program.ErrNoOverlap, with(good, b, show("after", d.sell(s.peer, bob, 2, 1024, from, to, 30).Receipt)))
	d.deny("slash for what was never over", program.ErrNoOverlap, with(good, b, show("backwards", d.sell(s.peer, bob, 2, 1024, now-12, now-14, 30).Receipt)))
	d.deny("slash for what is not over", program.ErrNotOver, with(good, b, show("in the future", d.sell(s.peer, bob, 2, 1024, now-15, now+1<<30, 30).Receipt)))
	d.deny("slash for other units", program.ErrUnitCount, with(good, b, show("of fewer units", d.sell(s.peer, bob, 2, 1000, now-15, now-5, 30).Receipt)))

	d.deny("slash without victim A", program.ErrAddress, with(good, victimA, by.tokens))
	d.deny("slash without victim B", program.ErrAddress, with(good, victimB, c.toA))
	d.deny("slash for a victim without tokens", program.ErrOwner, with(good, victimA, named("alice").Key()))
	d.deny("slash for a victim's other tokens", program.ErrAddress, with(good, victimA, d.tokens("alice's other", d.other, named("alice").Key(), 0)))
	d.deny("slash for another reporter", program.ErrAddress, with(good, reporter, other.tokens))
	d.deny("slash for a victim's account that it does not look at", program.ErrAddress, with(good, victimA, d.aside("alice's", d.token, named("alice").Key(), 0)))

	poor := d.seller(d.patient, "poor double seller", 0)
	p := d.caught("poor", poor, d.sell(poor.peer, bob, 1, 1, now-20, now-10, 1), d.sell(poor.peer, bob, 2, 1, now-20, now-10, 1), by)
	d.deny("slash one without stake", program.ErrNothingStaked, d.slash(p))
	if p := d.provider(s); p.Stake != 600 || p.Unbonding != 400 || d.balance(s.vault) != 1000 || d.balance(by.tokens) != 0 {
		d.Errorf("slashed by mistake: %+v", p)
	}
}

// slashingOneself: owner, provider, both buyers and reporter are one, whose receipts say that it paid all there is.
func (d *desk) slashingOneself() {
	self := named("self")
	s := seller{owner: self, peer: self, network: d.patient, address: account.ProviderAddress(d.program, d.patient, self.Key())}
	s.vault = account.StakeAddress(d.program, s.address)
	d.must("register self", []svm.Instruction{d.register(s), d.stake(s, 1001)}, self)
	by := reporter{self, d.tokens("self", d.token, self.Key(), 0)}
	if err := d.Fund(d.Context(), self.Key(), sol); err != nil {
		d.Fatal(err)
	}
	now := d.now()
	a, b := d.sell(self, self, 1, 1, now-20, now-10, math.MaxUint64), d.sell(self, self, 2, 1, now-20, now-10, math.MaxUint64)
	c := double{seller: s, a: a, b: b, by: by, toA: by.tokens, toB: by.tokens,
		atA: d.attest("self, A", s.network, by, a.Receipt), atB: d.attest("self, B", s.network, by, b.Receipt)}
	supply := d.supply(d.token)
	d.must("slash oneself", []svm.Instruction{d.slash(c)})
	if back, burned := d.balance(by.tokens), supply-d.supply(d.token); back != 500 || burned != 501 {
		d.Errorf("a self-slasher got back %d of 1001, %d burned", back, burned)
	}
	d.deny("slash oneself again", program.ErrSlashedBefore, d.slash(c))
}

func (d *desk) unbondingInTime() {
	s := d.seller(d.timed, "timed leaver", 1000)
	to := d.tokens("timed leaver's", d.token, s.owner.Key(), 0)
	start := d.now()
	d.must("unstake in time", []svm.Instruction{d.request(s, 400)}, s.owner)
	if p := d.provider(s); p.Ready != start+150 {
		d.Errorf("ready in slot %d after %d", p.Ready, start)
	}
	d.until(start + 100)
	d.must("unstake more in time", []svm.Instruction{d.request(s, 100)}, s.owner)
	for _, slot := range []uint64{start + 150, start + 249} {
		d.until(slot)
		d.deny("withdraw early", program.ErrEarly, d.withdraw(s, to), s.owner)
	}
	d.until(start + 250)
	d.must("withdraw in time", []svm.Instruction{d.withdraw(s, to)}, s.owner)
	if d.balance(to) != 500 || d.balance(s.vault) != 500 {
		d.Errorf("withdrawn %d, left %d", d.balance(to), d.balance(s.vault))
	}
}

func (d *desk) evidenceInTime() {
	s, by, buyer := d.seller(d.timed, "timed seller", 1000), d.reporter("timed reporter"), named("timed buyer")
	now := d.now()
	c := d.caught("timed", s, d.sell(s.peer, buyer, 1, 1, now, now+10, 7), d.sell(s.peer, buyer, 2, 1, now+5, now+15, 9), by)
	d.until(now + 14)
	d.deny("slash before the end", program.ErrNotOver, d.slash(c))
	d.until(now + 111)
	d.deny("slash too late", program.ErrTooOld, d.slash(c))
	d.until(now + 116)
	d.deny("slash far too late", program.ErrTooOld, d.slash(c))

	now = d.now()
	c = d.caught("timed well", s, d.sell(s.peer, buyer, 3, 1, now, now+10, 7), d.sell(s.peer, buyer, 4, 1, now+5, now+15, 9), by)
	d.until(now + 110)
	d.must("slash in time", []svm.Instruction{d.slash(c)})
	slashed := d.now()
	d.must("stake after", []svm.Instruction{d.stake(s, 100)})
	until := d.caught("to the slot of the slash", s, d.sell(s.peer, buyer, 5, 1, now, slashed, 7), d.sell(s.peer, buyer, 6, 1, now, slashed+1, 9), by)
	d.until(slashed + 1)
	d.deny("slash for what was before", program.ErrSlashedBefore, d.slash(until))
	after := d.caught("after the slash", s, d.sell(s.peer, buyer, 7, 1, now, slashed+1, 7), d.sell(s.peer, buyer, 8, 1, now, slashed+1, 9), by)
	d.must("slash for what was after", []svm.Instruction{d.slash(after)})
}

// slashAndWithdrawal in one slot: whichever comes first.
func (d *desk) slashAndWithdrawal() {
	by, buyer := d.reporter("racing reporter"), named("racing buyer")
	for _, withdrawn := range []bool{true, false} {
		name := map[bool]string{true: "withdrawal first", false: "slash first"}[withdrawn]
		s := d.seller(d.timed, name, 1000)
		to := d.tokens(name, d.token, s.owner.Key(), 0)
		start := d.now()
		d.must(name+": unstake", []svm.Instruction{d.request(s, 600)}, s.owner)
		c := d.caught(name, s, d.sell(s.peer, buyer, 1, 1, start+60, start+70, 0), d.sell(s.peer, buyer, 2, 1, start+60, start+70, 0), by)
		before := d.caught(name+" before", s, d.sell(s.peer, buyer, 1, 2, start-10, start, 0), d.sell(s.peer, buyer, 2, 2, start-10, start, 0), by)
		d.until(start + 150)
		d.deny(name+": slash for what was before the request", program.ErrTooOld, d.slash(before))
		supply := d.supply(d.token)
		if withdrawn {
			d.must(name+": withdraw", []svm.Instruction{d.withdraw(s, to)}, s.owner)
			d.must(name+": slash", []svm.Instruction{d.slash(c)})
			if got := [...]uint64{d.balance(to), supply - d.supply(d.token), d.balance(s.vault)}; got != [...]uint64{600, 350, 0} {
				d.Errorf("%s: withdrawn, burned, left are %d", name, got)
			}
		} else {
			d.must(name+": slash", []svm.Instruction{d.slash(c)})
			d.deny(name+": withdraw", program.ErrNothingDue, d.withdraw(s, to), s.owner)
			if got := [...]uint64{d.balance(to), supply - d.supply(d.token), d.balance(s.vault)}; got != [...]uint64{0, 875, 0} {
				d.Errorf("%s: withdrawn, burned, left are %d", name, got)
			}
		}
	}
}

// TestAttackTwoKeysOneStake: one registration, one stake, one key. Its owner cannot have the same stake answer for a second key under which
// it sells the unit again: what rotated the key is no call, a receipt by another key is nothing that this registration signed, and
// the other key has a stake of its own or none, which nobody who looks it up takes for this one.
func TestAttackTwoKeysOneStake(t *testing.T) {
	t.Parallel()
	e := programtest.LiteSVM(t)
	d := newDesk(t, e, programtest.Deploy(t, e, program.ELF))
	d.until(10_000)
	s, by, now := d.seller(d.patient, "one stake", 800), d.reporter("two keys' reporter"), d.now()
	alice, bob, next := named("two keys' alice"), named("two keys' bob"), named("next peer key")
	rotate := svm.Instruction{Program: d.program, Data: []byte{15}, Accounts: []svm.Meta{{Key: s.owner.Key(), Signer: true}, {Key: next.Key(), Signer: true},
		{Key: s.network}, {Key: s.address, Writable: true}}}
	d.deny("have the stake answer for a second key", program.ErrInstruction, rotate, s.owner, next)
	d.deny("slash for receipts by two keys", program.ErrParties,
		d.slash(d.caught("two keys", s, d.sell(s.peer, alice, 1, 4, now-20, now-10, 7), d.sell(next, bob, 2, 5, now-20, now-10, 9), by)))
	d.deny("slash for receipts by a key without a stake", program.ErrNotItsKey,
		d.slash(d.caught("another key", s, d.sell(next, alice, 3, 4, now-20, now-10, 7), d.sell(next, bob, 4, 5, now-20, now-10, 9), by)))
	if p := d.provider(s); p.Peer != s.peer.Key() || p.Stake != 800 || account.ProviderAddress(d.program, s.network, p.Peer) != s.address {
		d.Errorf("registered: %+v", p)
	}
	twice := d.caught("one key", s, d.sell(s.peer, alice, 5, 4, now-20, now-10, 7), d.sell(s.peer, bob, 6, 5, now-20, now-10, 9), by)
	d.must("slash for selling twice under the one key", []svm.Instruction{d.slash(twice)})
}
