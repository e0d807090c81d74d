package model

import (
	"bytes"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// audits are the calls that write down statements of audits, or slash by them.
type audits struct{ *tx }

// state records a signed statement of an audit on this network.
func (t audits) state(c program.State) error {
	n, ok := find(t.tx, t.Networks, c.Network)
	tag, size := c.What.Form()
	t.no(size == 0, program.ErrEvidenceKind)
	t.no(int(c.Ed) > len(t.beside), program.ErrNoInstruction)
	if !ok || size == 0 {
		return t.refused()
	}
	s, layout, ok := t.signed(c.Ed, n, tag, size)
	if !ok {
		return t.refused()
	}
	t.no(len(s.Keys) != 1 || !isStatement(c.What, layout, s.Keys[0]), program.ErrStatement)
	at, bump := svm.FindAddress(t.Program, program.StatedSeeds(c.Network, c.Reporter, c.What, s.Keys[0], layout)...)
	t.create(c.Stated, at)
	if err := t.refused(); err != nil {
		return err
	}
	t.Stated[at] = program.Stated{Bump: bump, What: c.What, Network: c.Network, Reporter: c.Reporter, Signer: s.Keys[0],
		Slot: t.now, Layout: bytes.Clone(layout)}
	t.pay(c.Reporter, program.StatedSize(c.What))
	return nil
}

// isStatement reports whether a layout is a statement. Answers and verdicts must name the signer. An answer's walk is
// not checked.
func isStatement(what program.Statement, b []byte, signer sign.Key) bool {
	zero := func(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }
	named := signer == sign.Key(b[8:40])
	switch {
	case b[0] != 1:
		return false
	case what == program.StatementAnswer:
		_, err := challenge.UnmarshalShape(b[112:128])
		return b[1] >= 1 && b[1] <= audit.MaxAttempts && zero(b[2:8]) && named && err == nil
	case what == program.StatementShown:
		return zero(b[1:8])
	}
	_, err := audit.UnmarshalVerdict(b)
	return named && err == nil
}

// closeStated: the reporter of a statement takes the rent back.
func (t audits) closeStated(c program.CloseStated) error {
	s, ok := find(t.tx, t.Stated, c.Stated)
	t.no(ok && s.Reporter != c.Reporter, program.ErrNotReporter)
	if err := t.refused(); err != nil {
		return err
	}
	delete(t.Stated, c.Stated)
	t.repay(s.Reporter, program.StatedSize(s.What))
	return nil
}

// slashAudit: a provider that lied in an audit loses everything. At least half burns, the reporter gets an eighth, and
// the rest burns too.
func (t audits) slashAudit(c program.SlashAudit) error {
	p, okP := find(t.tx, t.Providers, c.Provider)
	n, okN := t.networkOf(p, okP, c.Network)
	a, okA := find(t.tx, t.Stated, c.A)
	t.no(okP && c.Vault != account.StakeAddress(t.Program, c.Provider), program.ErrAddress)
	if !okP || !okN || !okA {
		return t.refused()
	}
	t.no(a.Network != c.Network, program.ErrOtherNetwork)
	t.no(p.Peer != a.Signer, program.ErrNotItsKey)
	var window audit.Window
	switch c.Kind {
	case audit.TwoAnswers:
		window = t.twoAnswers(c, a)
	case audit.FalseOpening, audit.FalsePass:
		window = c.Answer.Window
		t.wrongValue(c, a)
	default:
		t.no(true, program.ErrEvidenceKind)
	}
	t.no(n.Params.AuditSlots == 0, program.ErrEvidenceKind)
	end := t.product(t.sum(uint64(window), 1), uint64(n.Params.AuditSlots))
	t.no(end > t.now, program.ErrNotOver)
	t.no(add(end, n.Params.EvidenceSlots) < t.now, program.ErrTooOld)
	t.no(end <= p.Slashed, program.ErrSlashedBefore)
	total := t.sum(p.Stake, p.Unbonding)
	t.no(total == 0, program.ErrNothingStaked)
	t.mint(c.Mint)
	t.no(t.Tokens[c.Vault].Mint != c.Mint, ErrToken)
	t.payee(c.Reporter, c.Mint, a.Reporter)
	t.known(c.Reporter, c.Mint, a.Reporter, sign.Key{})
	if err := t.refused(); err != nil {
		return err
	}
	s := program.TakenFor(total, 0, 0)
	t.moved(c.Vault, c.Reporter, s.Reporter)
	t.burned(c.Vault, s.Burned)
	t.unbonded(p.Network, p.Bonded)
	p.Stake, p.Bonded, p.Unbonding, p.Ready, p.Slashed, p.WasSlashed = 0, 0, 0, 0, t.now, true
	t.Providers[c.Provider] = p
	return nil
}

// product multiplies, and records an overflow.
func (t audits) product(a, b uint64) uint64 {
	t.no(b != 0 && a > ^uint64(0)/b, program.ErrOverflow)
	return a * b
}

// twoAnswers: to one question, with two roots, the lower first.
func (t audits) twoAnswers(c program.SlashAudit, a program.Stated) (w audit.Window) {
	b, ok := find(t.tx, t.Stated, c.B)
	if !ok {
		return 0
	}
	t.no(b.Network != c.Network, program.ErrOtherNetwork)
	t.no(b.Reporter != a.Reporter, program.ErrReporters)
	if a.What != program.StatementAnswer || b.What != program.StatementAnswer {
		t.no(true, program.ErrStatement)
		return 0
	}
	const root, dataset = 128, 160
	t.no(!bytes.Equal(a.Layout[:root], b.Layout[:root]) ||
		bytes.Compare(a.Layout[root:dataset], b.Layout[root:dataset]) >= 0, program.ErrNoLie)
	for i := range 8 {
		w |= audit.Window(a.Layout[72+i]) << (8 * i)
	}
	return w
}

// wrongValue: an opening under the root that was shown, or passed, has a value that is not the product's; and a member
// had to compute that one.
func (t audits) wrongValue(c program.SlashAudit, a program.Stated) {
	must := program.StatementShown
	if c.Kind == audit.FalsePass {
		must = program.StatementVerdict
	}
	if a.What != must {
		t.no(true, program.ErrStatement)
		return
	}
	of, root := a.Layout[8:40], a.Layout[40:72]
	if must == program.StatementVerdict {
		of, root = a.Layout[40:72], a.Layout[72:104]
		t.no(audit.Outcome(a.Layout[1]) != audit.Pass, program.ErrOtherAnswer)
	} else {
		t.no(a.Signer != c.Answer.Provider, program.ErrOtherAnswer)
	}
	t.no(sign.Hash(of) != c.Answer.Hash(), program.ErrOtherAnswer)
	t.no(c.Count > challenge.Openings, program.ErrIndex)
	t.path(sign.Hash(root), audit.OpeningLeaf(c.Opened), uint64(c.Index), uint64(c.Count), c.Path)
	if c.Kind == audit.FalsePass && c.Index < challenge.Openings {
		t.no(audit.Pick(c.Answer.WalkSeed)(int(c.Index)) != int(c.Value), program.ErrNotPicked)
	}
	switch shape := c.Answer.Shape; {
	case shape.Check() != nil:
		t.no(true, program.ErrStatement)
	case int(c.Opened.Leaf) >= shape.Leaves() || c.Value >= challenge.LeafWords:
		t.no(true, program.ErrIndex)
	default:
		t.no(challenge.CheckEntry(c.Answer.ProductSeed, shape, c.Opened, int(c.Value)) == nil, program.ErrNoLie)
	}
}
