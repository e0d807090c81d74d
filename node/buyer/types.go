package buyer

import (
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/executions"
	"github.com/starling-network/starling/node/buyer/pay"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/buyer/run"
	"github.com/starling-network/starling/node/buyer/spend"
	"github.com/starling-network/starling/node/buyer/voice"
)

// Types and errors of the rooms below this package that are part of a job as its user sees it.
type (
	Known   = exchange.Known
	Proofs  = exchange.Proofs
	Limits  = spend.Limits
	Key     = spend.Key
	Escrows = pay.Escrows
	// Guardian is the peer's own guardian service, as its buyer calls it.
	Guardian = voice.Local
	// Program is one more program to run beside a rank's own, in its sandbox.
	Program = executions.Program
)

// The record of a job and its parts, see package record.
type (
	Job      = record.Job
	State    = record.State
	Code     = record.Code
	Rank     = record.Rank
	Units    = record.Units
	Snapshot = record.Snapshot
	Blob     = record.Blob
	Output   = record.Output
	Cluster  = record.Cluster
	Path     = record.Path
	Escrow   = record.Escrow
	Lamports = record.Lamports
	Place    = record.Place
	Detached = record.Detached
	Standby  = record.Standby
	Query    = record.Query
	Page     = record.Page
	Anchored = record.Anchored

	LeaseAccount = record.LeaseAccount
	Step         = record.Step
)

// The requests to a buyer and its answers, see package record.
type (
	Submission  = record.Submission
	Quotation   = record.Quotation
	QuotedOffer = record.QuotedOffer
	Extension   = record.Extension
	Removed     = record.Removed
	Totals      = record.Totals
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
	RankRunning = record.RankRunning
	RankDone    = record.RankDone

	CodeProgram = record.CodeProgram
	CodeNoMatch = record.CodeNoMatch
	CodePayment = record.CodePayment
	CodeTimeout = record.CodeTimeout
	CodeLost    = record.CodeLost
	CodeVerify  = record.CodeVerify
	CodePeer    = record.CodePeer
)

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
	ErrRefused, ErrQuery = record.ErrRefused, record.ErrQuery
	ErrFunds, ErrNoJob   = record.ErrFunds, record.ErrNoJob
	ErrNotRunning        = record.ErrNotRunning
	ErrNeeded            = record.ErrNeeded
)

// The routes by which a quote reaches a buyer.
const (
	RouteDirect = exchange.RouteDirect
	RouteGossip = exchange.RouteGossip
)

// LogQuery selects a part of a rank's log.
type LogQuery = run.LogQuery

// The frames of a rank's log, see package ranklog.
const (
	FrameHeader  = run.FrameHeader
	StreamStdout = run.StreamStdout
)
