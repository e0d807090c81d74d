package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
)

// Queues of orders. When a provider does not keep up, the newest orders are
// dropped: other providers heard them too.
const (
	topicQueue = 1024
	heardQueue = 256
	maxClasses = 64
	// maxHeard bounds the orders that are remembered until they expire, so that none is answered twice.
	maxHeard = 1 << 15
)

// orders is this peer's part in the gossip of orders: a topic for each class it
// sells or buys. What is heard of the class it sells goes to its provider.
type orders struct {
	g      *gossip.Gossip
	domain sign.Domain
	sells  market.Class // "" when it sells nothing
	heard  chan market.Order

	seenMu sync.Mutex
	seen   map[market.OrderID]time.Time // until when

	mu     sync.Mutex
	topics map[market.Class]*gossip.Topic[market.Order]
	ctx    context.Context
	wg     sync.WaitGroup
}

func newOrders(g *gossip.Gossip, d sign.Domain, sells market.Class) *orders {
	return &orders{g: g, domain: d, sells: sells, heard: make(chan market.Order, heardQueue), topics: map[market.Class]*gossip.Topic[market.Order]{}}
}

// decode is the topic's validator: an order is passed on only when its own
// buyer published it, it is well formed and its time has not passed.
func (o *orders) decode(from peer.ID, data []byte) (market.Order, error) {
	ord, err := market.DecodeOrder(o.domain, data, time.Now())
	switch {
	case errors.Is(err, market.ErrExpired), errors.Is(err, market.ErrNotYet):
		return ord, fmt.Errorf("%w: %w", gossip.ErrIgnore, err)
	case err != nil:
		return ord, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	key, err := p2p.KeyFromPeerID(from)
	if err != nil || sign.Key(key) != ord.Buyer {
		return ord, fmt.Errorf("%w: order of %s published by %s", gossip.ErrReject, ord.Buyer.Short(), from)
	}
	if !o.first(ord, time.Now()) {
		return ord, fmt.Errorf("%w: order %s: %w", gossip.ErrIgnore, ord.ID.Short(), market.ErrReplayed)
	}
	return ord, nil
}

// first says whether an order is heard for the first time: one that its buyer
// publishes again is neither passed on nor answered again.
func (o *orders) first(ord market.Order, now time.Time) bool {
	o.seenMu.Lock()
	defer o.seenMu.Unlock()
	if o.seen == nil {
		o.seen = map[market.OrderID]time.Time{}
	}
	if _, again := o.seen[ord.ID]; again {
		return false
	}
	if len(o.seen) >= maxHeard {
		for id, until := range o.seen {
			if now.After(until) {
				delete(o.seen, id)
			}
		}
		if len(o.seen) >= maxHeard { // a flood; the limits of each buyer hold all the same
			return true
		}
	}
	// A clock may be behind by as much as orders allow.
	o.seen[ord.ID] = ord.Expires.Add(market.MaxClockSkew)
	return true
}

// join takes part in the topic of a class, once.
func (o *orders) join(c market.Class) (*gossip.Topic[market.Order], error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t := o.topics[c]; t != nil {
		return t, nil
	}
	if len(o.topics) >= maxClasses {
		return nil, fmt.Errorf("joining the orders of class %s: at most %d classes at a time", c, maxClasses)
	}
	t, err := gossip.Join(o.g, "orders/"+string(c), o.decode, topicQueue)
	if err != nil {
		return nil, err
	}
	o.topics[c] = t
	o.wg.Go(func() { o.listen(c, t) })
	return t, nil
}

// listen hands on what is heard of the class that is sold and drops the rest.
func (o *orders) listen(c market.Class, t *gossip.Topic[market.Order]) {
	for {
		m, err := t.Next(o.ctx)
		if err != nil {
			return
		}
		if c != o.sells {
			continue
		}
		select {
		case o.heard <- m.Data:
		default:
		}
	}
}

// next gives the next order heard.
func (o *orders) next(ctx context.Context) (market.Order, error) {
	select {
	case <-ctx.Done():
		return market.Order{}, ctx.Err()
	case ord := <-o.heard:
		return ord, nil
	}
}

// publish sends an order to its class's topic and says how many neighbours take part in it.
func (o *orders) publish(ctx context.Context, ord market.Order, envelope []byte) (int, error) {
	t, err := o.join(ord.Class)
	if err != nil {
		return 0, err
	}
	return len(t.Peers()), t.Publish(ctx, envelope)
}

func (o *orders) close() {
	o.mu.Lock()
	for _, t := range o.topics {
		_ = t.Close()
	}
	o.mu.Unlock()
	o.wg.Wait()
}
