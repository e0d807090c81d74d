package exchange

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/rates"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/gossip"
)

const (
	// topicQueue bounds the waiting orders of one topic. The newest are dropped: other providers received them too.
	topicQueue = 1024
	// maxClasses bounds the classes with joined topics. The topic of a class that is not sold here is left after
	// classIdle without orders, or earlier if there are too many topics and it is idle for longest.
	maxClasses = 64
	classIdle  = 15 * time.Minute
	// publishWait bounds an order's wait for the first neighbour in its topic.
	publishWait = 5 * time.Second
	// shardNetworks is the minimum number of networks of a shard's neighbours. With fewer, an order goes to the class's
	// topic.
	shardNetworks = 3
	// shardHints is how many peers of a class must be known before those of this peer's shard are met: where there
	// are fewer, no order is a shard's.
	shardHints = 128
	// staleOrder is how long after its end an order may still be passed on by an honest neighbour: a message on its
	// way, and a clock that is behind.
	staleOrder = 30*time.Second + market.MaxClockSkew
)

// Limits on the orders that one peer publishes for light clients, and on the orders of one light client: per second,
// and at once. The orders of an entry peer (node/entry) stay below.
const (
	relayedPerEntry, relayedEntryBurst = entry.MaxOrders * 4 / 3, 100
	relayedPerBuyer, relayedBuyerBurst = 4, 20
	maxRelays                          = 4096
)

// orders is this peer's part in the gossip of orders. It joins a topic for each class and family that it sells or buys,
// and its shard's topic for each that it sells. Orders for sold classes go to its provider. Each topic maintains
// connections to a few peers with offers of the class in the DHT.
type orders struct {
	g      *gossip.Gossip
	hints  hinter
	domain sign.Domain
	sells  map[market.Class]bool // classes and their families
	shard  uint32                // this peer's
	heard  *fair

	entries *rates.Limiter[peer.ID]  // orders published for others, by publisher
	clients *rates.Limiter[sign.Key] // and by buyer

	latest atomic.Int64 // when the last order arrived, Unix nanoseconds

	seen heard

	handed handed

	mu     sync.Mutex
	topics map[market.Class]*joined
	ctx    context.Context
	wg     sync.WaitGroup
}

// handed is the orders of light clients that are being published.
type handed struct {
	mu sync.Mutex
	m  map[market.OrderID]peer.ID // the client of each
}

func (h *handed) add(o market.OrderID, client peer.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[market.OrderID]peer.ID{}
	}
	h.m[o] = client
}

func (h *handed) remove(o market.OrderID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.m, o)
}

// by returns the client of an order.
func (h *handed) by(o market.OrderID) (peer.ID, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	client, ok := h.m[o]
	return client, ok
}

// hinter looks up peers that may sell a class.
type hinter = func(ctx context.Context, c market.Class, most int) ([]peer.AddrInfo, error)

// joined is a topic that this peer has joined.
type joined struct {
	*gossip.Topic[market.Order]
	meeting *gossip.Meeting
	leave   context.CancelFunc
	used    time.Time // when the last order was published; orders.mu

	part  *gossip.Topic[market.Order]     // that of this peer's shard, where the class is sold; else nil
	hints atomic.Pointer[[]peer.AddrInfo] // the last ones of the class
}

func newOrders(g *gossip.Gossip, d sign.Domain, shard uint32, sells []market.Class, hints hinter) *orders {
	topics := map[market.Class]bool{}
	for _, c := range sells {
		topics[c], topics[c.Family()] = true, true
	}
	return &orders{
		g: g, hints: hints, domain: d, sells: topics, shard: shard, heard: newFair(),
		entries: rates.New[peer.ID](relayedPerEntry, relayedEntryBurst, maxRelays),
		topics:  map[market.Class]*joined{},
		clients: rates.New[sign.Key](relayedPerBuyer, relayedBuyerBurst, maxRelays),
	}
}

// decode is the topic's validator. It accepts an order that is well formed, signed by its buyer, new and not expired. A
// peer that forwards a long expired order is penalised, because its own validator refuses it. An order published by
// another peer, for a light client, must also be within the limits of that peer and of its buyer. Beyond them it is
// ignored and not rejected, because a forwarding peer has other counts.
func (o *orders) decode(from, via peer.ID, data []byte) (market.Order, error) {
	return o.decodeOf(0, from, via, data)
}

// decodeOf is decode for a shard's topic, which has the orders of that shard alone.
func (o *orders) decodeOf(shard uint32, from, via peer.ID, data []byte) (market.Order, error) {
	now := time.Now()
	ord, err := market.DecodeOrder(o.domain, data, now)
	switch {
	case errors.Is(err, market.ErrExpired) && now.Sub(ord.Expires) < staleOrder,
		errors.Is(err, market.ErrNotYet) && ord.Expires.Sub(now) < market.MaxOrderValidity+staleOrder:
		return ord, fmt.Errorf("%w: %w", gossip.ErrIgnore, err)
	case err != nil:
		return ord, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	key, err := p2p.KeyFromPeerID(from)
	if err != nil {
		return ord, fmt.Errorf("%w: %w", gossip.ErrReject, err)
	}
	if shard != 0 && ord.Shard != shard {
		return ord, fmt.Errorf("%w: an order of shard %d in the topic of shard %d", gossip.ErrReject, ord.Shard, shard)
	}
	if o.seen.has(ord.ID) {
		return ord, fmt.Errorf("%w: order %s: %w", gossip.ErrIgnore, ord.ID.Short(), market.ErrReplayed)
	}
	if sign.Key(key) != ord.Buyer && !(o.entries.Allow(from, now) && o.clients.Allow(ord.Buyer, now)) {
		return ord, fmt.Errorf("%w: too many orders are published by %s for others, or for %s", gossip.ErrIgnore, from,
			ord.Buyer.Short())
	}
	if client, ok := o.handed.by(ord.ID); ok {
		via = client
	}
	if !o.seen.first(ord, via, now) {
		return ord, fmt.Errorf("%w: order %s: %w", gossip.ErrIgnore, ord.ID.Short(), market.ErrReplayed)
	}
	o.latest.Store(now.UnixNano())
	return ord, nil
}

// join joins the topic of a class, once.
func (o *orders) join(c market.Class) (*joined, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if j := o.topics[c]; j != nil {
		j.used = time.Now()
		return j, nil
	}
	if len(o.topics) >= maxClasses && !o.leaveOldest() {
		return nil, fmt.Errorf("joining the orders of class %s: at most %d classes at a time", c, maxClasses)
	}
	t, err := gossip.JoinVia(o.g, "orders/"+string(c), o.decode, topicQueue)
	if err != nil {
		return nil, err
	}
	j := &joined{Topic: t, used: time.Now()}
	if o.sells[c] {
		if j.part, err = o.joinShard(c); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	j.meeting = t.Meet(func(ctx context.Context, most int) ([]peer.AddrInfo, error) {
		hints, err := o.hints(ctx, c, most)
		j.hints.Store(&hints)
		return hints, err
	})
	var ctx context.Context
	ctx, j.leave = context.WithCancel(o.ctx)
	o.topics[c] = j
	o.wg.Go(func() { o.listen(c, t) })
	o.wg.Go(func() { _ = j.meeting.Run(ctx) }) // has no error
	if j.part != nil {
		o.wg.Go(func() { o.listen(c, j.part) })
		m := j.part.Meet(func(context.Context, int) ([]peer.AddrInfo, error) { return o.inShard(j.hints.Load()), nil })
		o.wg.Go(func() { _ = m.Run(ctx) }) // has no error
	}
	if !o.stays(c) {
		o.wg.Go(func() { o.leaveIdle(ctx, c, j) })
	}
	return j, nil
}

// stays reports whether the topic of a class is never left: it is sold here, or it is the common topic.
func (o *orders) stays(c market.Class) bool { return o.sells[c] || c == common }

// leaveIdle leaves a topic when nothing was published there for a while.
func (o *orders) leaveIdle(ctx context.Context, c market.Class, j *joined) {
	t := time.NewTimer(classIdle)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		o.mu.Lock()
		rest := classIdle - time.Since(j.used)
		if rest <= 0 {
			o.drop(c)
		}
		o.mu.Unlock()
		if rest <= 0 {
			return
		}
		t.Reset(rest)
	}
}

// leaveOldest leaves the topic that is idle for longest, if one may be left. o.mu is held.
func (o *orders) leaveOldest() bool {
	var oldest market.Class
	for c, j := range o.topics {
		if !o.stays(c) && (oldest == "" || j.used.Before(o.topics[oldest].used)) {
			oldest = c
		}
	}
	if oldest == "" {
		return false
	}
	o.drop(oldest)
	return true
}

// drop leaves the topic of a class. o.mu is held.
func (o *orders) drop(c market.Class) {
	j := o.topics[c]
	delete(o.topics, c)
	j.leave()
	_ = j.Close() // the rest is undone with the gossip
	if j.part != nil {
		_ = j.part.Close()
	}
}

// joinSold joins the topics of all sold classes.
func (o *orders) joinSold() error {
	for c := range o.sells {
		if _, err := o.join(c); err != nil {
			return err
		}
	}
	return nil
}

// listen hands on the orders for classes that are sold and drops the rest.
func (o *orders) listen(c market.Class, t *gossip.Topic[market.Order]) {
	for {
		m, err := t.Next(o.ctx)
		if err != nil {
			return
		}
		if !o.sells[c] {
			continue
		}
		o.heard.put(m.Via, m.Data)
	}
}

// way returns where quotes for an order go.
func (o *orders) way(id market.OrderID) (replies.Way, bool) { return o.seen.way(id, time.Now()) }

// publish sends an order to its shard's topic, or its class's, and returns the number of neighbours in it. If there is
// none, it first searches for one.
func (o *orders) publish(ctx context.Context, ord market.Order, envelope []byte) (int, error) {
	j, err := o.join(ord.Class)
	if err != nil {
		return 0, err
	}
	if n, sent, err := o.toShard(ctx, j, ord, envelope); sent || err != nil {
		return n, err
	}
	wctx, cancel := context.WithTimeout(ctx, publishWait)
	defer cancel()
	n := j.meeting.Wait(wctx)
	return n, j.Publish(ctx, envelope)
}

// publishFor publishes the order of a light client, to which its quotes go.
func (o *orders) publishFor(ctx context.Context, client peer.ID, ord market.Order, envelope []byte) (int, error) {
	o.handed.add(ord.ID, client)
	defer o.handed.remove(ord.ID)
	return o.publish(ctx, ord, envelope)
}

// neighbours returns the number of connected peers in the topic of a class. It reports false if this peer has not
// joined it.
func (o *orders) neighbours(c market.Class) (int, bool) {
	o.mu.Lock()
	j := o.topics[c]
	o.mu.Unlock()
	if j == nil {
		return 0, false
	}
	return len(j.Peers()), true
}

func (o *orders) close() {
	o.mu.Lock()
	for c := range o.topics {
		o.drop(c)
	}
	o.mu.Unlock()
	o.wg.Wait()
}
