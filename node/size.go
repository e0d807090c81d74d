package node

import (
	"context"
	"math/rand/v2"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/replies"
)

// way returns where quotes for an order go: to this peer's user, or to the neighbour that the order came from.
func (n *Node) way(o market.OrderID) (replies.Way, bool) {
	if leases, ok := n.buyer.Exchange().Asks(o); ok {
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
	return n.buyer.Exchange().TakeQuote(via, o, box)
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

type (
	finder    = func(ctx context.Context, c market.Class, regions []market.Region, most int) ([]market.Offer, error)
	publisher = func(ctx context.Context, o market.Order, envelope []byte) (int, error)
)

// buyerMarket is the market as this peer's buyer reaches it: by discovery and gossip, or through a light peer's entries.
type buyerMarket struct {
	n       *Node
	find    finder
	publish publisher
}

// Publish gossips an order and returns the number of neighbours in its topic.
func (m buyerMarket) Publish(ctx context.Context, o market.Order, envelope []byte) (int, error) {
	return m.publish(ctx, o, envelope)
}

// Find looks for at most so many offers of a class.
func (m buyerMarket) Find(
	ctx context.Context, c market.Class, regions []market.Region, most int,
) ([]market.Offer, error) {
	return m.find(ctx, c, regions, most)
}

// Size estimates how many peers take part in a class.
func (m buyerMarket) Size(c market.Class) int { return m.n.sizeOf(c) }

// Shard chooses the shard of an order of a class.
func (m buyerMarket) Shard(c market.Class) uint32 { return m.n.shardFor(c) }
