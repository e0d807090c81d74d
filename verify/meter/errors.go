package meter

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/verify"
)

var (
	// ErrTerms: the terms cannot be metered; no work may start under them.
	ErrTerms = errors.New("meter: bad terms")
	// ErrState: bytes are not a journalled state of this machine, or of another lease.
	ErrState = errors.New("meter: not a state of this lease")
)

// Rules of metering, beside those of verify.
const (
	// A receipt may be proposed only after its last slot, by the payer's clock and the skew. Try again.
	RuleEarly    verify.Rule = "early"
	RuleInterval verify.Rule = "interval"  // A receipt covers exactly one interval; a final one at most that.
	RuleStart    verify.Rule = "start"     // The seller starts when the payer does, give or take the skew.
	RuleUsage    verify.Rule = "usage"     // No more CPU time than the units have.
	RuleUnpaid   verify.Rule = "unpaid"    // A receipt stays within the last voucher's payment.
	RuleConflict verify.Rule = "conflict"  // The seller signs one receipt per number.
	RuleOver     verify.Rule = "over"      // No receipt is co-signed after the lease is settled.
	RuleNotBegun verify.Rule = "not-begun" // No receipt is co-signed before the payer has started.
)

// UnexpectedEvent reports that an event belongs to the other machine or cannot happen in this state. It is a
// programming error of the shell, and no peer can cause it.
type UnexpectedEvent struct {
	State string
	Event Event
}

// Error names state and event.
func (e *UnexpectedEvent) Error() string {
	return fmt.Sprintf("meter: %T in state %s", e.Event, e.State)
}
