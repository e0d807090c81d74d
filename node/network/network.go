// Package network is how a full peer meets others: by offers and roles in the DHT, by gossip, and at distances that
// network coordinates estimate. The market stands on it.
package network

import (
	"context"
	"errors"
	"log/slog"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/coords"
	"github.com/starling-network/starling/node/exchange"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/discovery"
	"github.com/starling-network/starling/p2p/gossip"
)

// verifiers is the topic under which peers that judge are found.
const verifiers = "verifier"

// Config is the configuration of a Room.
type Config struct {
	Host    *p2p.Host
	Genesis market.Genesis
	Key     sign.Key
	Store   store.Store
	// Values are the proofs in the DHT.
	Values discovery.Values
	// Registered is optional; if nil, the DHT is the only source of providers.
	Registered func(context.Context) ([]peer.ID, error)
	Log        *slog.Logger
}

// Room is the peer's part in the network.
type Room struct {
	DHT      *discovery.Discovery
	Gossip   *gossip.Gossip
	Coords   *coords.Service
	Exchange *exchange.Exchange // nil before Trade
	cfg      Config
	services service.List
}

// Open joins the DHT and gossip.
func Open(ctx context.Context, cfg Config) (r *Room, err error) {
	r = &Room{cfg: cfg}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.services.Close())
		}
	}()
	tag := cfg.Genesis.Tag()
	r.DHT, err = discovery.New(cfg.Host, discovery.Config{
		Network: tag, Values: []discovery.Values{cfg.Values}, Registered: cfg.Registered, Logger: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	r.services.Add(dht{r.DHT})
	cfg.Host.FindWith(r.DHT.Where)
	gctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.services.Add(topics{cancel})
	if r.Gossip, err = gossip.New(gctx, cfg.Host, gossip.Config{Network: tag, Logger: cfg.Log}); err != nil {
		return nil, err
	}
	of := coords.Config{Host: cfg.Host, Network: tag, Store: cfg.Store, Log: cfg.Log.With("role", "coords")}
	if r.Coords, err = coords.New(ctx, of); err != nil {
		return nil, err
	}
	r.services.Add(service.Loop("coordinates", r.Coords.Run))
	return r, nil
}

// Services returns the services of the room, in order of dependence.
func (r *Room) Services() []service.Service { return service.With[service.Service](&r.services) }

// Trade makes the exchange of a peer in a region that sells units of some classes. judges means that the peer announces
// itself as a verifier. The exchange is a service too.
func (r *Room) Trade(region string, sells []market.Class, judges bool) service.Service {
	cfg := exchange.Config{
		Host: r.cfg.Host, Gossip: r.Gossip, Discovery: r.DHT, Genesis: r.cfg.Genesis, Key: r.cfg.Key, Region: region,
		Sells: sells, Log: r.cfg.Log,
	}
	if judges {
		cfg.Roles = append(cfg.Roles, verifiers)
	}
	r.Exchange = exchange.New(cfg)
	return r.Exchange
}

// Verifiers returns at most most peers that judge.
func (r *Room) Verifiers(ctx context.Context, most int) ([]peer.AddrInfo, error) {
	return r.DHT.Hints(ctx, discovery.Topic{Class: verifiers}, most)
}

// dht is the peer's part in the DHT as a service.
type dht struct{ *discovery.Discovery }

// Name implements service.Service.
func (dht) Name() string { return "discovery" }

// topics is the peer's part in gossip as a service. The topics are left before.
type topics struct{ stop context.CancelFunc }

// Name implements service.Service.
func (topics) Name() string { return "gossip" }

// Run implements service.Service.
func (topics) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close ends the gossip.
func (t topics) Close() error { t.stop(); return nil }
