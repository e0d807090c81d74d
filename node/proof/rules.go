package proof

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/audit"
)

// ErrChain is returned if the chain cannot be read, so that the anchors are unverified.
var ErrChain = errors.New("asking the chain")

// Rules of a whole proof, beside those of its parts.
const (
	RuleGenesis verify.Rule = "genesis"          // The network's facts are well formed.
	RuleSigned  verify.Rule = "lease-signatures" // Both have signed the lease.
	RuleOrder   verify.Rule = "order"            // Leases are in the order of the anchor, each once.
	RuleBuyer   verify.Rule = "one-buyer"        // All leases have the same buyer.
	RuleOwed    verify.Rule = "owed"             // The voucher covers the receipts, and a final one exactly.
	RuleSum     verify.Rule = "sum"              // The total of all leases fits 64 bits.
	RuleAnchor  verify.Rule = "anchor"           // Every anchoring transaction commits to exactly these receipts.
	RuleLanded  verify.Rule = "landed"           // Every anchoring transaction is final on chain.
	RuleReceipt verify.Rule = "receipt"          // A receipt of others is anchored, signed by both, and about the peer.
	RuleProbe   verify.Rule = "probe"            // A probe's parts belong together and are signed.
)

// BrokenRule is the rule that a proof breaks, with the place.
type BrokenRule struct {
	Rule  verify.Rule
	Where string // "lease 1a2b3c4d", "transaction …", or empty
	Err   error
}

func (e *BrokenRule) Error() string {
	text := fmt.Sprintf("rule %s is broken", e.Rule)
	if e.Where != "" {
		text += " by " + e.Where
	}
	return text + ": " + e.Err.Error()
}

func (e *BrokenRule) Unwrap() error { return e.Err }

// broken names the rule of err if it has one, else the given rule.
func broken(rule verify.Rule, where string, err error) error {
	if e, ok := errors.AsType[*verify.ChainError](err); ok {
		return &BrokenRule{e.Rule, where, fmt.Errorf("receipt %d: %s", e.Seq, e.Detail)}
	}
	if e, ok := errors.AsType[*verify.RuleError](err); ok {
		return &BrokenRule{e.Rule, where, errors.New(e.Detail)}
	}
	if e, ok := errors.AsType[*audit.RuleError](err); ok {
		return &BrokenRule{verify.Rule(e.Rule), where, errors.New(e.Detail)}
	}
	return &BrokenRule{rule, where, err}
}

// named wraps an error that names a rule as a BrokenRule, and returns any other as it is.
func named(err error) error {
	_, ofVerify := errors.AsType[*verify.RuleError](err)
	_, ofAudit := errors.AsType[*audit.RuleError](err)
	if ofVerify || ofAudit {
		return broken("", "", err)
	}
	return err
}
