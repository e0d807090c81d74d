package proof

import (
	"context"
	"errors"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/reputation"
)

// CheckReceipt asks the chain whether an anchored receipt of others is anchored where it says. Errors: *BrokenRule, ErrChain.
func CheckReceipt(ctx context.Context, c Chain, g market.Genesis, a chain.Testimony) error {
	where := "transaction " + string(a.In.Tx)
	on, err := anchorOf(ctx, c, g, a.In.Tx)
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

// anchorOf reads what receipts a final transaction anchors: by the network's program, or in its memo where it settles directly.
func anchorOf(ctx context.Context, c Chain, g market.Genesis, tx chain.TxID) (chain.Commitment, error) {
	if g.Program.IsZero() {
		return reputation.MemoAnchor(ctx, c, tx)
	}
	return reputation.ProgramAnchor(ctx, c, tx)
}
