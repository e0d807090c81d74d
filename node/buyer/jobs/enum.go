package jobs

import (
	"fmt"
	"slices"
)

// Phase is the phase of a job; see the diagram in the package comment.
type Phase uint8

// The phases.
const (
	Engaging Phase = iota + 1 // Guardians are being found; nothing is ordered yet.
	Placing                   // Some rank never had a lease.
	Working                   // Rounds run.
	Reducing                  // Every rank of a round is done; its reduce program runs here.
	Stopping                  // The outcome is known; programs are stopped and outputs fetched.
	Settling                  // Leases end, money is counted, refunded and anchored, results are checked.
	Ended                     // Final.
)

// RankState is the durable state of a rank.
type RankState uint8

// The states of a rank.
const (
	RankWaiting RankState = iota + 1 // It has no lease.
	RankLeased                       // It has a lease; nothing runs under it.
	RankRunning                      // Execution Seq was requested and is not decided.
	RankDone                         // Its execution of this round succeeded.
	RankFailed                       // Its execution failed and is not started again.
	RankStopped                      // It was stopped with the job.
)

// Activity is the operation in progress for a rank. It is volatile.
type Activity uint8

// The activities.
const (
	Idle       Activity = iota // The next advance begins the right one.
	Ordering                   // Waiting: a gang is being formed.
	Starting                   // Running: requested, not up yet.
	Up                         // Running, and healthy where it has a check.
	Halting                    // Running: asked to stop, until HaltBy.
	Gathering                  // Running: exited; its outputs are being fetched.
	Judging                    // Running: failed; another member may have been lost first.
	Reclaiming                 // Running: its lease ended; it may have exited before.
)

// Result is the result of a job.
type Result uint8

// The results.
const (
	ResultSucceeded Result = iota + 1
	ResultFailed
	ResultStopped // By its user, or because it was idle.
)

// Code classifies why a job failed.
type Code uint8

// The codes.
const (
	CodeProgram Code = iota + 1
	CodeNoMatch
	CodePayment
	CodeTimeout
	CodeLost
	CodeInput
	CodeVerify
	CodePeer
)

// Stage is the progress of an execution as its provider reports it.
type Stage uint8

// The stages.
const (
	StagePulling   Stage = iota + 1 // The provider has the sizes of the files to fetch.
	StagePulled                     // Program and inputs were fetched.
	StageHealthy                    // It runs, and is healthy where it has a check.
	StageUnhealthy                  // Its check fails.
)

// Cause is why a rank lost its lease or execution. The first four are faults of the provider.
type Cause uint8

// The causes.
const (
	CauseSilent    Cause = iota + 1 // No answer and no receipt for LostAfter.
	CauseRefused                    // It would not run the program, or broke the protocol.
	CauseBroken                     // It ended the program, did not stop it, or has no outputs.
	CauseDefaulted                  // It stopped metering: no receipt, or two under one number.
	CauseLate                       // A phase took longer than the job allows.
	CauseExpired                    // The chain's time or money is used up.
	CauseAbsent                     // The lease ended while this peer was away.
	CauseCondemned                  // A probe found its units shared; the probe hook reports the fault.
	CauseVoid                       // Its money was not on chain in time.
)

// fault reports whether the cause is the provider's fault.
func (c Cause) fault() bool { return c <= CauseDefaulted }

// Failure is why a gang was not formed.
type Failure uint8

// The failures.
const (
	GangUnfit    Failure = iota + 1 // Too few providers would fit if all were idle.
	GangShort                       // Enough fit; too few were free, answered, or reached one another.
	GangUnfunded                    // The money could not be set aside.
	GangDropped                     // CancelGang.
)

var (
	phaseNames    = []string{"", "engaging", "placing", "working", "reducing", "stopping", "settling", "ended"}
	rankNames     = []string{"", "waiting", "leased", "running", "done", "failed", "stopped"}
	activityNames = []string{"idle", "ordering", "starting", "up", "halting", "gathering", "judging", "reclaiming"}
	resultNames   = []string{"", "succeeded", "failed", "stopped"}
	codeNames     = []string{"", "program", "no_match", "payment", "timeout", "lost", "input", "verify", "peer"}
)

func nameOf[E ~uint8](names []string, e E) string {
	if int(e) < len(names) {
		return names[e]
	}
	return fmt.Sprintf("%d", uint8(e))
}

func parse[E ~uint8](names []string, text []byte, e *E) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return fmt.Errorf("%w: unknown name %.40q", ErrRecord, text)
	}
	*e = E(i)
	return nil
}

// String returns the name of the phase.
func (p Phase) String() string { return nameOf(phaseNames, p) }

// MarshalText returns the name of the phase.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the name of a phase. It returns ErrRecord for an unknown one.
func (p *Phase) UnmarshalText(text []byte) error { return parse(phaseNames, text, p) }

// String returns the name of the state.
func (r RankState) String() string { return nameOf(rankNames, r) }

// MarshalText returns the name of the state.
func (r RankState) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a state. It returns ErrRecord for an unknown one.
func (r *RankState) UnmarshalText(text []byte) error { return parse(rankNames, text, r) }

// String returns the name of the activity.
func (a Activity) String() string { return nameOf(activityNames, a) }

// String returns the name of the result.
func (r Result) String() string { return nameOf(resultNames, r) }

// MarshalText returns the name of the result.
func (r Result) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the name of a result. It returns ErrRecord for an unknown one.
func (r *Result) UnmarshalText(text []byte) error { return parse(resultNames, text, r) }

// String returns the name of the code.
func (c Code) String() string { return nameOf(codeNames, c) }

// MarshalText returns the name of the code.
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the name of a code. It returns ErrRecord for an unknown one.
func (c *Code) UnmarshalText(text []byte) error { return parse(codeNames, text, c) }
