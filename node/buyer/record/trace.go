package record

import "github.com/starling-network/starling/node/buyer/trace"

// Step is an entry of a job's decision trace, and StepKind its kind; see package trace.
type (
	Step     = trace.Step
	StepKind = trace.Kind
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
