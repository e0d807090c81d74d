package proof

import (
	"context"
	"errors"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/node/reputation"
)

// CheckReceipt asks the chain whether an anchored receipt of others is anchored where it says. Errors: *BrokenRule, ErrChain.
func CheckReceipt(ctx context.Context, c Chain, a chain.Testimony) error {
	where := "transaction " + string(a.In.Tx)
	on, err := reputation.ProgramAnchor(ctx, c, a.In.Tx)
	switch {
	case errors.Is(err, chain.ErrMalformed):
		return broken(RuleAnchor, where, err)
	case err != nil:
		return unread(where, err)
	}
	if err := a.CheckOn(on); err != nil {
		return broken(RuleAnchor, where, err)
	}
	return nil
}
