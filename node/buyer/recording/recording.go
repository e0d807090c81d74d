// Package recording reports the events and effects of a job's supervisor to a recorder, in the terms of the job's state
// machine (package jobs). A test compares them with the machine's own.
package recording

import (
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/buyer/jobs"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/runtime"
)

// Recorder receives the events and effects of the supervisors of ordinary jobs. Its methods must not block.
type Recorder interface {
	// Began reports a job that was accepted.
	Began(id string, p jobs.Params)
	// Ordered reports an order before anything leaves the peer. The gang has no number.
	Ordered(id string, o market.OrderID, gang jobs.OrderGang)
	// Answered reports the result of an order, a GangFormed or GangFailed without number.
	Answered(id string, o market.OrderID, ev jobs.Event)
	// Saw reports an event, before any effect that follows from it.
	Saw(id string, ev jobs.Event)
	// Did reports an effect that is carried out.
	Did(id string, fx jobs.Effect)
}

// The vocabulary of supervisors.
type (
	Exec             = jobs.Exec
	File             = jobs.File
	Lease            = jobs.Lease
	Seat             = jobs.Seat
	StopRequested    = jobs.StopRequested
	ProviderSilent   = jobs.ProviderSilent
	ProviderHeard    = jobs.ProviderHeard
	ExecutionSeen    = jobs.ExecutionSeen
	ExecutionLost    = jobs.ExecutionLost
	LeaseLost        = jobs.LeaseLost
	LeaseCost        = jobs.LeaseCost
	Reduced          = jobs.Reduced
	StartExecution   = jobs.StartExecution
	StopExecution    = jobs.StopExecution
	ReclaimExecution = jobs.ReclaimExecution
	EndLease         = jobs.EndLease
	ReportFault      = jobs.ReportFault
	Reduce           = jobs.Reduce
	CloseAccount     = jobs.CloseAccount
)

// Stages of an execution, and causes of a loss.
const (
	Pulled    = jobs.StagePulled
	Healthy   = jobs.StageHealthy
	Unhealthy = jobs.StageUnhealthy

	Refused   = jobs.CauseRefused
	Absent    = jobs.CauseAbsent
	Expired   = jobs.CauseExpired
	Defaulted = jobs.CauseDefaulted
)

// Job reports one job. Without a recorder, as outside tests, its methods do nothing.
type Job struct {
	to Recorder
	id string
}

// Begin reports a job that was accepted. Only ordinary jobs are recorded: without guardians, checks and clusters.
func Begin(to Recorder, id string, spec job.Job, g market.Genesis, lostAfter time.Duration) Job {
	rate, err := market.RateOf(spec.Payment.MaxPrice, int(spec.Resources.Units), g.SlotMillis)
	if to == nil || err != nil || spec.Guardians > 0 || spec.Cluster != nil || spec.Verify == job.VerifyReplicate {
		return Job{}
	}
	to.Began(id, jobs.Params{
		Count: spec.Count, Rounds: uint32(spec.RoundCount()), Reduce: spec.Rounds != nil && spec.Rounds.Reduce != nil,
		Restart: jobs.Restart{
			Max: uint32(spec.Restart.Max), OnFailure: spec.Restart.Policy == job.RestartOnFailure,
			Always:  spec.Restart.Policy == job.RestartAlways,
			Backoff: time.Duration(spec.Restart.Backoff), MostBackoff: job.MaxBackoff,
		},
		Queue: spec.Timeouts.Queue, Pull: spec.Timeouts.Pull, Start: spec.Timeouts.Start, Run: spec.Timeouts.Run,
		Grace: spec.Timeouts.Grace(), LostAfter: lostAfter, Rate: rate, Budget: spec.Payment.Budget,
		SlotMillis: g.SlotMillis, Interval: g.IntervalSlots, Seed: 1,
	})
	return Job{to, id}
}

// Saw reports an event.
func (j Job) Saw(ev jobs.Event) {
	if j.to != nil {
		j.to.Saw(j.id, ev)
	}
}

// Did reports an effect.
func (j Job) Did(fx jobs.Effect) {
	if j.to != nil {
		j.to.Did(j.id, fx)
	}
}

// Ordered reports an order of leases that cost most together.
func (j Job) Ordered(o market.Order, seats []Seat, most market.Amount) {
	if j.to != nil {
		j.to.Ordered(j.id, o.ID, jobs.OrderGang{Seats: seats, Slots: o.Slots, Cap: most})
	}
}

// Formed reports the leases of an order.
func (j Job) Formed(o market.OrderID, leases []Lease) {
	if j.to != nil {
		j.to.Answered(j.id, o, jobs.GangFormed{Leases: leases})
	}
}

// Unplaced reports the failure of an order: no provider fits, too few of those that fit answered, or else the money
// could not be set aside.
func (j Job) Unplaced(o market.OrderID, unfit, short bool, reason string) {
	if j.to == nil {
		return
	}
	why := jobs.GangUnfunded
	if short {
		why = jobs.GangShort
	} else if unfit {
		why = jobs.GangUnfit
	}
	j.to.Answered(j.id, o, jobs.GangFailed{Why: why, Reason: reason})
}

// exitOf returns the end of an execution as its provider reports it. One that was not stopped and lost by the provider
// is broken.
func exitOf(ex *nodepb.Execution, asked bool) jobs.Exit {
	r := runtime.Reason(ex.Reason)
	e := jobs.Exit{Code: int(ex.ExitCode), Reason: ex.Reason, Detail: ex.Message}
	switch ex.Reason {
	case protocol.ReasonImage, protocol.ReasonProgram, protocol.ReasonCredentials:
		e.Hopeless = true
	}
	e.Broken = r == runtime.ReasonLost || r == runtime.ReasonKilled && !asked
	if ex.State == nodepb.ExecState_EXEC_STATE_FAILED {
		e.Broken = e.Broken || ex.Reason == protocol.ReasonStart
		if e.Reason == "" {
			e.Reason = "failed"
		}
	}
	return e
}

// Exited reports the end of an execution, and that its outputs are being fetched.
func (j Job) Exited(x Exec, ex *nodepb.Execution, asked bool) {
	exit := exitOf(ex, asked)
	j.Saw(jobs.ExecutionExited{Exec: x, Exit: exit})
	if !exit.Broken {
		j.Did(jobs.GatherOutputs{Exec: x})
	}
}

// Gathered reports the outputs of an execution, or that its provider lost them.
func (j Job) Gathered(x Exec, outputs []File, lost string) {
	if lost != "" {
		j.Saw(jobs.ExecutionLost{Exec: x, Cause: jobs.CauseBroken, Reason: lost})
		return
	}
	j.Saw(jobs.OutputsGathered{Exec: x, Outputs: outputs})
}

// Unreduced reports the failure of a round's reduce step, by its program or else by its input.
func (j Job) Unreduced(round int, program bool, reason string) {
	code := jobs.CodeInput
	if program {
		code = jobs.CodeProgram
	}
	j.Saw(jobs.ReduceFailed{Round: uint32(round), Code: code, Reason: reason})
}

// Settled reports the account of a job that is settled.
func (j Job) Settled(owed, paid market.Amount, receipts int, anchored []string) {
	j.Saw(jobs.AccountCounted{Owed: owed, Receipts: uint64(receipts)})
	if receipts > 0 {
		j.Did(jobs.AnchorReceipts{})
		j.Saw(jobs.ReceiptsAnchored{Tx: append(anchored, "")[0]})
	}
	j.Saw(jobs.EscrowReleased{Paid: paid})
}
