package record

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
	Settling  State = "settling"  // the work has ended, debts are being paid
	Succeeded State = "succeeded" // every rank ended with exit code 0, all debts are paid
	Failed    State = "failed"    // could not be placed, a rank failed, or a limit was reached; Reason says which
	Stopped   State = "stopped"   // its user stopped it
)

// Ended reports whether the job is in a final state.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Stopped }

// Past returns a job's final state in the past tense.
func (s State) Past() string {
	if s == Settling {
		return "ended"
	}
	return string(s)
}

// Code classes why a job failed; the command line maps it to an exit code.
type Code string

// Why a job failed.
const (
	CodeProgram Code = "program"  // a rank ended with an exit code that is not 0
	CodeNoMatch Code = "no_match" // no suitable provider accepted it
	CodePayment Code = "payment"  // budget, funds or chain
	CodeTimeout Code = "timeout"  // a time limit was reached
	CodeLost    Code = "lost"     // providers were lost more often than restart.max allows
	CodeInput   Code = "input"    // an input or module could not be read
	CodeVerify  Code = "verify"   // providers gave different results, and no majority of them agrees
	CodePeer    Code = "peer"     // this peer itself could not go on: its disk, its journal
)
