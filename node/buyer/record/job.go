// Package record has the record of a job: its form in the journal and for its user. The values come from the job's
// machine, leases, money, guardians, probes and checks.
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
	Outcome State     `json:"outcome,omitempty"` // the job's final state, once its work has ended
	Code    Code      `json:"code,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	// Finished is when its last program had ended, Ended when all was paid.
	Finished time.Time `json:"finished,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	// Warning is the warning that its user got at submission.
	Warning string `json:"warning,omitempty"`
	// Stopping is set once its user has requested its end.
	Stopping bool `json:"stopping,omitempty"`
	// Extended counts the extensions of the job's time.
	Extended int `json:"extended,omitempty"`
	// Raised is the last day, after that of the job's creation, on which a change raised its possible cost; or nil.
	Raised *Raised `json:"raised,omitempty"`
	// Paused is set while its programs are frozen. They are still paid for, and timeouts.run continues.
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
	// Owed is the sum of all leases' vouchers. Paid is the claimed part on chain with the network's fees, plus the
	// guardians' wages of a detached job, which no lease's voucher contains. Held is the money still in its escrows:
	// providers claim their part, and the rest is refunded. Paid and Held are read from the chain, like Escrows.
	Owed market.Amount `json:"owed"`
	Paid market.Amount `json:"paid"`
	Held market.Amount `json:"held,omitempty"`
	// Lamports is the SOL that the job took from the peer. For a job that another peer supervises, it is the known
	// part.
	Lamports Lamports `json:"lamports,omitzero"`
	// Transactions anchor the job's receipts, in order.
	Transactions []string `json:"transactions,omitempty"`
	// Escrows are where its money was set aside, one for each order; as the chain has it, so not in the journal with
	// the job.
	Escrows []Escrow `json:"escrows,omitempty"`
	// Detached is the guardians' part of a job that continues without its owner's peer. It is optional.
	Detached *Detached `json:"detached,omitempty"`
	// Receipts is the number of the job's co-signed receipts.
	Receipts int `json:"receipts"`
	// Nonce is an input to the draws that check the job's results; its orders commit to it.
	Nonce sign.Hash `json:"nonce,omitzero"`
	// Verified is the state of the checks of each rank's result, if the job requests checks.
	Verified []Verified `json:"verified,omitempty"`
	// Cluster is the state of a job's cluster; nil if its ranks form none.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Network summarises the paths between a cluster's members, measured before their leases were signed. It is nil if
	// none were measured.
	Network *Span `json:"network,omitempty"`
	// Replica names the result that this job computes again; nil if it is no replica.
	Replica *Replica `json:"replica,omitempty"`
}

// Raised is the day on which changes let a job cost more. That part of its cost counts against the limits of this day.
type Raised struct {
	At     time.Time     `json:"at"`     // the first such change of its day
	Before market.Amount `json:"before"` // the most that the job could cost before it
}

// Clone returns a deep copy of the job.
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

// Until returns the end of the job's time by timeouts.run; zero before the job began.
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

// Result returns the final state of the job's work, and whether it is certain: with checked results, only after the
// checks. Its debts may still be unpaid.
func (j Job) Result() (end State, ok bool) {
	switch {
	case j.State.Ended():
		return j.State, true
	case j.State == Settling && (j.Outcome != Succeeded || !j.Unchecked()):
		return j.Outcome, true
	}
	return "", false
}

// Ran returns the time for which the job's programs have run. After their end, payment takes longer.
func (j Job) Ran(now time.Time) time.Duration {
	for _, end := range []time.Time{j.Finished, j.Ended, now} {
		if !end.IsZero() && !j.Started.IsZero() {
			return max(end.Sub(j.Started), 0)
		}
	}
	return 0
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
