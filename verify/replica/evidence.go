package replica

import (
	"bytes"
	"encoding/binary"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/deterministic"
)

const (
	dissentVersion = 1
	dissentHead    = 8

	// MaxDissent is the largest proof.
	MaxDissent = dissentHead + deterministic.MaxWork + MaxResults*(verify.ReceiptSize+deterministic.MaxResult)
)

// Dissent is the proof that providers have signed different results of one deterministic work. Running the work again
// finds the right one. Layout, little-endian:
//
//	0   1  version = 1
//	1   1  n, results, 2 to MaxResults
//	2   2  reserved: 0
//	4   4  length of the work = w
//	8   w  Work
//	    n × ( receipt[384] ‖ Result of as many outputs as the work has ), lease ids ascending
//
// The receipts bind their providers to exactly this work: their output is Output(work, result).
type Dissent struct {
	Work    deterministic.Work
	Results []Signed
}

// Signed is a result with the final receipt that its provider signed for it.
type Signed struct {
	Receipt verify.Receipt
	Result  deterministic.Result
}

// CheckDissent checks every rule of the proof: ended (final receipts), apart (as many providers and leases as results),
// output (each receipt is of this work and result), both signatures of each receipt, and dissent (two results differ).
func CheckDissent(d sign.Domain, e Dissent) error {
	if err := e.Work.Check(); err != nil {
		return err
	}
	if n := len(e.Results); n < 2 || n > MaxResults {
		return malformed("dissent", "%d results, want 2 to %d", n, MaxResults)
	}
	differ, by := false, map[sign.Key]bool{}
	for i, s := range e.Results {
		switch {
		case len(s.Result.Trees) != len(e.Work.Outputs):
			return malformed("dissent", "a result of %d outputs, the work has %d",
				len(s.Result.Trees), len(e.Work.Outputs))
		case i > 0 && bytes.Compare(e.Results[i-1].Receipt.Lease[:], s.Receipt.Lease[:]) >= 0:
			return malformed("dissent", "leases are not in order")
		case by[s.Receipt.Provider]:
			return broken(RuleApart, "two results are by provider %s", s.Receipt.Provider.Short())
		case !s.Receipt.Final():
			return broken(RuleEnded, "receipt %d of lease %s: not final", s.Receipt.Seq, s.Receipt.Lease.Short())
		case s.Receipt.Output != e.Work.Output(s.Result):
			return broken(RuleOutput, "provider %s signed output %s, this work with its result is %s",
				s.Receipt.Provider.Short(), s.Receipt.Output.Short(), e.Work.Output(s.Result).Short())
		}
		by[s.Receipt.Provider] = true
		differ = differ || !s.Result.Equal(e.Results[0].Result)
		if err := s.Receipt.CheckSignatures(d); err != nil {
			return err
		}
	}
	if !differ {
		return broken(RuleDissent, "all %d results are the same", len(e.Results))
	}
	return nil
}

// Against lists the results that differ from one, as running the work again gave it.
func (e Dissent) Against(right deterministic.Result) (wrong []int) {
	for i, s := range e.Results {
		if !s.Result.Equal(right) {
			wrong = append(wrong, i)
		}
	}
	return wrong
}

// Majority returns the result that more than half of them, and at least two, agree on, and the others. Without one it
// returns -1: of two that differ, only another run of the work shows the right one.
func (e Dissent) Majority() (right int, wrong []int) {
	all := make([]Committed, len(e.Results))
	for i, s := range e.Results {
		all[i].Output = s.Receipt.Output
	}
	return majority(all)
}

// Marshal returns the layout.
func (e Dissent) Marshal() []byte {
	work := e.Work.Marshal()
	one := verify.ReceiptSize + deterministic.ResultSize(len(e.Work.Outputs))
	b := append(make([]byte, 0, dissentHead+len(work)+len(e.Results)*one), dissentVersion,
		byte(len(e.Results)), 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(work)))
	b = append(b, work...)
	for _, s := range e.Results {
		b = append(append(b, s.Receipt.Marshal()...), s.Result.Marshal()...)
	}
	return b
}

// UnmarshalDissent decodes the layout without trailing bytes. It does not verify; CheckDissent does.
func UnmarshalDissent(b []byte) (Dissent, error) {
	if len(b) < dissentHead || len(b) > MaxDissent || b[0] != dissentVersion || b[2] != 0 || b[3] != 0 {
		return Dissent{}, malformed("dissent", "%d bytes, or not version %d", len(b), dissentVersion)
	}
	n, size := int(b[1]), uint64(binary.LittleEndian.Uint32(b[4:]))
	b = b[dissentHead:]
	if n < 2 || n > MaxResults || size > uint64(len(b)) {
		return Dissent{}, malformed("dissent", "%d results, a work of %d bytes", n, size)
	}
	var e Dissent
	var err error
	if e.Work, err = deterministic.UnmarshalWork(b[:size]); err != nil {
		return Dissent{}, err
	}
	b = b[size:]
	one := verify.ReceiptSize + deterministic.ResultSize(len(e.Work.Outputs))
	if len(b) != n*one {
		return Dissent{}, malformed("dissent", "%d bytes of results, want %d", len(b), n*one)
	}
	for ; len(b) > 0; b = b[one:] {
		var s Signed
		if s.Receipt, err = verify.UnmarshalReceipt(b[:verify.ReceiptSize]); err != nil {
			return Dissent{}, err
		}
		if s.Result, err = deterministic.UnmarshalResult(b[verify.ReceiptSize:one]); err != nil {
			return Dissent{}, err
		}
		e.Results = append(e.Results, s)
	}
	return e, nil
}
