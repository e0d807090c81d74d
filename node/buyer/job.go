package buyer

import (
	"fmt"
	"slices"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/probe"
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
	Settling  State = "settling"  // the work is over, debts are being paid
	Succeeded State = "succeeded" // every rank ended with exit code 0, everything owed is paid
	Failed    State = "failed"    // could not be placed, a rank failed, or a limit was reached; Reason says which
	Stopped   State = "stopped"   // its user stopped it
)

// Ended reports whether the job will not change any more.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Stopped }

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

// Blob names a content-addressed file of a job.
type Blob struct {
	CID  string `json:"cid"`
	Size int64  `json:"size,omitempty"` // bytes
	Tree bool   `json:"tree,omitempty"` // a deterministic tar of a directory
}

// Output is a file or folder that a rank left at a path.
type Output struct {
	Path string `json:"path"`
	Blob
}

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
	Network *mesh.Span `json:"network,omitempty"`
	// Replica says whose result this job computes again; nil: it is a job of its own.
	Replica *Replica `json:"replica,omitempty"`
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
	CodeVerify  Code = "verify"   // providers gave different results, and no majority of them agrees
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
	RankJoining RankState = "joining" // a cluster is being scaled to have it; it has no lease yet
)

// Rank is one numbered worker of a job.
type Rank struct {
	State    RankState      `json:"state"`
	Epoch    uint32         `json:"epoch"` // counts the leases of this rank; the highest wins
	Lease    market.LeaseID `json:"lease,omitzero"`
	Provider sign.Key       `json:"provider,omitzero"`
	Route    string         `json:"route,omitempty"`
	Units    Units          `json:"units,omitzero"` // of the last lease
	Restarts int            `json:"restarts,omitempty"`
	Seq      uint64         `json:"seq,omitempty"` // of the execution under its lease
	Exit     int            `json:"exit"`
	Reason   string         `json:"reason,omitempty"`
	Detail   string         `json:"detail,omitempty"`  // the provider's report of the end
	Outputs  []Output       `json:"outputs,omitempty"` // of the last round it finished
	// Log is a guardian's copy of the rank's log, for an owner that comes back; nil: none.
	Log *Blob `json:"log,omitempty"`
	// LogBase is where this execution's log begins in the rank's log.
	LogBase int64 `json:"logBase,omitempty"`
	// Retries counts how often the program was started again on a lease, as restart.policy says; Restarts, above, how
	// often the rank was taken to another provider.
	Retries int `json:"retries,omitempty"`
	// Generation is that of the cluster when its program was started.
	Generation int       `json:"generation,omitempty"`
	Begun      time.Time `json:"begun,omitzero"` // when the provider was asked to start this execution
	After      time.Time `json:"after,omitzero"` // the program is started again at this time
	Live       Live      `json:"live,omitzero"`  // the provider's last report of the execution
	// Unextended is why the provider would not sign a successor of its lease.
	Unextended string `json:"unextended,omitempty"`
	// Exclusive is what probes and the provider's own word say of the units of the last lease; nil: nothing.
	Exclusive *probe.Exclusive `json:"exclusive,omitempty"`
}

// Units says of what kind the units of a lease are.
type Units struct {
	Class     market.Class `json:"class"`
	Model     string       `json:"model,omitempty"`
	Simulated bool         `json:"simulated,omitempty"` // they are not hardware
}

func unitsOf(q market.Quote) Units {
	return Units{Class: q.Class, Model: q.Model, Simulated: q.Simulated}
}

// Live is a running program as its provider describes it.
type Live struct {
	Phase     string     `json:"phase,omitempty"`  // pulling, running, paused
	Health    string     `json:"health,omitempty"` // starting, healthy, unhealthy; empty without a check
	Message   string     `json:"message,omitempty"`
	Pulled    uint64     `json:"pulled,omitempty"` // bytes
	PullTotal uint64     `json:"pullTotal,omitempty"`
	Devices   []string   `json:"devices,omitempty"` // its GPUs
	KeepUntil time.Time  `json:"keepUntil,omitzero"`
	Ways      *mesh.Ways `json:"ways,omitempty"` // of a cluster's member
}

func (l Live) equal(o Live) bool {
	return slices.Equal(l.Devices, o.Devices) && l.KeepUntil.Equal(o.KeepUntil) && l.Phase == o.Phase && l.Health == o.Health &&
		l.Message == o.Message && l.Pulled == o.Pulled && l.PullTotal == o.PullTotal && l.Ways.Equal(o.Ways)
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
