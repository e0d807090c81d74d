package record

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify/replica"
)

// Verified is how far the result of one rank is checked.
type Verified struct {
	State    replica.State    `json:"state,omitempty"`   // empty: its provider has not committed to it yet
	Verdict  *replica.Verdict `json:"verdict,omitempty"` // so far
	Replicas []string         `json:"replicas,omitempty"`
	Evidence string           `json:"evidence,omitempty"` // id of the proof that providers signed different results
	Machine  json.RawMessage  `json:"machine,omitempty"`  // replica.Check
}

// Ended reports whether no more will be known.
func (v Verified) Ended() bool { return v.State != "" && v.State.Ended() }

// Text describes the state of the check: "replicated, equal", "mismatch: 4Hf2kQ9z differs".
func (v Verified) Text() string {
	why := ""
	if v.Verdict != nil && v.Verdict.Reason != "" {
		why = ": " + v.Verdict.Reason
	}
	switch v.State {
	case "", replica.Unchecked:
		return "unchecked"
	case replica.Replicating:
		return "being replicated"
	case replica.NotDrawn:
		return "not drawn"
	case replica.Equal:
		return "replicated, equal"
	case replica.Differs:
		if v.Verdict == nil {
			return "mismatch"
		}
		var names []string
		for _, i := range v.Verdict.Wrong {
			if i >= 0 && i < len(v.Verdict.Results) {
				names = append(names, v.Verdict.Results[i].Provider.Short())
			}
		}
		return "mismatch: " + strings.Join(names, ", ") + " differs"
	case replica.Undecided:
		return "mismatch, undecided" + why
	}
	return "not checked" + why
}

// Replica names the result that a job computes again. It is a job like any other: its order, its leases and its money.
type Replica struct {
	Job     string          `json:"job"`
	Rank    int             `json:"rank"`
	Count   int             `json:"count"`   // of that job's ranks, as in its program's environment
	Attempt uint32          `json:"attempt"` // from 1
	Seed    sign.Hash       `json:"seed"`    // of the draw of the first providers
	Not     []replica.Party `json:"not"`     // are not asked
}

// VerifyText describes the state of the checks of a job's results, or returns "" for a job without checks.
func (j Job) VerifyText() string {
	if r := j.Replica; r != nil {
		return fmt.Sprintf("replica of %s, rank %d", r.Job, r.Rank)
	}
	var texts []string
	counts := map[string]int{}
	for _, v := range j.Verified {
		t := v.Text()
		if counts[t]++; counts[t] == 1 {
			texts = append(texts, t)
		}
	}
	if len(j.Verified) > 1 {
		for i, t := range texts {
			texts[i] = fmt.Sprintf("%d %s", counts[t], t)
		}
	}
	return strings.Join(texts, "; ")
}

// Unchecked reports whether results of the job are held back: not all checks have ended.
func (j Job) Unchecked() bool {
	open := slices.ContainsFunc(j.Verified, func(v Verified) bool { return !v.Ended() })
	return open && (!j.State.Ended() || j.State == Succeeded)
}

// OrderNonce returns the nonce of the next order of a job with checked results.
func (j Job) OrderNonce() market.Nonce {
	return replica.Nonce(j.Nonce).OrderNonce(uint64(len(j.Orders)))
}
