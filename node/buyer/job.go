package buyer

import (
	"fmt"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/job"
)

// State is where a job stands.
//
//	queued ─▶ matching ─▶ running ─▶ settling ─▶ succeeded
//	             │  ▲        │  │        │
//	             │  └lost────┘  │        ├─────▶ failed
//	             └──────────────┴───────▶┘
//	 stop: any state before settling ─▶ settling ─▶ stopped
type State string

// The states of a job.
const (
	Queued    State = "queued"    // accepted and journalled, nothing ordered yet
	Matching  State = "matching"  // an order is out, leases are being taken
	Running   State = "running"   // every rank has a lease
	Settling  State = "settling"  // the work is over, what is owed is being paid
	Succeeded State = "succeeded" // every rank ended with exit code 0, everything owed is paid
	Failed    State = "failed"    // could not be placed, a rank failed, or a limit was reached; Reason says which
	Stopped   State = "stopped"   // its user stopped it
)

// Ended says whether the job will not change any more.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Stopped }

// Blob names a content-addressed file of a job.
type Blob struct {
	CID  string `json:"cid"`
	Size int64  `json:"size,omitempty"` // bytes
	Tree bool   `json:"tree,omitempty"` // a deterministic tar of a directory
}

// Output is what a rank left at a path.
type Output struct {
	Path string `json:"path"`
	Blob
}

// Job is one submitted job as journalled and as shown.
type Job struct {
	ID      string    `json:"id"`
	Spec    job.Job   `json:"spec"`
	State   State     `json:"state"`
	Outcome State     `json:"outcome,omitempty"` // while settling: what the job will end as
	Code    Code      `json:"code,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	// Stopping says that its user wants it to end.
	Stopping bool `json:"stopping,omitempty"`
	// Round counts from 0; Carry is the reduced output of the round before it.
	Round int   `json:"round"`
	Carry *Blob `json:"carry,omitempty"`
	// Ranks has one entry per rank, in order.
	Ranks []Rank `json:"ranks"`
	// Lost are the providers that lost a rank of the job, the latest last: they are not asked again while there are others.
	Lost []sign.Key `json:"lost,omitempty"`
	// Orders are all orders placed for the job, oldest first.
	Orders []market.OrderID `json:"orders,omitempty"`
	// Owed is what the vouchers of all leases add up to; Paid what is on chain.
	Owed market.Amount `json:"owed"`
	Paid market.Amount `json:"paid"`
	// Transactions are the settling transactions, in order.
	Transactions []string `json:"transactions,omitempty"`
	// Receipts is how many co-signed receipts the job has.
	Receipts int `json:"receipts"`
}

// Code classes why a job failed; the command line maps it to an exit code.
type Code string

// Why a job failed.
const (
	CodeProgram Code = "program"  // a rank ended with an exit code that is not 0
	CodeNoMatch Code = "no_match" // nobody who fits would take it
	CodePayment Code = "payment"  // budget, funds or chain
	CodeTimeout Code = "timeout"  // a time limit was reached
	CodeLost    Code = "lost"     // providers were lost more often than restart.max allows
	CodeInput   Code = "input"    // an input or module could not be read
	CodePeer    Code = "peer"     // this peer itself could not go on: its disk, its journal
)

// RankState is where one rank of a job stands.
type RankState string

// The states of a rank.
const (
	RankWaiting RankState = "waiting" // no lease yet, or lost and not replaced yet
	RankLeased  RankState = "leased"  // has a lease, nothing runs
	RankRunning RankState = "running" // its execution was started
	RankDone    RankState = "done"    // its execution of this round exited with 0
	RankFailed  RankState = "failed"  // its execution exited with another code
)

// Rank is one numbered worker of a job.
type Rank struct {
	State    RankState      `json:"state"`
	Epoch    uint32         `json:"epoch"` // counts the leases of this rank; the highest wins
	Lease    market.LeaseID `json:"lease,omitzero"`
	Provider sign.Key       `json:"provider,omitzero"`
	Route    string         `json:"route,omitempty"`
	Restarts int            `json:"restarts,omitempty"`
	Seq      uint64         `json:"seq,omitempty"` // of the execution under its lease
	Exit     int            `json:"exit"`
	Reason   string         `json:"reason,omitempty"`
	Detail   string         `json:"detail,omitempty"`  // what the provider said about the end
	Outputs  []Output       `json:"outputs,omitempty"` // of the last round it finished
	// LogBase is where this execution's log begins in the rank's log.
	LogBase int64 `json:"logBase,omitempty"`
}

// ended returns the job as it goes into settling.
func (j Job) ended(outcome State, code Code, reason string) Job {
	j.State, j.Outcome, j.Code, j.Reason = Settling, outcome, code, reason
	return j
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
	if j.Reason != "" {
		s += ": " + j.Reason
	}
	return s
}

// fundsError says that the wallet cannot pay for a job.
type fundsError struct {
	need, have string
	wallet     sign.Key
}

func (e *fundsError) Error() string {
	return fmt.Sprintf("the job can cost up to %s, wallet %s holds %s; lower payment.budget or timeouts.run, or fund the wallet", e.need, e.wallet, e.have)
}

func (e *fundsError) Unwrap() []error { return []error{ErrRefused, ErrFunds} }
