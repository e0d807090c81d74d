package buyer

import (
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/buyer/trace"
)

// Types and constants of the rooms below this package that are part of a job as its user sees it.

type (
	// Known is one provider as this peer knows it.
	Known = exchange.Known
	// Proofs has the proven properties of the units on offer.
	Proofs = exchange.Proofs
	// Limits bound spending, in base units.
	Limits = spend.Limits
	// Key is an API key.
	Key = spend.Key
	// Spend is the spending of some days, and the limits.
	Spend = spend.Report
	// DaySpend is the cost of one key's jobs that were submitted on one day.
	DaySpend = spend.Day
	// Snapshot is a provider's report of an execution's hardware, with both signatures.
	Snapshot = probe.Snapshot
	// Step is one entry of a job's decision trace.
	Step = trace.Step
	// StepKind is the kind of a step.
	StepKind = trace.Kind
)

// Errors of spending.
var (
	// ErrLimit is returned for a job that could cost more than its peer or its key may spend.
	ErrLimit = spend.ErrLimit
	// ErrKey is returned for an API key that cannot be made or does not exist.
	ErrKey = spend.ErrKey
)

// The kinds of steps, see package trace.
const (
	StepOrdered    = trace.Ordered
	StepAsked      = trace.Asked
	StepQuoted     = trace.Quoted
	StepDeclined   = trace.Declined
	StepSilent     = trace.Silent
	StepBlocked    = trace.Blocked
	StepInfeasible = trace.Infeasible
	StepChosen     = trace.Chosen
	StepMeasured   = trace.Measured
	StepHeld       = trace.Held
	StepSigned     = trace.Signed
	StepActivated  = trace.Activated
	StepRefused    = trace.Refused
	StepReleased   = trace.Released
	StepLeased     = trace.Leased
	StepStarted    = trace.Started
	StepExited     = trace.Exited
	StepRestarted  = trace.Restarted
	StepExtended   = trace.Extended
	StepUnextended = trace.Unextended
	StepLost       = trace.Lost
	StepAway       = trace.Away
	StepVerified   = trace.Verified
	StepProbed     = trace.Probed
	StepRound      = trace.Round
	StepGuarded    = trace.Guarded
	StepSupervised = trace.Supervised
	StepFunded     = trace.Funded
	StepRefunded   = trace.Refunded
	StepPaid       = trace.Paid
	StepReady      = trace.Ready
	StepScaled     = trace.Scaled
	StepEnded      = trace.Ended
)

// The routes by which a quote reaches a buyer.
const (
	RouteDirect = exchange.RouteDirect
	RouteGossip = exchange.RouteGossip
)

// The frames of a rank's log, see package ranklog.
const (
	FrameHeader  = ranklog.FrameHeader
	StreamStdout = ranklog.StreamStdout
	StreamStderr = ranklog.StreamStderr
)

// The network between the members of a cluster, see package mesh.
type (
	Span = mesh.Span
	Ways = mesh.Ways
	Way  = mesh.Way
	Path = mesh.Path
)

// The paths between members.
const (
	PathDirect  = mesh.PathDirect
	PathRelayed = mesh.PathRelayed
)
