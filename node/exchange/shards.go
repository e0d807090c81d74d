package exchange

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
)

// shardTopic is the topic of the orders of a class that are for one shard of its providers.
func shardTopic(c market.Class, shard uint32) string { return fmt.Sprintf("orders-%d/%s", shard, c) }

// joinShard joins the topic of this peer's shard of a class.
func (o *orders) joinShard(c market.Class) (*gossip.Topic[market.Order], error) {
	return gossip.JoinVia(o.g, shardTopic(c, o.shard), func(from, via peer.ID, data []byte) (market.Order, error) {
		return o.decodeOf(o.shard, from, via, data)
	}, topicQueue)
}

// inShard returns the hints of a class in this peer's shard. It needs no request: a peer's key determines its shard.
func (o *orders) inShard(class *[]peer.AddrInfo) (out []peer.AddrInfo) {
	if class == nil || len(*class) < shardHints {
		return nil
	}
	for _, p := range *class {
		if key, err := p2p.KeyFromPeerID(p.ID); err == nil && match.ShardOf(sign.Key(key)) == o.shard {
			out = append(out, p)
		}
	}
	return out
}

// shardFor chooses at random among the shards of a class with topics that this peer reaches. It returns 0 if there is
// none.
func (o *orders) shardFor(c market.Class) uint32 {
	var reached []uint32
	for s := uint32(1); s <= market.Shards; s++ {
		if o.reaches(shardTopic(c, s)) {
			reached = append(reached, s)
		}
	}
	if len(reached) == 0 {
		return 0
	}
	return reached[rand.IntN(len(reached))]
}

// reaches reports whether this peer has neighbours enough in the topic of a shard: keys are free, and those of one
// network count as one.
func (o *orders) reaches(topic string) bool { return o.g.NetworksOf(topic) >= shardNetworks }

// toShard sends an order to the topic of its shard. It is not sent where it has none, or that is not reached: in the
// class's topic the same providers answer it.
func (o *orders) toShard(
	ctx context.Context, j *joined, ord market.Order, envelope []byte,
) (neighbours int, sent bool, _ error) {
	if ord.Shard == 0 {
		return 0, false, nil
	}
	topic := shardTopic(ord.Class, ord.Shard)
	if !o.reaches(topic) {
		return 0, false, nil
	}
	neighbours = len(o.g.PeersOf(topic))
	if j.part != nil && ord.Shard == o.shard {
		return neighbours, true, j.part.Publish(ctx, envelope)
	}
	if _, err := o.decode(o.g.Self(), o.g.Self(), envelope); err != nil {
		return 0, false, err // as the topic's own decoder would
	}
	return neighbours, true, o.g.Send(ctx, topic, envelope)
}
