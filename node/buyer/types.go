package buyer

import (
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/mesh"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/probe"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/buyer/trace"
)

// Types and errors of the rooms below this package that are part of a job as its user sees it.
type (
	Known    = exchange.Known
	Proofs   = exchange.Proofs
	Limits   = spend.Limits
	Key      = spend.Key
	Spend    = spend.Report
	DaySpend = spend.Day
	Snapshot = probe.Snapshot
	Step     = trace.Step
	StepKind = trace.Kind
	Span     = mesh.Span
	Ways     = mesh.Ways
	Way      = mesh.Way
	Path     = mesh.Path
	Escrows  = pay.Escrows
	Escrow   = pay.Escrow
	Lamports = pay.Lamports
	Place    = pay.Place
	// LeaseAccount is one lease of a job with the proofs of its cost.
	LeaseAccount = leases.Account
)

// Errors of the rooms below this package.
var (
	ErrLimit, ErrKey     = spend.ErrLimit, spend.ErrKey
	ErrRefused, ErrFunds = pay.ErrRefused, pay.ErrFunds
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

// The routes by which a quote reaches a buyer, and the paths between a cluster's members.
const (
	RouteDirect = exchange.RouteDirect
	RouteGossip = exchange.RouteGossip
	PathDirect  = mesh.PathDirect
	PathRelayed = mesh.PathRelayed
)

// LogQuery selects a part of a rank's log.
type LogQuery = ranklog.Query

// The frames of a rank's log, see package ranklog.
const (
	FrameHeader  = ranklog.FrameHeader
	StreamStdout = ranklog.StreamStdout
	StreamStderr = ranklog.StreamStderr
)
