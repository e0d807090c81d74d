// Package exchange is the market of a full peer: orders over gossip, and offers in the DHT.
//
//	buyer ── Publish ──▸ topic of a class, or of a shard of it ──▸ Next ── provider
//	buyer ◂──── Find ─── DHT ◂─────────────────────────────────── Offer ── provider
//
// Each class has a topic, and each shard of its providers another one. A peer joins the topics of the classes that it
// sells, and for a while the topics of classes that it buys. Orders of a topic are checked before they are forwarded:
// signed, timely, not seen before, and within limits if another peer than the buyer published them.
package exchange

import (
	"context"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/match"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/p2p/gossip"
)

// common is the class of processors: every peer joins its topic.
const common market.Class = "cpu"

// orderTime is the time that an order is in flight after its receipt.
const orderTime = 3 * time.Second

// Config is the parts of an exchange.
type Config struct {
	Host      *p2p.Host
	Gossip    *gossip.Gossip
	Discovery *discovery.Discovery
	Genesis   market.Genesis
	Key       sign.Key
	// Region is the peer's region, under which its roles are found.
	Region string
	// Sells are the classes of the peer's offers.
	Sells []market.Class
	// Roles are topics of the DHT under which the peer is found beside the classes of its offers.
	Roles []string
	Log   *slog.Logger
}

// Exchange is a peer's part in the market. It is a service: it is in its topics from Start to Close.
type Exchange struct {
	cfg    Config
	orders *orders
}

// New returns an exchange. It joins no topic yet.
func New(cfg Config) *Exchange {
	x := &Exchange{cfg: cfg}
	x.orders = newOrders(cfg.Gossip, cfg.Genesis.Domain(), match.ShardOf(cfg.Key), cfg.Sells, x.hints)
	return x
}

// Name implements service.Service.
func (*Exchange) Name() string { return "exchange" }

// Start joins the topics of the sold classes, and the topic of processors, as every peer does.
func (x *Exchange) Start(ctx context.Context) error {
	x.orders.ctx = ctx
	if _, err := x.orders.join(common); err != nil {
		return err
	}
	return x.orders.joinSold()
}

// Run waits for ctx. Each topic has its own goroutine.
func (*Exchange) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close leaves all topics.
func (x *Exchange) Close() error {
	x.orders.close()
	return nil
}

// Next returns the next order of a class that is sold. The neighbours that passed orders on have turns.
func (x *Exchange) Next(ctx context.Context) (market.Order, error) { return x.orders.heard.take(ctx) }

// Way returns where quotes for an order go: to the neighbour that the order came from. It reports false for an order
// that was not received recently, and for the peer's own.
func (x *Exchange) Way(id market.OrderID) (replies.Way, bool) {
	w, ok := x.orders.way(id)
	return w, ok && w.To != x.cfg.Host.ID()
}

// Publish sends an order to its shard's topic, or else its class's, and returns the number of neighbours in it.
func (x *Exchange) Publish(ctx context.Context, o market.Order, envelope []byte) (int, error) {
	return x.orders.publish(ctx, o, envelope)
}

// PublishFor publishes the order of a light client, to which its quotes go.
func (x *Exchange) PublishFor(ctx context.Context, client peer.ID, o market.Order, envelope []byte) (int, error) {
	return x.orders.publishFor(ctx, client, o, envelope)
}

// Shard returns a shard for an order of a class, in which this peer has neighbours, or 0 if there is none.
func (x *Exchange) Shard(c market.Class) uint32 { return x.orders.shardFor(c) }

// Busy reports whether an order arrived in the last seconds. Deferrable work waits then.
func (x *Exchange) Busy() bool { return time.Since(time.Unix(0, x.orders.latest.Load())) < orderTime }

// Peers estimates the size of the network: by distances in the DHT, and not less than the connected peers.
func (x *Exchange) Peers() int {
	return max(x.cfg.Discovery.Size(), len(x.cfg.Host.Network().Peers())+1)
}

// Size estimates the number of peers in a class, including this one: of the others, the neighbours' share.
func (x *Exchange) Size(c market.Class) int {
	size, all := x.Peers(), len(x.cfg.Host.Network().Peers())
	of, ok := x.orders.neighbours(c)
	if !ok || all == 0 {
		return size
	}
	return max(((size-1)*of+all-1)/all, of) + 1
}

// Neighbours returns the peers that this one is connected to.
func (x *Exchange) Neighbours() []peer.AddrInfo {
	var out []peer.AddrInfo
	for _, id := range x.cfg.Host.Network().Peers() {
		out = append(out, x.cfg.Host.Peerstore().PeerInfo(id))
	}
	return out
}

var (
	descDropped = prometheus.NewDesc("starling_orders_dropped_total",
		"Orders received over gossip and dropped because this peer's provider was busy.", nil, nil)
	descFlood = prometheus.NewDesc("starling_gossip_dropped_total",
		"Messages over the limits of a neighbour or network.", nil, nil)
)

// Describe implements prometheus.Collector.
func (*Exchange) Describe(ch chan<- *prometheus.Desc) {
	ch <- descDropped
	ch <- descFlood
}

// Collect implements prometheus.Collector.
func (x *Exchange) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(descDropped, prometheus.CounterValue, float64(x.orders.heard.lost()))
	ch <- prometheus.MustNewConstMetric(descFlood, prometheus.CounterValue, float64(x.cfg.Gossip.Stats().Flood))
}
