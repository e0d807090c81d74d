package jobs

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Effect is something to be done. The set is closed.
type Effect interface{ effect() }

// Seat is one rank of an order.
type Seat struct{ Rank, Epoch uint32 }

// Effects of the reserve room.
type (
	// OrderGang is answered by GangFormed or GangFailed, always.
	OrderGang struct {
		Gang    GangID
		Seats   []Seat
		Slots   uint64        // of each lease, at most
		Cap     market.Amount // of all together
		Until   time.Time     // repeat the order until then
		Standby bool          // of the job's standbys only
		Avoid   []sign.Key    // while others are left
	}
	// CancelGang requests an early GangFailed.
	CancelGang struct {
		Gang   GangID
		Reason string
	}
)

// Effects of the lease room.
type (
	// RenewLease is answered by LeaseRenewed or RenewalRefused, always.
	RenewLease struct {
		Of, Chain market.LeaseID
		Until     market.Slot
		Cap       market.Amount
	}
	// EndLease pays no further interval of a chain and releases it. It is answered by LeaseCost.
	EndLease struct {
		Chain  market.LeaseID
		Reason string
	}
	// LeaveLeases stops all work on the job's leases: another peer supervises.
	LeaveLeases struct{}
	// ReportFault reports a provider's fault to its reputation.
	ReportFault struct {
		Chain  market.LeaseID
		Reason string
	}
)

// Effects of the run room.
type (
	// StartExecution is idempotent by Exec: it also resumes an execution that runs.
	StartExecution struct {
		Exec
		Round, Generation uint32
		From              []Checkpoint // the best first; none: from the beginning
	}
	// StopExecution requests that a program exits within Grace.
	StopExecution struct {
		Exec
		Grace time.Duration
	}
	// GatherOutputs fetches the outputs of an execution.
	GatherOutputs struct{ Exec }
	// ReclaimExecution requests the result of an execution that may have exited before its lease ended.
	ReclaimExecution struct{ Exec }
	// PollProvider is answered by ProviderHeard or ProviderSilent.
	PollProvider struct{ Exec }
	// SetFrozen freezes or resumes a program.
	SetFrozen struct {
		Exec
		Frozen bool
	}
	// Reduce runs the reduce program here. Leaving Reducing cancels it.
	Reduce struct{ Round uint32 }
)

// Effects of hooks.
type (
	// PublishPlan delivers a version of the cluster's plan until each member reports it.
	PublishPlan struct{ Version uint64 }
	// CheckResults begins or resumes the checks of all ranks.
	CheckResults struct{}
	// BuyReplica grants the money of one replica.
	BuyReplica struct {
		Rank, Attempt uint32
		Budget        market.Amount
	}
	// RefuseReplica reports that no money is left for a replica.
	RefuseReplica struct {
		Rank, Attempt uint32
		Reason        string
	}
	// EngageGuardians is answered by GuardiansEngaged or EngagementFailed.
	EngageGuardians struct{}
	// AcquireCommand is answered by CommandGranted.
	AcquireCommand struct{}
	// DismissGuardians releases the guardians of an ended job.
	DismissGuardians struct{}
)

// Effects of the pay room.
type (
	// CloseAccount is answered by AccountCounted, then by EscrowReleased.
	CloseAccount struct{}
	// AnchorReceipts is answered by ReceiptsAnchored.
	AnchorReceipts struct{}
)

// Effects of the runner.
type (
	// Answer answers an API call. If Err is nil, the request is accepted; else Err wraps ErrNotRunning, ErrBusy,
	// ErrBudget or ErrScale. A request to scale is answered when it is complete.
	Answer struct {
		Req Req
		Err error
	}
	// Note is one line of the job's trace, written in the batch's transaction.
	Note struct {
		Kind   string
		Rank   int // -1: the job
		Detail string
	}
)

// Kinds of a Note.
const (
	NoteLeased     = "leased"
	NoteUnplaced   = "unplaced"
	NoteStarted    = "started"
	NoteExited     = "exited"
	NoteRestarted  = "restarted"
	NoteRestored   = "restored"
	NoteLost       = "lost"
	NoteRound      = "round"
	NoteScaled     = "scaled"
	NoteExtended   = "extended"
	NoteUnextended = "unextended"
	NoteReady      = "ready"
	NoteSupervised = "supervised"
	NoteEnded      = "ended"
)

func (OrderGang) effect()        {}
func (CancelGang) effect()       {}
func (RenewLease) effect()       {}
func (EndLease) effect()         {}
func (LeaveLeases) effect()      {}
func (ReportFault) effect()      {}
func (StartExecution) effect()   {}
func (StopExecution) effect()    {}
func (GatherOutputs) effect()    {}
func (ReclaimExecution) effect() {}
func (PollProvider) effect()     {}
func (SetFrozen) effect()        {}
func (Reduce) effect()           {}
func (PublishPlan) effect()      {}
func (CheckResults) effect()     {}
func (BuyReplica) effect()       {}
func (RefuseReplica) effect()    {}
func (EngageGuardians) effect()  {}
func (AcquireCommand) effect()   {}
func (DismissGuardians) effect() {}
func (CloseAccount) effect()     {}
func (AnchorReceipts) effect()   {}
func (Answer) effect()           {}
func (Note) effect()             {}
