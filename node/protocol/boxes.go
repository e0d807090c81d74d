package protocol

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/sealed"
)

// QuoteBox is the purpose of the box with a quote and the offer behind it (marketpb.Quoted), for the order's buyer.
// network is the genesis tag.
func QuoteBox(network string, o market.OrderID) sealed.Purpose {
	return sealed.Purpose{Network: network, What: "quote", ID: o.String()}
}

// LeaseSecrets is the purpose of the box with the secrets of a workload (nodepb.Secrets): the provider of a lease, and
// no other lease. network is the genesis tag.
func LeaseSecrets(network string, l market.LeaseID) sealed.Purpose {
	return sealed.Purpose{Network: network, What: "lease", ID: l.String()}
}
