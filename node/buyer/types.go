package buyer

import (
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/leases"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
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
	Step     = trace.Step
	StepKind = trace.Kind
	Escrows  = pay.Escrows
	// Program is one more program to run beside a rank's own, in its sandbox.
	Program = executions.Program
	// LeaseAccount is one lease of a job with the proofs of its cost.
	LeaseAccount = leases.Account
)

// The record of a job and its parts, see package record.
type (
	Job      = record.Job
	State    = record.State
	Code     = record.Code
	Rank     = record.Rank
	Units    = record.Units
	Live     = record.Live
	Snapshot = record.Snapshot
	Blob     = record.Blob
	Output   = record.Output
	Cluster  = record.Cluster
	Span     = record.Span
	Ways     = record.Ways
	Way      = record.Way
	Path     = record.Path
	Escrow   = record.Escrow
	Lamports = record.Lamports
	Place    = record.Place
	Detached = record.Detached
	Standby  = record.Standby
	Verified = record.Verified
	Replica  = record.Replica
	Query    = record.Query
	Page     = record.Page
	Anchored = record.Anchored
)

// The states of a job and of its ranks, and why a job failed.
const (
	Queued    = record.Queued
	Matching  = record.Matching
	Running   = record.Running
	Settling  = record.Settling
	Succeeded = record.Succeeded
	Failed    = record.Failed
	Stopped   = record.Stopped

	RankWaiting = record.RankWaiting
	RankLeased  = record.RankLeased
	RankRunning = record.RankRunning
	RankDone    = record.RankDone
	RankFailed  = record.RankFailed
	RankJoining = record.RankJoining

	CodeProgram = record.CodeProgram
	CodeNoMatch = record.CodeNoMatch
	CodePayment = record.CodePayment
	CodeTimeout = record.CodeTimeout
	CodeLost    = record.CodeLost
	CodeInput   = record.CodeInput
	CodeVerify  = record.CodeVerify
	CodePeer    = record.CodePeer
)

// PageMax is the most jobs of a page, see record.Query.
const PageMax = record.PageMax

// The environment of a program, see package record.
const (
	EnvJob   = record.EnvJob
	EnvRank  = record.EnvRank
	EnvCount = record.EnvCount
	EnvRound = record.EnvRound
)

// Errors of the rooms below this package.
var (
	ErrLimit, ErrKey     = spend.ErrLimit, spend.ErrKey
	ErrFunds             = pay.ErrFunds
	ErrRefused, ErrQuery = record.ErrRefused, record.ErrQuery
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
	StepLost       = trace.Lost
	StepAway       = trace.Away
	StepProbed     = trace.Probed
	StepRound      = trace.Round
	StepGuarded    = trace.Guarded
	StepSupervised = trace.Supervised
	StepFunded     = trace.Funded
	StepPaid       = trace.Paid
	StepScaled     = trace.Scaled
	StepEnded      = trace.Ended
)

// The routes by which a quote reaches a buyer, and the paths between a cluster's members.
const (
	RouteDirect = exchange.RouteDirect
	RouteGossip = exchange.RouteGossip
	PathDirect  = record.PathDirect
	PathRelayed = record.PathRelayed
)

// LogQuery selects a part of a rank's log.
type LogQuery = ranklog.Query

// The frames of a rank's log, see package ranklog.
const (
	FrameHeader  = ranklog.FrameHeader
	StreamStdout = ranklog.StreamStdout
	StreamStderr = ranklog.StreamStderr
)
