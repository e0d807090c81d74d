package node

import (
	"context"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/evidence"
)

// newEvidence makes the part that publishes leases and keeps proofs of double sale.
func (n *Node) newEvidence(ctx context.Context) (*evidence.Keeper, error) {
	return evidence.Open(ctx, evidence.Config{
		Genesis: n.p.Genesis, Self: n.p.Key.Key(), Store: n.p.Store, Log: n.p.Log.With("role", "evidence"),
		Slot: func() (market.Slot, error) { return n.slots.Now(time.Now()) }, Heard: n.reputation.Heard, Proved: n.reputation.SoldTwice,
	})
}

// Evidence is what publishes leases and keeps proofs of double sale; nil for a light peer.
func (n *Node) Evidence() *evidence.Keeper { return n.evidence }

// proofs is Evidence for the local API, or nothing at all.
func (n *Node) proofs() api.Evidence {
	if n.evidence == nil {
		return nil
	}
	return n.evidence
}
