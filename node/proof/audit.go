package proof

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/merkle"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/audit"
)

// Audit proves that a unit passed an audit. Its hash is the record's, which offers name.
type Audit struct {
	Record audit.Record
	Anchor []byte // chain.Inclusion of the hash; empty if it is not anchored
}

func decodeAudit(body, anchor []byte) (Content, error) {
	if len(anchor) > chain.MaxInclusion {
		return nil, fmt.Errorf("%w: anchor of %d bytes, want at most %d", market.ErrMalformed, len(anchor),
			chain.MaxInclusion)
	}
	r, err := audit.UnmarshalRecord(body)
	if err != nil {
		return nil, err
	}
	return Audit{r, anchor}, nil
}

// Kind implements Content.
func (Audit) Kind() Kind { return KindAudit }

// Encode implements Content.
func (a Audit) Encode() ([]byte, error) { return a.Record.Marshal(), nil }

// Hash implements Content.
func (a Audit) Hash() sign.Hash { return a.Record.Hash() }

// Subjects implements Content: the provider.
func (a Audit) Subjects() []sign.Key { return []sign.Key{a.Record.Answer.Provider} }

// Summary implements Content.
func (a Audit) Summary() string {
	t := a.Record.Answer.Target
	return fmt.Sprintf("unit %s of %s passed the audit of window %d", t.Unit.Short(), t.Provider.Short(),
		uint64(t.Window))
}

// Inclusion returns the place of the record under its anchor, and false if it has none.
func (a Audit) Inclusion() (chain.Inclusion, bool) { return anchored(a.Anchor) }

// PastAudit is one audit of one of this peer's units.
type PastAudit struct {
	Unit   market.UnitID `json:"unit"`
	Class  market.Class  `json:"class"`
	Window audit.Window  `json:"window"`
	At     time.Time     `json:"at"`
	Record sign.Hash     `json:"record"`           // zero when it did not pass
	Rates  audit.Rates   `json:"rates"`            // zero likewise
	Failed string        `json:"failed,omitempty"` // why
	// Standing is the unit's state in the market after it: unproven, listed, suspended or delisted.
	Standing string `json:"standing"`
	// Anchored is the transaction by which the chain has the record's hash under a root; empty while it has not. The
	// journal has it apart.
	Anchored chain.TxID `json:"anchored,omitempty"`
}

// ReadAnchor decodes a record's anchor and checks it against the root that it names. The error is an *audit.RuleError.
func ReadAnchor(b []byte, record sign.Hash) (chain.Inclusion, error) {
	in, err := chain.UnmarshalInclusion(b)
	if err == nil && in.Anchor.Of != chain.OfRecords {
		err = fmt.Errorf("an anchor of %s: %w", in.Anchor.Of, chain.ErrMalformed)
	}
	if err == nil {
		err = in.Check(record)
	}
	if err != nil {
		return in, &audit.RuleError{Rule: audit.RuleAnchor, Detail: err.Error()}
	}
	return in, nil
}

// AuditDetail is the detail of a checked audit.
type AuditDetail struct {
	Record audit.Record  `json:"record"`
	Rates  audit.Rates   `json:"rates"`
	Anchor *AnchorDetail `json:"anchor,omitempty"` // absent if it is not anchored
}

// AnchorDetail is the place of a record under its anchor.
type AnchorDetail struct {
	Transaction chain.TxID  `json:"transaction"`
	Slot        market.Slot `json:"slot"`
	Root        sign.Hash   `json:"root"`
	Index       int         `json:"index"`
	Count       uint64      `json:"count"`
}

// Check implements Content. The detail is an AuditDetail.
func (a Audit) Check(g market.Genesis) (Finding, error) {
	r := a.Record
	if err := r.CheckRules(audit.NewRules(g)); err != nil {
		return Finding{}, named(err)
	}
	if err := r.Check(g.Domain()); err != nil {
		return Finding{}, named(err)
	}
	d := AuditDetail{Record: r, Rates: r.Rates()}
	if len(a.Anchor) > 0 {
		in, err := ReadAnchor(a.Anchor, r.Hash())
		if err != nil {
			return Finding{}, named(err)
		}
		d.Anchor = &AnchorDetail{in.Tx, in.Slot, in.Anchor.Root, in.Index, in.Anchor.Count}
	}
	f := Finding{Detail: d, rows: func(row func(...any)) { d.rows(g, row) }}
	if d.Anchor != nil {
		f.Chain = "not asked"
	}
	return f, nil
}

func (d AuditDetail) rows(g market.Genesis, row func(...any)) {
	r, ans := d.Record, d.Record.Answer
	row("unit", ans.Unit, "of "+ans.Provider.String())
	row("when", fmt.Sprintf("window %d, attempt %d; beacon: the hash of slot %d", ans.Window, ans.Attempt,
		r.Beacon.Slot))
	at := audit.NewInstants(g)
	from, to := at.Span(ans.Window, ans.Attempt, "")
	row("instant", fmt.Sprintf("slot %d; attempt %d begins in %s", at.Of(ans.Window), ans.Attempt,
		slotsText(from, to-1)),
		"the same for every unit of the network")
	row("products", ans.Shape, TOPS(d.Rates)+" TOPS at least")
	row("memory", ans.Walk, MegaReads(d.Rates)+" at least")
	for _, v := range r.Verdicts {
		row("judged by", v.Member, fmt.Sprintf("%s: begun in slot %d, products after %v, walk after %v",
			v.Outcome, v.Slot,
			micros(v.Product), micros(v.Walk)))
	}
	row("recomputed", fmt.Sprintf("%d entries, %d walkers, %d signatures", len(r.Opened.Openings), len(r.Walked.Ends),
		len(r.Verdicts)+2))
	if x := d.Anchor; x == nil {
		row("anchored", "not yet, in this copy")
	} else {
		row("anchored", fmt.Sprintf("number %d of %d under root %s", x.Index, x.Count, x.Root),
			fmt.Sprintf("transaction %s, slot %d", x.Transaction, x.Slot))
	}
}

func (a Audit) checkChain(ctx context.Context, c Chain, f *Finding) error {
	in, ok := a.Inclusion()
	switch {
	case !ok:
		return nil
	case c == nil:
		f.Chain = noChain
		return nil
	}
	where := "transaction " + string(in.Tx)
	err := in.CheckOn(ctx, c, a.Hash())
	switch {
	case err == nil:
		f.Chain = "checked: it has this root"
		return nil
	case errors.Is(err, chain.ErrMalformed), errors.Is(err, merkle.ErrRoot), errors.Is(err, merkle.ErrIndex),
		errors.Is(err, merkle.ErrLength):
		return broken(RuleAnchor, where, err)
	}
	return unread(where, err)
}

// TOPS formats the arithmetic of a unit, in 10¹² operations a second.
func TOPS(r audit.Rates) string { return fmt.Sprintf("%.3f", float64(r.Operations)/1e12) }

// MegaReads formats the reads of a unit, in 10⁶ a second.
func MegaReads(r audit.Rates) string { return fmt.Sprintf("%.1f M/s", float64(r.Reads)/1e6) }

// micros formats microseconds.
func micros(n uint64) time.Duration {
	return (time.Duration(min(n, 1<<50)) * time.Microsecond).Round(100 * time.Microsecond)
}

// Refusal proves that a member of a committee did not pass a unit.
type Refusal struct{ audit.Refusal }

func decodeRefusal(b []byte) (Refusal, error) {
	x, err := audit.UnmarshalRefusal(b)
	return Refusal{x}, err
}

// Kind implements Content.
func (Refusal) Kind() Kind { return KindRefusal }

// Encode implements Content.
func (r Refusal) Encode() ([]byte, error) { return r.Marshal(), nil }

// Hash implements Content: one for each unit, window, attempt and member.
func (r Refusal) Hash() sign.Hash {
	t, m := r.Target(), r.Member()
	return sign.Sum([]byte("starling/proof/refusal/v1"), t.Provider[:], m[:],
		fmt.Appendf(nil, "%s/%d/%d", t.Unit, t.Window, t.Attempt))
}

// Subjects implements Content: the provider and the member.
func (r Refusal) Subjects() []sign.Key { return []sign.Key{r.Target().Provider, r.Member()} }

// Summary implements Content.
func (r Refusal) Summary() string {
	t := r.Target()
	return fmt.Sprintf("%s did not pass unit %s of %s in window %d", r.Member().Short(), t.Unit.Short(),
		t.Provider.Short(),
		uint64(t.Window))
}

// RefusalDetail is the detail of a checked refusal.
type RefusalDetail struct {
	Provider sign.Key      `json:"provider"`
	Unit     market.UnitID `json:"unit"`
	Window   audit.Window  `json:"window"`
	Attempt  uint16        `json:"attempt"`
	Member   sign.Key      `json:"member"`
}

// Check implements Content. The detail is a RefusalDetail.
func (r Refusal) Check(g market.Genesis) (Finding, error) {
	if err := r.Refusal.Check(g.Domain(), g.AuditSlots); err != nil {
		return Finding{}, named(err)
	}
	t := r.Target()
	d := RefusalDetail{t.Provider, t.Unit, t.Window, uint16(t.Attempt), r.Member()}
	return Finding{Detail: d, rows: func(row func(...any)) {
		row("unit", d.Unit, "of "+d.Provider.String())
		row("when", fmt.Sprintf("window %d, attempt %d", uint64(d.Window), d.Attempt))
		row("refused by", d.Member)
	}}, nil
}
