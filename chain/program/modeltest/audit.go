package modeltest

import (
	"bytes"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/svm"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
	"github.com/starling-network/starling/verify/challenge"
)

// auditCalls makes the calls about statements of audits of a world.
type auditCalls struct{ *World }

// auditSlots is the length of a window of audits.
const auditSlots = 5

// shown is the private data behind a statement.
type shown struct {
	answer   audit.Answer
	openings []challenge.Opening
}

func (s shown) leaves() [][]byte {
	out := make([][]byte, len(s.openings))
	for i, o := range s.openings {
		out[i] = audit.OpeningLeaf(o)
	}
	return out
}

// audited is an answer of a short product by a peer, and three of its leaves; of each the value that members compute is
// wrong, if lie.
func audited(peer sign.Key, w audit.Window, root byte, lie bool) shown {
	a := audit.Answer{
		Target:      audit.Target{Provider: peer, Unit: market.UnitID{2}, Window: w, Attempt: 1},
		ProductSeed: sign.Hash{1}, Shape: challenge.Shape{Rows: 64, Columns: 64, Depth: 64, Products: 1},
		ProductRoot: sign.Hash{root}, Walk: challenge.Walk{Cells: 1000, Work: 5, Walkers: 8, Steps: 12},
		WalkSeed: sign.Hash{2},
	}
	g := challenge.ProductGenerator(a.ProductSeed)
	tile := challenge.NewTile(&g, a.Shape, challenge.Place{})
	s := shown{answer: a}
	pick := audit.Pick(a.WalkSeed)
	for i, leaf := range []uint32{3, 70, 127} {
		o := challenge.Opening{Leaf: leaf, Values: [challenge.LeafWords]int32(tile[leaf*challenge.LeafWords:])}
		if lie {
			o.Values[pick(i)]++
		}
		s.openings = append(s.openings, o)
	}
	return s
}

// statement is the call that reports a statement, with its signature instruction.
func (w auditCalls) statement(
	network sign.Key, by sign.Key, what program.Statement, layout []byte, signer sign.Key, s shown,
) (program.State, svm.Signed) {
	tag, _ := what.Form()
	c := program.State{Reporter: by, Network: network, What: what,
		Stated: program.StatedAddress(w.Program, network, by, what, signer, layout)}
	w.shown[c.Stated] = s
	return c, w.signed(w.Networks[network].Params.Domain(w.Program), tag, layout, signer)
}

// firstLie is shown by the first provider.
func (w auditCalls) firstLie(network, provider sign.Key, do func(program.Call, ...svm.Signed)) {
	peer := w.Providers[provider].Peer
	s := audited(peer, audit.WindowOf(market.Slot(w.Slot), auditSlots)-1, 1, true)
	layout := audit.Show(s.answer, s.openings).Marshal()
	do(w.statement(network, w.people[1].Key(), program.StatementShown, layout[:], peer, s))
}

func (w auditCalls) state() (program.Call, []svm.Signed) {
	_, p, ok := w.staked()
	if !ok || w.Slot < 4*auditSlots {
		return nil, nil
	}
	by := w.people[w.upTo(1)].Key()
	s := audited(p.Peer, audit.WindowOf(market.Slot(w.Slot), auditSlots)-audit.Window(w.choice(3)), byte(w.choice(3)),
		!w.oneIn(5))
	var layout []byte
	what := program.Statement(1 + w.choice(3))
	switch what {
	case program.StatementAnswer:
		b := s.answer.Marshal()
		layout = b[:]
	case program.StatementShown:
		b := audit.Show(s.answer, s.openings).Marshal()
		layout = b[:]
	default:
		v := audit.Verdict{Outcome: audit.Pass, Member: p.Peer, Answer: s.answer.Hash(),
			Openings: merkle.Root(s.leaves())}
		if w.oneIn(6) {
			v.Outcome = audit.Wrong
		}
		b := v.Marshal()
		layout = b[:]
	}
	if w.oneIn(10) {
		layout[w.choice(8)] ^= 1
	}
	c, signed := w.statement(p.Network, by, what, layout, p.Peer, s)
	return c, []svm.Signed{signed}
}

func (w auditCalls) closeStated() (program.Call, []svm.Signed) {
	at, s, ok := pick(w.World, w.Stated)
	if !ok || !w.oneIn(4) {
		return nil, nil
	}
	return program.CloseStated{Reporter: s.Reporter, Stated: at}, nil
}

func (w auditCalls) slashAudit() (program.Call, []svm.Signed) {
	at, p, ok := w.staked()
	if !ok {
		return nil, nil
	}
	of := map[sign.Key]program.Stated{}
	for k, s := range w.Stated {
		if p.Peer == s.Signer && s.Network == p.Network {
			of[k] = s
		}
	}
	if len(of) == 0 && w.oneIn(10) {
		of = w.Stated
	}
	k, s, ok := pick(w.World, of)
	if !ok {
		return nil, nil
	}
	mint := w.Mints[1]
	c := program.SlashAudit{Network: p.Network, Provider: at, Vault: account.StakeAddress(w.Program, at), Mint: mint,
		A: k, Reporter: Account(s.Reporter, mint)}
	if s.What == program.StatementAnswer {
		c.Kind = audit.TwoAnswers
		for _, other := range sorted(of) {
			if o := of[other]; o.What == s.What && bytes.Equal(o.Layout[:128], s.Layout[:128]) &&
				o.Reporter == s.Reporter && bytes.Compare(s.Layout, o.Layout) < 0 {
				c.B = other
				return c, nil
			}
		}
		c.B = k
		return c, nil
	}
	known := w.shown[k]
	i := w.choice(len(known.openings))
	c.Kind, c.Answer, c.Opened = audit.FalseOpening, known.answer, known.openings[i]
	c.Index, c.Count = uint16(i), uint16(len(known.openings))
	c.Value, c.Path = uint8(audit.Pick(c.Answer.WalkSeed)(i)), merkle.Prove(known.leaves(), i)
	if s.What == program.StatementVerdict {
		c.Kind = audit.FalsePass
	}
	return c, nil
}
