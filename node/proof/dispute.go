package proof

import (
	"fmt"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/deterministic"
	"github.com/starling-network/starling/verify/replica"
)

// Dispute proves that providers signed different results of one deterministic work. Another run of the work shows which
// result is false.
type Dispute struct{ replica.Dissent }

func decodeDispute(b []byte) (Dispute, error) {
	d, err := replica.UnmarshalDissent(b)
	return Dispute{d}, err
}

// Kind implements Content.
func (Dispute) Kind() Kind { return KindDispute }

// Encode implements Content.
func (d Dispute) Encode() ([]byte, error) { return d.Marshal(), nil }

// Hash implements Content: one for the same leases of the same work.
func (d Dispute) Hash() sign.Hash {
	work := d.Work.Hash()
	parts := [][]byte{[]byte("starling/dissent/v1"), work[:]}
	for _, r := range d.Results {
		parts = append(parts, r.Receipt.Lease[:])
	}
	return sign.Sum(parts...)
}

// Subjects implements Content: the providers.
func (d Dispute) Subjects() []sign.Key {
	var out []sign.Key
	for _, r := range d.Results {
		out = append(out, r.Receipt.Provider)
	}
	return out
}

// Wrong returns the providers that a majority differs from.
func (d Dispute) Wrong() []sign.Key {
	var out []sign.Key
	_, wrong := d.Majority()
	for _, w := range wrong {
		out = append(out, d.Results[w].Receipt.Provider)
	}
	return out
}

// Summary implements Content.
func (d Dispute) Summary() string {
	text := fmt.Sprintf("%d providers signed different results of work %s", len(d.Results), d.Work.Hash().Short())
	if wrong := d.Wrong(); len(wrong) > 0 {
		return text + ": a majority differs from " + names(wrong, sign.Key.Short)
	}
	return text + ": no majority"
}

func names(ks []sign.Key, text func(sign.Key) string) string {
	var out []string
	for _, k := range ks {
		out = append(out, text(k))
	}
	return strings.Join(out, ", ")
}

// DisputeDetail is the detail of a checked dispute.
type DisputeDetail struct {
	WorkHash sign.Hash          `json:"workHash"`
	Work     deterministic.Work `json:"work"`
	Signed   []SignedResult     `json:"signed"`
	Wrong    []int              `json:"wrong,omitempty"` // indices into Signed that a majority differs from
	Again    *Rerun             `json:"again,omitempty"` // nil unless the work was run again
}

// SignedResult is one of the results.
type SignedResult struct {
	Provider sign.Key             `json:"provider"`
	Buyer    sign.Key             `json:"buyer"`
	Lease    market.LeaseID       `json:"lease"`
	Slot     market.Slot          `json:"slot"` // in which its last receipt ends
	Result   deterministic.Result `json:"result"`
}

// Rerun is the result of running the work once more.
type Rerun struct {
	Result deterministic.Result `json:"result"`
	Wrong  []int                `json:"wrong"` // indices of the signed results that differ from it
}

// Check implements Content. The detail is a *DisputeDetail.
func (d Dispute) Check(g market.Genesis) (Finding, error) {
	if err := replica.CheckDissent(g.Domain(), d.Dissent); err != nil {
		return Finding{}, named(err)
	}
	x := &DisputeDetail{WorkHash: d.Work.Hash(), Work: d.Work}
	for _, s := range d.Results {
		x.Signed = append(x.Signed, SignedResult{s.Receipt.Provider, s.Receipt.Buyer, s.Receipt.Lease,
			s.Receipt.To, s.Result})
	}
	_, x.Wrong = d.Majority()
	return Finding{Detail: x, rows: x.rows}, nil
}

func (x *DisputeDetail) rows(row func(...any)) {
	row("work", x.WorkHash)
	row("", "program "+x.Work.Program.String())
	for _, in := range x.Work.Inputs {
		row("", "input "+in.Path+" "+in.Content.String())
	}
	for _, s := range x.Signed {
		row("signed by", fmt.Sprintf("%s under lease %s, until slot %d: exit code %d", s.Provider,
			s.Lease.Short(), s.Slot,
			s.Result.Exit))
		for i, h := range s.Result.Trees {
			row("", x.Work.Outputs[i]+" "+h.String())
		}
	}
	of := func(wrong []int) string {
		var out []sign.Key
		for _, w := range wrong {
			out = append(out, x.Signed[w].Provider)
		}
		return names(out, sign.Key.String)
	}
	if len(x.Wrong) > 0 {
		row("majority", "differs from "+of(x.Wrong))
	} else {
		row("majority", "none")
	}
	if x.Again == nil {
		row("not run again", "to find the false result, use --program and --input")
		return
	}
	row("run again", fmt.Sprintf("exit code %d", x.Again.Result.Exit))
	for i, h := range x.Again.Result.Trees {
		row("", x.Work.Outputs[i]+" "+h.String())
	}
	if len(x.Again.Wrong) == 0 {
		row("false", "none of them")
		return
	}
	row("false", "the results of "+of(x.Again.Wrong))
}
