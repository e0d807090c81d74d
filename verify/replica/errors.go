package replica

import (
	"errors"
	"fmt"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/verify"
)

var (
	// ErrTerms: a check cannot work with such terms.
	ErrTerms = errors.New("replica: bad terms")
	// ErrState: the journalled state is invalid.
	ErrState = errors.New("replica: bad state")
	// ErrEvent: the event cannot happen in this state.
	ErrEvent = errors.New("replica: unexpected event")
)

// Rules of evidence, beside those of receipts.
const (
	RuleOutput  verify.Rule = "output"  // The output that a receipt names is this work's with this result.
	RuleEnded   verify.Rule = "ended"   // Every receipt is the final one of its lease.
	RuleApart   verify.Rule = "apart"   // Every receipt is by another provider.
	RuleDissent verify.Rule = "dissent" // Two results differ.
)

func broken(rule verify.Rule, format string, args ...any) error {
	return &verify.RuleError{Rule: rule, Detail: fmt.Sprintf(format, args...)}
}

func malformed(what, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", market.ErrMalformed, what, fmt.Sprintf(format, args...))
}
