// Package record has the record of a job: the job as it is journalled and as its user sees it. The values of its parts
// come from the rooms that know them: the machine of the job, its leases, its money, its guardians, probes and checks.
package record

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/journal"
)

// Job is one submitted job as journalled and as shown.
type Job struct {
	ID      string    `json:"id"`
	Spec    job.Job   `json:"spec"`
	Key     string    `json:"key,omitempty"`   // name of the API key it was submitted with; empty: the peer's own token
	Rerun   string    `json:"rerun,omitempty"` // id of the job that it repeats
	State   State     `json:"state"`
	Outcome State     `json:"outcome,omitempty"` // the job's final state, once its work is over
	Code    Code      `json:"code,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Warning is the warning that its user got at submission.
	Warning string `json:"warning,omitempty"`
	// Stopping says that its user wants it to end.
	Stopping bool `json:"stopping,omitempty"`
	// Extended counts how often the job was given more time.
	Extended int `json:"extended,omitempty"`
	// Paused says that its user wants its programs frozen. They are paid for all the same, and timeouts.run goes on.
	Paused bool `json:"paused,omitempty"`
	// Round counts from 0; Carry is the reduced output of the round before it.
	Round int   `json:"round"`
	Carry *Blob `json:"carry,omitempty"`
	// Ranks has one entry per rank, in order.
	Ranks []Rank `json:"ranks"`
	// Lost are the providers that lost a rank of the job, the latest last: they are not asked again while there are
	// others.
	Lost []sign.Key `json:"lost,omitempty"`
	// Orders are all orders placed for the job, oldest first.
	Orders []market.OrderID `json:"orders,omitempty"`
	// Owed is the sum of all leases' vouchers. Paid is what was claimed of that on chain, with the network's fees, and
	// of a detached job the wages of its guardians, which nobody owes in a voucher of a lease. Held is what lies in its
	// escrows still: providers claim what they are owed of it, and the rest comes back. Paid and Held are as the chain
	// has them, like Escrows.
	Owed market.Amount `json:"owed"`
	Paid market.Amount `json:"paid"`
	Held market.Amount `json:"held,omitempty"`
	// Lamports is the SOL that the job took from the peer; without its peer, as far as this one knows.
	Lamports Lamports `json:"lamports,omitzero"`
	// Transactions anchor the job's receipts, in order.
	Transactions []string `json:"transactions,omitempty"`
	// Escrows are where its money was set aside, one for each order; as the chain has it, so not in the journal with
	// the job.
	Escrows []Escrow `json:"escrows,omitempty"`
	// Detached is the guardians' part of a job that goes on without its owner's peer; nil: it has none.
	Detached *Detached `json:"detached,omitempty"`
	// Receipts is how many co-signed receipts the job has.
	Receipts int `json:"receipts"`
	// Nonce is what the draws of a job whose results are checked are mixed with; its orders have committed to it.
	Nonce sign.Hash `json:"nonce,omitzero"`
	// Verified is how far each rank's result is checked, of a job that asks for it.
	Verified []Verified `json:"verified,omitempty"`
	// Cluster is the state of a job's cluster; nil: its ranks are none.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Network is what the paths between a cluster's members came to when they were measured, before their leases were
	// signed; nil: none were.
	Network *Span `json:"network,omitempty"`
	// Replica names the result that this job computes again; nil: it is a job of its own.
	Replica *Replica `json:"replica,omitempty"`
}

// Clone returns a copy of the job whose changes do not reach j.
func (j Job) Clone() Job {
	j.Ranks = append([]Rank(nil), j.Ranks...)
	j.Lost = append(j.Lost[:0:0], j.Lost...)
	j.Orders = append(j.Orders[:0:0], j.Orders...)
	j.Transactions = append(j.Transactions[:0:0], j.Transactions...)
	j.Detached = j.Detached.Clone()
	j.Verified = append(j.Verified[:0:0], j.Verified...)
	j.Cluster = j.Cluster.clone()
	return j
}

// Until is when the time that timeouts.run gives the job is over; zero before it began.
func (j Job) Until() time.Time {
	if j.Started.IsZero() || j.Spec.Timeouts.Run <= 0 {
		return time.Time{}
	}
	return j.Started.Add(j.Spec.Timeouts.Run).Round(time.Second)
}

// Summary is a one-line account of where the job stands.
func (j Job) Summary() string {
	done := 0
	for _, r := range j.Ranks {
		if r.State == RankDone {
			done++
		}
	}
	s := fmt.Sprintf("%s, %d of %d ranks done", j.State, done, len(j.Ranks))
	if n := j.Spec.RoundCount(); n > 1 {
		s += fmt.Sprintf(", round %d of %d", min(j.Round+1, n), n)
	}
	if j.Paused && j.State == Running {
		s += ", paused"
	}
	if v := j.VerifyText(); v != "" {
		s += ", " + v
	}
	if j.Reason != "" {
		s += ": " + j.Reason
	}
	return s
}

// Record is a job in the journal.
type Record struct {
	Job
	Work json.RawMessage `json:"work,omitempty"` // jobs.State of a job that has not ended
}

// Records are the jobs in the journal that have not left memory, by id.
var Records = journal.Define[string, Record]("job")

// Result returns how the job's work ended, and whether that is certain: results that are checked are when that is over.
// What it owes may still be being paid.
func (j Job) Result() (end State, ok bool) {
	switch {
	case j.State.Ended():
		return j.State, true
	case j.State == Settling && (j.Outcome != Succeeded || !j.Unchecked()):
		return j.Outcome, true
	}
	return "", false
}

// AnchoredIn returns the transaction that anchors the job's receipts, or "" if the job was detached.
func (j Job) AnchoredIn() chain.TxID {
	if j.Detached != nil || len(j.Transactions) == 0 {
		return ""
	}
	return chain.TxID(j.Transactions[0])
}

// OwnedBy reports whether a job is a peer's own to settle.
func (j Job) OwnedBy(self sign.Key) bool { return j.Detached == nil || j.Detached.Owner == self }
