package program_test

import (
	"testing"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/testnet/programtest"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/audit/audittest"
	"github.com/starling-network/starling/verify/challenge"
)

// auditSlots is the length of the windows of audits on the network of these tests.
const auditSlots = 5

// court is a desk with a network where audits are evidence.
type court struct {
	*desk
	params account.Params
	at     sign.Key // the network
}

func newCourt(t *testing.T, e programtest.Engine, id sign.Key) *court {
	c := &court{desk: newDesk(t, e, id)}
	c.params = c.desk.params(1<<40, 1<<40+1)
	c.params.AuditSlots = auditSlots
	c.at = account.NetworkAddress(id, c.params)
	c.must("network of audits", one(program.InitNetwork{Payer: c.wallet.Key(), Network: c.at, Params: c.params}.Instruction(id)))
	c.until(40)
	return c
}

func TestAuditsOnEngines(t *testing.T) {
	t.Parallel()
	programtest.Each(t, program.ELF, func(t *testing.T, e programtest.Engine, id sign.Key) {
		c := newCourt(t, e, id)
		c.stating()
		c.falseOpenings()
		c.twoAnswers()
		c.falsePasses()
	})
}

// answer is an answer by a provider to a question of the given depth.
func (c *court) answer(peer sign.Private, depth uint32) audit.Answer {
	return audit.Answer{
		Target:      audit.Target{Provider: peer.Key(), Unit: shared, Window: audit.WindowOf(market.Slot(c.now()), auditSlots) - 1, Attempt: 1},
		ProductSeed: sign.Sum([]byte("seed")), Shape: challenge.Shape{Rows: 128, Columns: 192, Depth: depth, Products: 2}, ProductRoot: sign.Sum([]byte("root")),
		DatasetSeed: sign.Sum([]byte("dataset")), Walk: challenge.Walk{Cells: 1000, Work: 5, Walkers: 8, Steps: 12}, WalkSeed: sign.Sum([]byte("walk")),
		WalkRoot: sign.Sum([]byte("ends")),
	}
}

// state shows a statement; where it is then.
func (c *court) state(name string, by reporter, what program.Statement, layout []byte, signer sign.Private) sign.Key {
	c.Helper()
	in, at := c.stated(by, what, layout, signer)
	c.Logf("%6d CU  %s, %d bytes", c.must(name, in, by), name, c.size(in, by))
	return at
}

func (c *court) stated(by reporter, what program.Statement, layout []byte, signer sign.Private) ([]svm.Instruction, sign.Key) {
	c.Helper()
	tags := map[program.Statement]sign.Tag{program.StatementAnswer: sign.TagAnswer, program.StatementShown: sign.TagShown, program.StatementVerdict: sign.TagVerdict}
	sig, err := signer.Sign(c.domain().Preimage(tags[what], layout))
	if err != nil {
		c.Fatal(err)
	}
	at := program.StatedAddress(c.program, c.at, by.Key(), what, signer.Key(), layout)
	return []svm.Instruction{program.SignedStatement(c.domain(), what, layout, signer.Key(), sig).Instruction(),
		program.State{Reporter: by.Key(), Network: c.at, Stated: at, What: what}.Instruction(c.program)}, at
}

// accused is the call that a lie of a seller needs, but for where its statements are.
func (c *court) accused(s seller, by reporter, l audit.Lie) program.SlashAudit {
	return program.SlashAudit{Network: c.at, Provider: s.address, Vault: s.vault, Mint: c.token, Reporter: by.tokens, Kind: l.Kind, Value: l.Value, Index: l.Index,
		Count: l.Count, Answer: l.Answer, Opened: l.Opening, Path: l.Path}
}

func (c *court) slashed(name string, in svm.Instruction, by reporter) programtest.Result {
	c.Helper()
	r := c.run(name, "", []svm.Instruction{in, svm.ComputeLimit(program.SlashAuditUnits)}, by)
	n := c.size([]svm.Instruction{in, svm.ComputeLimit(program.SlashAuditUnits)}, by)
	c.Logf("%7d CU  %s, %d bytes", r.Units, name, n)
	if n > maxTransaction {
		c.Errorf("%s: %d bytes", name, n)
	}
	return r
}

// stating tries what is nearly a statement.
func (c *court) stating() {
	by, other := c.reporter("stater"), c.reporter("another stater")
	peer := named("stating peer")
	a := c.answer(peer, 64)
	layout := a.Marshal()
	good, at := c.stated(by, program.StatementAnswer, layout[:], peer)
	deny := func(name string, want program.Code, in ...svm.Instruction) {
		c.Helper()
		c.run(name, programtest.Custom(1, uint32(want)), in, c.wallet, by)
	}
	deny("state as what was shown", program.ErrPrecompile, good[0], edit(good[1], func(in *svm.Instruction) { in.Data[2] = 2 }))
	deny("state as what there is not", program.ErrEvidenceKind, good[0], edit(good[1], func(in *svm.Instruction) { in.Data[2] = 4 }))
	deny("state cut off", program.ErrData, good[0], edit(good[1], cut))
	deny("state in another's place", program.ErrAddress, good[0], with(good[1], 2, program.StatedAddress(c.program, c.at, other.Key(), program.StatementAnswer, peer.Key(), layout[:])))
	deny("state in another network's place", program.ErrAddress, good[0], with(good[1], 1, c.hasty))
	deny("state in no network", program.ErrOwner, good[0], with(good[1], 1, peer.Key()))
	deny("state without reporter", program.ErrNotSigner, good[0], edit(with(good[1], 0, other.Key()), unsigned(0)))
	deny("state itself", program.ErrPrecompile, good[0], edit(good[1], func(in *svm.Instruction) { in.Data[1] = 1 }))
	deny("state no instruction", program.ErrNoInstruction, good[0], edit(good[1], func(in *svm.Instruction) { in.Data[1] = 2 }))
	stranger, _ := c.stated(by, program.StatementAnswer, layout[:], named("stranger"))
	deny("state another's answer", program.ErrStatement, stranger...)
	a.Attempt = 4
	layout = a.Marshal()
	odd, _ := c.stated(by, program.StatementAnswer, layout[:], peer)
	deny("state a fourth attempt", program.ErrStatement, odd...)
	a.Attempt, a.Shape.Rows = 1, 65
	layout = a.Marshal()
	odd, _ = c.stated(by, program.StatementAnswer, layout[:], peer)
	deny("state an odd shape", program.ErrStatement, odd...)
	sig, err := peer.Sign(sign.Domain{Network: "other", Chain: c.chain, Program: c.program}.Preimage(sign.TagAnswer, layout[:]))
	if err != nil {
		c.Fatal(err)
	}
	elsewhere := svm.Signed{Keys: []sign.Key{peer.Key()}, Signatures: []sign.Signature{sig},
		Message: sign.Domain{Network: "other", Chain: c.chain, Program: c.program}.Preimage(sign.TagAnswer, layout[:])}.Instruction()
	deny("state of another network", program.ErrMessage, elsewhere, good[1])
	forged := edit(good[0], func(in *svm.Instruction) { in.Data[2+14+32] ^= 1 })
	if r, err := c.Run(c.Context(), []svm.Instruction{forged, good[1]}, c.wallet, by); err == nil && r.Err == "" {
		c.Error("a forged signature passed")
	}
	c.must("state", good, by)
	deny("state again", program.ErrExists, good...)
	gone := program.CloseStated{Reporter: by.Key(), Stated: at}.Instruction(c.program)
	c.deny("close another's statement", program.ErrNotReporter, with(gone, 0, other.Key()), other)
	c.deny("close a network as a statement", program.ErrKind, with(gone, 1, c.at), by)
	c.deny("close a statement unsigned", program.ErrNotSigner, edit(gone, unsigned(0)))
	before := c.lamports(by.Key())
	c.must("close a statement", one(gone), by)
	if back := c.lamports(by.Key()) - before; back != svm.Rent(program.StatedSize(program.StatementAnswer)) {
		c.Errorf("%d lamports came back", back)
	}
}

// shows is what a seller shows of an answer, and the lie in it.
func (c *court) shows(s seller, a audit.Answer, index, value int, verdicts ...audit.Signed) (audit.Shown, []audit.Lie) {
	c.Helper()
	os := audittest.Openings(a, index, value)
	shown := audit.Show(a, os)
	sig, err := shown.Sign(c.domain(), s.peer)
	if err != nil {
		c.Fatal(err)
	}
	lies := audit.FindLie(a, shown, sig, verdicts, os, true)
	for _, l := range lies {
		if err := l.Check(c.domain()); err != nil {
			c.Fatalf("%s: %v", l.Kind, err)
		}
	}
	return shown, lies
}

func (c *court) falseOpenings() {
	by, other := c.reporter("auditor"), c.reporter("another auditor")
	s, neighbour := c.seller(c.at, "false shower", 1000), c.seller(c.at, "honest neighbour", 1000)
	a := c.answer(s.peer, challenge.MaxDepth)
	shown, lies := c.shows(s, a, 3, 17)
	if len(lies) != 1 {
		c.Fatalf("%d lies", len(lies))
	}
	layout := shown.Marshal()
	call := c.accused(s, by, lies[0])
	call.A = c.state("state what was shown", by, program.StatementShown, layout[:], s.peer)
	good := call.Instruction(c.program)
	const network, liar, vault, mint, stated, none, reporter, token = 0, 1, 2, 3, 4, 5, 6, 7
	deny := func(name string, want program.Code, in svm.Instruction) {
		c.Helper()
		c.run(name, programtest.Custom(0, uint32(want)), []svm.Instruction{in, svm.ComputeLimit(program.SlashAuditUnits)}, c.wallet)
	}
	changed := func(change func(*program.SlashAudit)) svm.Instruction {
		x := call
		change(&x)
		return x.Instruction(c.program)
	}
	deny("slash for a right value", program.ErrNoLie, changed(func(x *program.SlashAudit) { x.Value = 16 }))
	deny("slash for no value", program.ErrIndex, changed(func(x *program.SlashAudit) { x.Value = 32 }))
	deny("slash for another opening", program.ErrRoot, changed(func(x *program.SlashAudit) { x.Opened.Values[17]++ }))
	deny("slash for another leaf", program.ErrRoot, changed(func(x *program.SlashAudit) { x.Opened.Leaf++ }))
	deny("slash as another opening", program.ErrRoot, changed(func(x *program.SlashAudit) { x.Index-- }))
	deny("slash of too many openings", program.ErrIndex, changed(func(x *program.SlashAudit) { x.Count = challenge.Openings + 1 }))
	deny("slash past the openings", program.ErrIndex, changed(func(x *program.SlashAudit) { x.Index = x.Count }))
	deny("slash by a short path", program.ErrPath, changed(func(x *program.SlashAudit) { x.Path = x.Path[1:] }))
	deny("slash for another seed", program.ErrOtherAnswer, changed(func(x *program.SlashAudit) { x.Answer.ProductSeed[0] ^= 1 }))
	deny("slash for another's answer", program.ErrOtherAnswer, changed(func(x *program.SlashAudit) { x.Answer.Provider = neighbour.peer.Key() }))
	deny("slash as a false pass", program.ErrStatement, changed(func(x *program.SlashAudit) { x.Kind = audit.FalsePass }))
	deny("slash as two answers", program.ErrStatement, changed(func(x *program.SlashAudit) { x.Kind, x.B = audit.TwoAnswers, x.A }))
	deny("slash as what there is not", program.ErrEvidenceKind, changed(func(x *program.SlashAudit) { x.Kind = 4 }))
	deny("slash cut off for an audit", program.ErrData, edit(good, cut))
	deny("slash with more for an audit", program.ErrData, edit(good, longer))
	deny("slash the honest neighbour", program.ErrNotItsKey, with(with(good, liar, neighbour.address), vault, neighbour.vault))
	deny("slash another's vault for an audit", program.ErrAddress, with(good, vault, neighbour.vault))
	deny("slash in another network for an audit", program.ErrAddress, with(good, network, c.hasty))
	deny("slash in another mint for an audit", program.ErrMint, with(good, mint, c.other))
	deny("slash for a network", program.ErrKind, with(good, stated, c.at))
	deny("slash for two where there is one", program.ErrAddress, with(good, none, call.A))
	deny("slash for another reporter", program.ErrTokenOwner, with(good, reporter, other.tokens))
	deny("slash by another token program for an audit", program.ErrAddress, with(good, token, svm.SystemProgram))
	for _, place := range []int{network, liar, vault, mint, reporter} {
		deny("slash read-only for an audit", program.ErrNotWritable, edit(good, readOnly(place)))
	}

	supply := c.supply(c.token)
	if r := c.slashed("slash for a false opening of the longest lines", good, by); r.Units > program.SlashAuditUnits {
		c.Errorf("%d CU", r.Units)
	}
	if got := [...]uint64{supply - c.supply(c.token), c.balance(by.tokens), c.balance(s.vault)}; got != [...]uint64{875, 125, 0} {
		c.Errorf("burned, paid, left: %d", got)
	}
	deny("slash twice for an audit", program.ErrSlashedBefore, good)
	c.early(by)
}

// early is a lie in a window that is not over, and one where audits are no evidence.
func (c *court) early(by reporter) {
	s := c.seller(c.at, "early liar", 1000)
	a := c.answer(s.peer, 64)
	for _, x := range []struct {
		window audit.Window
		want   program.Code
	}{{a.Window + 1<<20, program.ErrNotOver}, {^audit.Window(0), program.ErrOverflow}, {1 << 62, program.ErrOverflow}} {
		a.Window = x.window
		shown, lies := c.shows(s, a, 0, 0)
		layout := shown.Marshal()
		call := c.accused(s, by, lies[0])
		call.A = c.state("state of later", by, program.StatementShown, layout[:], s.peer)
		c.deny("slash for what is not over", x.want, call.Instruction(c.program))
	}
}

func (c *court) twoAnswers() {
	by, other := c.reporter("two answers"), c.reporter("also two answers")
	s := c.seller(c.at, "fickle", 1000)
	a := c.answer(s.peer, 64)
	b := a
	b.ProductRoot[31] ^= 1
	aSig, _ := a.Sign(c.domain(), s.peer)
	bSig, _ := b.Sign(c.domain(), s.peer)
	l := audit.NewTwoAnswers(a, aSig, b, bSig)
	if err := l.Check(c.domain()); err != nil {
		c.Fatal(err)
	}
	at := func(name string, by reporter, a audit.Answer) sign.Key {
		c.Helper()
		layout := a.Marshal()
		return c.state(name, by, program.StatementAnswer, layout[:], s.peer)
	}
	call := c.accused(s, by, l)
	call.A, call.B = at("state the lower answer", by, l.Answer), at("state the higher answer", by, l.Other)
	again := l.Answer
	again.WalkRoot[0] ^= 1 // another walk under one product root
	another := l.Other
	another.Attempt = 2
	foreign := at("state by another reporter", other, l.Other)
	walk, attempt := at("state another walk", by, again), at("state another attempt", by, another)
	good := call.Instruction(c.program)
	c.deny("slash for one answer twice", program.ErrNoLie, with(good, 5, call.A))
	c.deny("slash for answers in the other order", program.ErrNoLie, with(with(good, 4, call.B), 5, call.A))
	c.deny("slash for one root", program.ErrNoLie, with(good, 5, walk))
	c.deny("slash for two questions", program.ErrNoLie, with(good, 5, attempt))
	c.deny("slash for answers that two stated", program.ErrReporters, with(good, 5, foreign))
	c.deny("slash for one answer", program.ErrOwner, with(good, 5, c.program))
	c.deny("slash for two answers with more", program.ErrData, edit(good, longer))
	c.slashed("slash for two answers", good, by)
	if got := [...]uint64{c.balance(by.tokens), c.balance(s.vault)}; got != [...]uint64{125, 0} {
		c.Errorf("paid, left: %d", got)
	}
}

func (c *court) falsePasses() {
	by := c.reporter("canary")
	s, member := c.seller(c.at, "canary seller", 1000), c.seller(c.at, "lazy member", 801)
	a := c.answer(s.peer, 128)
	pick := audit.Pick(a.WalkSeed)
	verdict := func(o audit.Outcome, os []challenge.Opening) audit.Signed {
		c.Helper()
		v := audit.Verdict{Outcome: o, Member: member.peer.Key(), Answer: a.Hash(), Openings: audit.Show(a, os).Openings}
		sig, err := v.Sign(c.domain(), member.peer)
		if err != nil {
			c.Fatal(err)
		}
		return audit.Signed{Verdict: v, Signature: sig}
	}
	v := verdict(audit.Pass, audittest.Openings(a, 2, pick(2)))
	_, lies := c.shows(s, a, 2, pick(2), v)
	if len(lies) != 2 || lies[1].Kind != audit.FalsePass {
		c.Fatalf("%d lies", len(lies))
	}
	state := func(name string, v audit.Signed) sign.Key {
		c.Helper()
		layout := v.Marshal()
		return c.state(name, by, program.StatementVerdict, layout[:], member.peer)
	}
	call := c.accused(member, by, lies[1])
	call.A = state("state a pass", v)
	good := call.Instruction(c.program)
	wrong := state("state that it is wrong", verdict(audit.Wrong, audittest.Openings(a, 2, pick(2))))
	c.deny("slash for what was not passed", program.ErrOtherAnswer, with(good, 4, wrong))
	c.deny("slash the seller for the pass", program.ErrNotItsKey, with(with(good, 1, s.address), 2, s.vault))
	// A value that the member did not have to compute: the seller lied, the member did not.
	unseen := (pick(2) + 1) % challenge.LeafWords
	_, lies = c.shows(s, a, 2, unseen)
	hidden := c.accused(member, by, lies[0])
	hidden.Kind, hidden.A = audit.FalsePass, state("state a pass of the unseen", verdict(audit.Pass, audittest.Openings(a, 2, unseen)))
	c.deny("slash a member for what it had not to see", program.ErrNotPicked, hidden.Instruction(c.program))
	c.slashed("slash for a false pass", good, by)
	if got := [...]uint64{c.balance(by.tokens), c.balance(member.vault), c.balance(s.vault)}; got != [...]uint64{100, 0, 1000} {
		c.Errorf("paid, left, the seller's: %d", got)
	}
}
