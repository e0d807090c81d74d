package verify

import (
	"fmt"

	"github.com/starling-network/starling/market"
)

// Rule names one rule that a signed object must keep. The words are stable: programs compare them.
type Rule string

// The rules, one sentence each.
const (
	RuleDomain      Rule = "domain"      // An escrow is named exactly where an escrow program is in use.
	RuleLease       Rule = "lease"       // It speaks of this lease.
	RuleParties     Rule = "parties"     // Provider and buyer are the lease's.
	RuleUnits       Rule = "units"       // The units are the lease's.
	RuleRankEpoch   Rule = "rank-epoch"  // The rank epoch is the lease's.
	RuleSupervision Rule = "supervision" // Supervision epochs never go down.
	RuleSeq         Rule = "seq"         // Numbers go up by one, from 1.
	RulePrev        Rule = "prev"        // Each receipt carries the hash of the one before, the first the lease's id.
	// A receipt begins where the one before ended, the first within start and activate-before.
	RuleFrom Rule = "from"
	// A receipt ends after it begins, at most at the lease's end; only a final one may be empty.
	RuleTo         Rule = "to"
	RuleAmount     Rule = "amount"             // The amount follows from the rate for these slots.
	RuleCumulative Rule = "cumulative"         // The cumulative amount follows from the rate since the first slot.
	RuleCap        Rule = "cap"                // No amount exceeds the lease's cap.
	RuleHorizon    Rule = "horizon"            // No slot beyond the lease's end is paid.
	RuleFinal      Rule = "final"              // A final receipt or voucher is the last one.
	RuleProvider   Rule = "provider-signature" // The provider signed it.
	RuleBuyer      Rule = "buyer-signature"    // The buyer signed it.
	RuleKeySet     Rule = "key-set"            // The key set is the lease's or the job's.
	RuleThreshold  Rule = "threshold"          // Enough different keys of the set signed.
	RuleSignature  Rule = "signature"          // Every signature that is there verifies.
	RuleMajority   Rule = "majority"           // Only more than half of the guardians may name a supervisor.
	RuleEmpty      Rule = "empty"              // The chain is not empty.
	RuleDifferent  Rule = "different"          // The two receipts belong to different leases.
	RuleOverlap    Rule = "overlap"            // The two receipts share a slot.
)

// RuleError is the rule that an object breaks, with details.
type RuleError struct {
	Rule   Rule
	Detail string
	Err    error // the cause, a sign error; may be nil
}

// Error names the rule and the detail.
func (e *RuleError) Error() string { return fmt.Sprintf("rule %s: %s", e.Rule, e.Detail) }

// Unwrap gives the cause.
func (e *RuleError) Unwrap() error { return e.Err }

func broken(rule Rule, format string, args ...any) *RuleError {
	return &RuleError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
}

// ChainError is the receipt of a chain that breaks a rule, and the rule.
type ChainError struct {
	Seq uint64 // the receipt's place in the chain, from 1, regardless of its own number
	RuleError
}

// Error names the receipt, the rule and the detail.
func (e *ChainError) Error() string { return fmt.Sprintf("receipt %d: %s", e.Seq, e.RuleError.Error()) }

func malformed(what, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", market.ErrMalformed, what, fmt.Sprintf(format, args...))
}
