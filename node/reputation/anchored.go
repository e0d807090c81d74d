package reputation

import (
	"context"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/verify"
	"github.com/starling-network/starling/verify/reputation"
)

// ProgramAnchors reads the anchor that a final transaction had the network's program make; a *solana.Ledger.
type ProgramAnchors interface {
	AnchorIn(ctx context.Context, id chain.TxID) (program.Anchored, error)
}

// ProgramAnchor reads what receipts a final transaction had the network's program anchor. chain.ErrNotFound, the ledger's errors.
func ProgramAnchor(ctx context.Context, c ProgramAnchors, tx chain.TxID) (chain.Commitment, error) {
	a, err := c.AnchorIn(ctx, tx)
	return chain.Commitment{Anchor: chain.Anchor{Of: chain.OfReceipts, Root: a.Root, Count: a.Count}, Slot: market.Slot(a.Slot), By: a.Authority}, err
}

// keptBy are the facts of a receipt, about its provider and about its buyer.
func keptBy(of [2]sign.Key, r verify.Receipt) (out [2]reputation.Fact) {
	for role, subject := range of {
		out[role] = reputation.Fact{ID: sign.Hash(r.Lease), Kind: reputation.Kept, Role: reputation.Role(role), Subject: subject, Rater: of[1-role],
			Value: r.Cumulative, At: r.To}
	}
	return out
}

// Source says by what a fact can be checked.
type Source struct {
	Receipt sign.Hash  `json:"receipt,omitzero"` // verify.Receipt.SignedHash of the last receipt that was read of the lease
	Record  sign.Hash  `json:"record,omitzero"`  // of the audit
	Tx      chain.TxID `json:"tx,omitempty"`     // that anchors it
}
