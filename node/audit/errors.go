package audit

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/p2p/stream"
)

var (
	// ErrCommittee means that fewer members than must pass a record can be reached.
	ErrCommittee = errors.New("too few members of the committee can be reached")
	// ErrMember means that a member that had given a nonce gave nothing more: the attempt is void.
	ErrMember = errors.New("a member of the committee left the audit")
	// ErrInstant means that the window's audits have begun without this peer, or that it does not know when they do.
	ErrInstant = errors.New("the instant at which this window's audits begin has passed")
	// ErrUnits means that there is nothing to audit, too much, or a unit twice.
	ErrUnits = errors.New("units that cannot be audited together")
	// ErrNotPassed means that the committee did not pass a unit.
	ErrNotPassed = errors.New("the committee did not pass the unit")
)

// Codes of refusals.
const (
	CodeWindow  = "window"  // another window, or another beacon
	CodeDrawn   = "drawn"   // this peer is not to judge that one
	CodeInstant = "instant" // before or after the instant at which the window's attempts begin
	CodeAttempt = "attempt" // too many attempts, or an attempt that was already begun
	CodeUnits   = "units"   // the question does not match the units
	CodeOrder   = "order"   // a step that is not due
	CodeMembers = "members" // members or nonces that are not those of the attempt
	CodeAnswer  = "answer"  // an answer to something else
	CodeUnknown = "unknown" // no such attempt, or no such record
)

func refuse(code, format string, args ...any) error {
	return stream.Refuse(code, fmt.Sprintf(format, args...))
}

func malformed(format string, args ...any) error {
	return &stream.Malformed{Reason: fmt.Sprintf(format, args...)}
}
