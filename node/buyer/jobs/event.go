package jobs

import (
	"errors"
	"time"

	"github.com/starling-network/starling/market"
)

// Event is something that happened. The set is closed. Events about an execution are ignored unless it is the current
// one of its rank and the rank is Running.
type Event interface {
	// apply changes the state and returns an error if the event cannot have happened.
	apply(t *step) error
}

// quiet is an event that is taken in while another peer supervises the job (R1).
type quiet interface{ applyQuiet(t *step) error }

// Requests of the API, after its own checks.
type (
	// StopRequested ends the job's work.
	StopRequested struct{ Req Req }
	// PauseRequested freezes or resumes all programs.
	PauseRequested struct {
		Req   Req
		Pause bool
	}
	// ExtendRequested gives the job more time and, unless Budget is 0, another budget.
	ExtendRequested struct {
		Req    Req
		By     time.Duration
		Budget market.Amount
	}
	// ScaleRequested gives a cluster another size and, unless Budget is 0, another budget.
	ScaleRequested struct {
		Req    Req
		Count  uint32
		Budget market.Amount
	}
)

// Reports of the reserve room.
type (
	// OrderPlaced reports an order's id before anything leaves the peer. Step returns ErrDropped if the gang was
	// dropped; the room then sends nothing and reports GangFailed.
	OrderPlaced struct {
		Gang  GangID
		Order market.OrderID
	}
	// GangFormed reports that every seat has an active lease.
	GangFormed struct {
		Gang   GangID
		Leases []Lease
	}
	// GangFailed reports that no lease of the gang is active, and none will be.
	GangFailed struct {
		Gang   GangID
		Why    Failure
		Reason string
	}
)

// Reports of the lease room.
type (
	// LeaseLost reports that a chain can be used no longer.
	LeaseLost struct {
		Chain  market.LeaseID
		Cause  Cause
		Reason string
	}
	// LeaseCost answers EndLease for each lease of the chain, and comes again when a lease is settled.
	LeaseCost struct {
		Lease   market.LeaseID
		Most    market.Amount
		Settled bool // Most is final
	}
	// LeaseRenewed answers RenewLease with the active successor.
	LeaseRenewed struct {
		Of   market.LeaseID
		Next Lease
	}
	// RenewalRefused answers RenewLease.
	RenewalRefused struct {
		Of     market.LeaseID
		Reason string
	}
)

// Reports of the run room.
type (
	// ExecutionSeen reports progress of an execution.
	ExecutionSeen struct {
		Exec
		Stage  Stage
		Detail string
	}
	// ExecutionExited reports the end of an execution.
	ExecutionExited struct {
		Exec
		Exit Exit
	}
	// OutputsGathered answers GatherOutputs.
	OutputsGathered struct {
		Exec
		Outputs []File
	}
	// ExecutionLost reports an execution that was refused or malformed, outputs that cannot be fetched, or a reclaim
	// that found nothing. After a restart Cause is the cause in the lease's record.
	ExecutionLost struct {
		Exec
		Cause  Cause
		Reason string
	}
	// ProviderSilent reports that neither a watch nor a receipt was answered.
	ProviderSilent struct{ Exec }
	// ProviderHeard reports an answer. It also answers PollProvider, as ProviderSilent does.
	ProviderHeard struct{ Exec }
	// FreezeRefused reports that a provider cannot pause the program at all.
	FreezeRefused struct {
		Exec
		Reason string
	}
	// Reduced answers Reduce.
	Reduced struct {
		Round uint32
		Carry File
	}
	// ReduceFailed answers Reduce.
	ReduceFailed struct {
		Round  uint32
		Code   Code
		Reason string
	}
	// PeerFailed reports that this peer cannot go on with the job: it cannot make a request, or keep outputs.
	PeerFailed struct {
		Code   Code // CodeInput or CodePeer
		Reason string
	}
	// CheckpointKept reports a checkpoint that this peer has, from which the rank can be started again.
	CheckpointKept struct {
		Exec
		Number uint64
		File   File
	}
)

// Reports of hooks.
type (
	// JobUse reports whether a cluster, or a job with Params.Idle, is in use: first, and on change.
	JobUse struct{ Busy bool }
	// ReplicaWanted requests the money of a replica. It is answered by BuyReplica or RefuseReplica.
	ReplicaWanted struct {
		Rank, Attempt uint32
		Most          market.Amount
	}
	// ReplicaEnded reports the cost of a replica.
	ReplicaEnded struct {
		Rank, Attempt uint32
		Owed          market.Amount
	}
	// ResultJudged reports the verdict on one rank's result.
	ResultJudged struct {
		Rank     uint32
		Outputs  []File // the right ones, where they are others
		Disputed bool   // results differ and no majority agrees
		Reason   string
	}
	// GuardiansEngaged answers EngageGuardians.
	GuardiansEngaged struct{ Epoch uint64 }
	// EngagementFailed answers EngageGuardians.
	EngagementFailed struct{ Reason string }
	// CommandGranted reports that this peer supervises the job under an epoch.
	CommandGranted struct {
		Epoch  uint64
		Theirs *State // as the last supervisor left it, validated by Merge; nil: nothing newer
		Leases []Lease
	}
	// CommandLost reports that another peer supervises the job under a higher epoch.
	CommandLost struct{ Epoch uint64 }
)

// Reports of the pay room.
type (
	// AccountCounted reports the job's total debt; no lease can become void after it.
	AccountCounted struct {
		Owed     market.Amount
		Receipts uint64
	}
	// EscrowReleased reports that the unowed money was refunded.
	EscrowReleased struct{ Paid market.Amount }
	// ReceiptsAnchored reports the transaction that commits to the receipts.
	ReceiptsAnchored struct{ Tx string }
)

// Events of the runner.
type (
	// Recovered is the first event after a restart, with all leases of the job, settled ones too.
	Recovered struct{ Leases []Lease }
	// Ticked reports that Next is due.
	Ticked struct{}
)

func (Ticked) apply(*step) error { return nil }

// Errors of Step, New, Decode and Merge.
var (
	// ErrDropped reports that a gang was dropped: its order must not be sent.
	ErrDropped = errors.New("gang was dropped")
	// ErrEvent reports that the sender of an event broke its contract. The state is unchanged.
	ErrEvent = errors.New("event is invalid")
	// ErrRecord reports that an encoded state cannot be used.
	ErrRecord = errors.New("job record is invalid")
	// ErrForeign reports that a standing is of another job, or is older than the own state.
	ErrForeign = errors.New("standing does not follow from this job")
)

// Errors of an Answer.
var (
	// ErrNotRunning reports that the job is not in a phase that allows the request.
	ErrNotRunning = errors.New("job is not running")
	// ErrBusy reports that the previous change of time or size is not complete.
	ErrBusy = errors.New("another change is in progress")
	// ErrBudget reports that the budget does not pay for the request.
	ErrBudget = errors.New("budget is too small")
	// ErrScale reports that new members could not be placed.
	ErrScale = errors.New("the cluster keeps its members")
)
