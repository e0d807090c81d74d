package selling

import (
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/sealed"
)

// Keys is the keys of a seller's executions, made from the peer's own.
type Keys struct {
	Key sign.Private
	Tag string // of the network
}

// Member returns the key of a hold in its cluster's overlay.
func (k Keys) Member(h market.HoldID) cluster.PrivateKey { return cluster.MemberKey(k.Key, h) }

// Open opens a box that a buyer sealed to this peer for a lease.
func (k Keys) Open(box []byte, l market.LeaseID) ([]byte, error) {
	return sealed.Open(k.Key, protocol.LeaseSecrets(k.Tag, l), box)
}
