package node

import (
	"math/rand/v2"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/replies"
)

// way returns where quotes for an order go: to this peer's user, or to the neighbour that the order came from.
func (n *Node) way(o market.OrderID) (replies.Way, bool) {
	if leases, ok := n.buyer.Asks(o); ok {
		return replies.Way{To: n.p.Host.ID(), Leases: leases}, true
	}
	if n.orders == nil {
		return replies.Way{}, false
	}
	w, ok := n.orders.way(o)
	return w, ok && w.To != n.p.Host.ID()
}

// takeQuote hands a quote to this peer's user.
func (n *Node) takeQuote(via peer.ID, o market.OrderID, box []byte) error {
	return n.buyer.TakeQuote(via, o, box)
}

// size is about how many peers the network has: as many as the DHT's distances say, and those that are connected at
// least.
func (n *Node) size() int { return max(n.discovery.Size(), len(n.p.Host.Network().Peers())+1) }

// sizeOf is about how many peers take part in a class: of all, the part of the neighbours that does.
func (n *Node) sizeOf(c market.Class) int {
	if n.p.Light != nil {
		return n.p.Light.Size()
	}
	size, all := n.size(), len(n.p.Host.Network().Peers())
	of, ok := n.orders.neighbours(c)
	if !ok || all == 0 {
		return size
	}
	return max(size*of/all, of)
}

// shardFor is the shard of an order of a class: one that this peer has neighbours in, 0 where there is none. What a light client's entry
// cannot reach, it publishes to the whole class.
func (n *Node) shardFor(c market.Class) uint32 {
	if n.p.Light != nil {
		return 1 + rand.Uint32N(market.Shards)
	}
	return n.orders.shardFor(c)
}
