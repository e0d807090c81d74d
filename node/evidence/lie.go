package evidence

import (
	"encoding/hex"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// lieID names the proof of a lie: one for all that prove that somebody lied in one answer, whichever value or opening they have.
func lieID(l audit.Lie) string {
	liar := l.Liar()
	t := l.Answer.Target
	answer := l.Answer.Hash()
	what := answer[:]
	if l.Kind == audit.TwoAnswers { // to one question: which two of many they are does not matter
		what = fmt.Appendf(nil, "%s/%d/%d", t.Unit, t.Window, t.Attempt)
	}
	h := sign.Sum([]byte("starling/lie/v1"), []byte{byte(l.Kind)}, liar[:], what)
	return hex.EncodeToString(h[:8])
}

// LieFact is the id of a lie as a fact of reputation.
func LieFact(l audit.Lie) sign.Hash {
	return sign.Sum([]byte("starling/reputation/lie"), []byte(lieID(l)))
}

// LieFinding is what a checked proof of a lie shows.
type LieFinding struct {
	ID          string        `json:"id"`
	Network     string        `json:"network"`
	GenesisHash sign.Hash     `json:"genesisHash"`
	Kind        string        `json:"kind"`
	Liar        sign.Key      `json:"liar"`
	Provider    sign.Key      `json:"provider"` // whose unit was audited; the liar itself, unless that is a member
	Unit        market.UnitID `json:"unit"`
	Window      audit.Window  `json:"window"`
	Says        string        `json:"says"`
	From        market.Slot   `json:"from"` // the window's slots
	To          market.Slot   `json:"to"`

	Genesis market.Genesis `json:"-"`
	Lie     audit.Lie      `json:"-"`
}

// NewLieProof is the file of a lie on a network.
func NewLieProof(g market.Genesis, lie []byte) Proof {
	return Proof{Format: format, Genesis: g, Lie: lie}
}

// CheckLie verifies everything in the file: that somebody signed what is false, which is computed again, on the network named
// there. The error is an *audit.RuleError where a rule has a name.
func (p Proof) CheckLie() (LieFinding, error) {
	if err := p.Genesis.Validate(); err != nil {
		return LieFinding{}, err
	}
	l, err := audit.UnmarshalLie(p.Lie)
	if err != nil {
		return LieFinding{}, err
	}
	if err := l.Check(p.Genesis.Domain()); err != nil {
		return LieFinding{}, err
	}
	return foundLie(p.Genesis, l), nil
}

// foundLie says what a lie that was checked shows.
func foundLie(g market.Genesis, l audit.Lie) LieFinding {
	a := l.Answer
	f := LieFinding{
		ID: lieID(l), Network: g.Tag(), GenesisHash: g.Hash(), Kind: l.Kind.String(), Liar: l.Liar(), Provider: a.Provider, Unit: a.Unit, Window: a.Window,
		From: a.Window.First(g.AuditSlots), To: (a.Window + 1).First(g.AuditSlots), Genesis: g, Lie: l,
	}
	switch l.Kind {
	case audit.TwoAnswers:
		f.Says = fmt.Sprintf("two answers to attempt %d: product roots %s and %s", a.Attempt, a.ProductRoot.Short(), l.Other.ProductRoot.Short())
	case audit.FalsePass:
		f.Says = fmt.Sprintf("passed opening %d of %d, of which it had to compute value %d: that is not %d", l.Index, l.Count, l.Value, l.Opening.Values[l.Value])
	default:
		f.Says = fmt.Sprintf("opening %d of %d: value %d of leaf %d is not %d", l.Index, l.Count, l.Value, l.Opening.Leaf, l.Opening.Values[l.Value])
	}
	return f
}
