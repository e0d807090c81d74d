package node

import (
	"context"
	"math/rand/v2"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/auditing"
	"github.com/starling-network/starling/node/service"
)

// Light is the connection of a light peer to the network, instead of discovery and gossip; see node/client.
type Light interface {
	LightMarket
	LightAudits
	LightState
	// Run keeps the peer connected until ctx ends.
	Run(ctx context.Context) error
}

// LightMarket is the market as a light peer sees it through its entry peers.
type LightMarket interface {
	// Find searches for at most most offers of a class, and checks them.
	Find(ctx context.Context, c market.Class, regions []market.Region, most int) ([]market.Offer, error)
	// Publish sends an order for gossip and returns the number of neighbours that receive it.
	Publish(ctx context.Context, o market.Order, envelope []byte) (int, error)
	// Size estimates the number of peers in the network; 0 means unknown.
	Size() int
	// Peers returns full peers that are known, beside the entries in use.
	Peers() []peer.AddrInfo
	// Carries returns the bytes that a connection to any peer carries before its relay cuts it; 0 means no known limit.
	Carries() int64
}

// LightAudits is the part of audits that a light peer cannot read from the chain.
type LightAudits interface {
	// Roster returns the set that committees of a window are drawn from.
	Roster(ctx context.Context, w auditing.Window) (auditing.Roster, error)
	// Recent returns the last two windows with an audit up to one.
	Recent(ctx context.Context, w auditing.Window) (auditing.Recent, error)
}

// LightState describes a light peer's connection to its user.
type LightState interface {
	// Entries returns the entry peers that are connected, the one in use first.
	Entries() []peer.ID
	// Warning returns a problem with them for the user and, behind "; ", its remedy; or "".
	Warning() string
	// Dials reports whether peers are dialled by their own addresses too.
	Dials() bool
}

// entries is a light peer's connection to the network, as a service and as the market of its buyer.
type entries struct{ Light }

// Name implements service.Service.
func (entries) Name() string { return api.EntriesService }

// Inform adds the entry peers to the description of the peer.
func (e entries) Inform(_ context.Context, info *api.NodeInfo) {
	info.Direct = e.Dials()
	for _, id := range e.Entries() {
		info.Entries = append(info.Entries, id.String())
	}
}

// Health implements service.Health: it returns a problem while no entry peer is connected, or one alone is trusted.
func (e entries) Health() *service.Problem {
	if len(e.Entries()) == 0 {
		return &service.Problem{
			Problem: "no entry peer is connected", Remedy: "check their addresses (--peer), and whether they run",
		}
	}
	if text, remedy, _ := strings.Cut(e.Warning(), "; "); text != "" {
		return &service.Problem{Problem: text, Remedy: remedy}
	}
	return nil
}

// Size implements buyer.Market: the size of a class is not known.
func (e entries) Size(market.Class) int { return e.Light.Size() }

// Shard implements buyer.Market. An entry publishes to the whole class if it does not reach the shard.
func (entries) Shard(market.Class) uint32 { return 1 + rand.Uint32N(market.Shards) }

// Neighbours implements buyer.Market.
func (e entries) Neighbours() []peer.AddrInfo { return e.Peers() }
