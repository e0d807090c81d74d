package proof

import (
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Fraud proves that a peer signed a false statement in an audit: a provider a wrong opening or two answers, a member of
// the committee a verdict that passed a wrong opening.
type Fraud struct{ audit.Lie }

func decodeFraud(b []byte) (Fraud, error) {
	l, err := audit.UnmarshalLie(b)
	return Fraud{l}, err
}

// Kind implements Content.
func (Fraud) Kind() Kind { return KindFraud }

// Encode implements Content.
func (x Fraud) Encode() ([]byte, error) { return x.Marshal(), nil }

// Hash implements Content. It depends on the false answer, not on the value or opening in the proof.
func (x Fraud) Hash() sign.Hash {
	offender, t, answer := x.Offender(), x.Answer.Target, x.Answer.Hash()
	about := answer[:]
	if x.Lie.Kind == audit.TwoAnswers { // to one question: which two of many they are does not matter
		about = fmt.Appendf(nil, "%s/%d/%d", t.Unit, t.Window, t.Attempt)
	}
	return sign.Sum([]byte("starling/lie/v1"), []byte{byte(x.Lie.Kind)}, offender[:], about)
}

// Offender is the peer that signed the false statement.
func (x Fraud) Offender() sign.Key { return x.Liar() }

// Subjects implements Content: the offender.
func (x Fraud) Subjects() []sign.Key { return []sign.Key{x.Offender()} }

// Summary implements Content.
func (x Fraud) Summary() string {
	t := x.Answer.Target
	return fmt.Sprintf("%s by %s in the audit of unit %s, window %d", x.Lie.Kind, x.Offender().Short(), t.Unit.Short(),
		uint64(t.Window))
}

// FraudDetail is the detail of a checked fraud.
type FraudDetail struct {
	Statement string        `json:"statement"` // false opening, two answers, false pass
	Offender  sign.Key      `json:"offender"`
	Provider  sign.Key      `json:"provider"` // of the audited unit; the offender itself, unless that is a member
	Unit      market.UnitID `json:"unit"`
	Window    audit.Window  `json:"window"`
	Says      string        `json:"says"`
	From      market.Slot   `json:"from"` // the window's slots
	To        market.Slot   `json:"to"`
}

// Check implements Content. The detail is a FraudDetail.
func (x Fraud) Check(g market.Genesis) (Finding, error) {
	if err := x.Lie.Check(g.Domain()); err != nil {
		return Finding{}, named(err)
	}
	a := x.Answer
	d := FraudDetail{
		Statement: x.Lie.Kind.String(), Offender: x.Offender(), Provider: a.Provider, Unit: a.Unit, Window: a.Window,
		From: a.Window.First(g.AuditSlots), To: (a.Window + 1).First(g.AuditSlots), Says: x.says(),
	}
	return Finding{Detail: d, rows: func(row func(...any)) {
		row("offender", d.Offender, d.Statement)
		row("says", d.Says)
		row("unit", d.Unit, "of "+d.Provider.String())
		row("when", fmt.Sprintf("window %d, %s", uint64(d.Window), slotsText(d.From, d.To)))
	}}, nil
}

// says returns a description of the false statement.
func (x Fraud) says() string {
	switch x.Lie.Kind {
	case audit.TwoAnswers:
		return fmt.Sprintf("two answers to attempt %d: product roots %s and %s", x.Answer.Attempt,
			x.Answer.ProductRoot.Short(),
			x.Other.ProductRoot.Short())
	case audit.FalsePass:
		return fmt.Sprintf("passed opening %d of %d, of which it had to compute value %d: that is not %d",
			x.Index, x.Count,
			x.Value, x.Opening.Values[x.Value])
	}
	return fmt.Sprintf("opening %d of %d: value %d of leaf %d is not %d", x.Index, x.Count, x.Value, x.Opening.Leaf,
		x.Opening.Values[x.Value])
}
