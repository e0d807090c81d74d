package node

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/audit"
	rules "github.com/starling-network/starling/verify/audit"
)

// newBurns is nil where nothing burns, so that nobody is excused.
func (n *Node) newBurns() audit.Burns {
	if n.payments == nil {
		return nil
	}
	return audit.OnChain{Network: n.network, Payments: n.payments}
}

// funded is where the money of a lease of this peer's units lies.
func (n *Node) funded(id market.LeaseID) (rules.Funded, bool) {
	f, ok := n.provider.Funded(id)
	return rules.Funded{Opened: f.Opened, Tranche: f.Tranche, Index: f.Index, Buyer: f.Buyer, Order: f.Order, Proof: f.Proof}, ok
}
