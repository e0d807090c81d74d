package audit

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
)

// Rule names one rule that a record must keep. The words are stable: programs compare them.
type Rule string

// The rules, one sentence each.
const (
	RuleWindow    Rule = "window"    // All parts are of one window, the expected one.
	RuleBeacon    Rule = "beacon"    // The beacon is the hash of the window's first final block.
	RuleUnit      Rule = "unit"      // Everything is of one unit of one provider.
	RuleAttempt   Rule = "attempt"   // A window has at most MaxAttempts attempts.
	RuleNonce     Rule = "nonce"     // The first nonce is derived from the second, and that from the third.
	RuleSeed      Rule = "seed"      // Seeds are made of the beacon and the nonces of all members that gave a verdict.
	RuleShape     Rule = "shape"     // The question is that of the unit's class.
	RuleProvider  Rule = "provider"  // The provider signed its answer and its openings.
	RuleOpenings  Rule = "openings"  // The drawn entries are shown, under the root, and right.
	RuleWalk      Rule = "walk"      // The drawn walkers are shown, under the root, and arrived where the walk leads.
	RuleVerdict   Rule = "verdict"   // Verdicts are signed by different members, of this answer.
	RuleCommittee Rule = "committee" // The beacon draws the members from the bonded set.
	RuleMajority  Rule = "majority"  // More than two thirds of the committee passed it.
	RuleTime      Rule = "time"      // Times run forward and are possible.
	RuleFloor     Rule = "floor"     // The unit reaches the floor of its class.
	RuleFresh     Rule = "fresh"     // A unit is sold by a record of one of the last two windows with an audit.
	RuleDifferent Rule = "different" // Two answers to one question differ.
	RuleTruth     Rule = "truth"     // The statement in a proof of a lie is false.
	RuleCard      Rule = "card"      // A unit shows which card it claims to be, and no other claimed it before.
	RuleInstant   Rule = "instant"   // An attempt is of a window with an audit, and begins at its instant.
	RuleAnchor    Rule = "anchor"    // The record is under the root that is anchored.
)

// RuleError is the rule that a record or a proof breaks, with details.
type RuleError struct {
	Rule   Rule
	Detail string
	Err    error // the cause; may be nil
}

// Error names the rule and the detail.
func (e *RuleError) Error() string { return fmt.Sprintf("rule %s: %s", e.Rule, e.Detail) }

// Unwrap gives the cause.
func (e *RuleError) Unwrap() error { return e.Err }

// IsRule reports whether an error is a breach of a rule.
func IsRule(err error, rule Rule) bool {
	var e *RuleError
	return errors.As(err, &e) && e.Rule == rule
}

func broken(rule Rule, format string, args ...any) *RuleError {
	return &RuleError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
}

func because(rule Rule, err error) *RuleError {
	return &RuleError{Rule: rule, Detail: err.Error(), Err: err}
}

// ErrRoster means that no committee can be drawn: the set has a peer twice, or too few peers have a bond that is old
// enough.
var ErrRoster = errors.New("invalid roster")

func malformed(what, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", market.ErrMalformed, what, fmt.Sprintf(format, args...))
}
