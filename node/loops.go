package node

import (
	"context"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/selling"
	"github.com/starling-network/starling/p2p"
)

// newProvider makes the selling loop of this peer's units.
func (n *Node) newProvider(ctx context.Context, lots []provider.Lot) (*provider.Provider, error) {
	c := n.p.Config.Provide
	policy, err := c.Policy()
	if err != nil {
		return nil, err
	}
	policy.Clusters = n.p.Config.Clusters.Policy()
	policy.Blocked = func(buyer sign.Key) bool {
		_, blocked := n.blocks.Blocked(buyer, block.Buyer)
		return blocked
	}
	reach, _, err := n.p.Config.Egress.Policy()
	if err != nil {
		return nil, err
	}
	networks := n.p.Networks
	if networks == nil && n.p.Host.Overlay() != nil {
		networks = n.networks
	}
	return provider.New(ctx, provider.Config{
		Escrows: n.given.sold,
		Host:    n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Owner: n.p.Owner,
		Lots: lots, Policy: policy, Devices: n.devices, Network: reach.Mode, Region: market.Region(n.p.Config.Region),
		MinSlots: n.p.Genesis.SlotsIn(c.MinTime), MaxSlots: n.p.Genesis.SlotsIn(c.MaxTime),
		Store: n.p.Store, Blobs: n.p.Blobs, Files: n.files, Runtimes: n.p.Runtimes, Slots: n.slots,
		Dir: n.p.Home, Version: n.p.Version, Log: n.p.Log.With("role", "provider"),
		Market: lessor{n}, Filed: n.receipts.file, Reputation: n.reputation,
		Keys:    selling.Keys{Key: n.p.Key, Tag: n.tag},
		HoldTTL: holdTTL, Retain: c.Retain, RetainBytes: int64(c.RetainMiB) << 20,
		Networks: networks, Coordinate: n.net.Coords.Coordinate,
	})
}

// lessor is the node as its provider's market.
type lessor struct{ n *Node }

func (r lessor) Offer(ctx context.Context, offers []market.Offer, envelopes [][]byte) error {
	return r.n.net.Exchange.Offer(ctx, offers, envelopes)
}
func (r lessor) Order(ctx context.Context) (market.Order, error) { return r.n.net.Exchange.Next(ctx) }
func (r lessor) Reply(o market.Order, quote, offer []byte) error {
	return r.n.replies.Send(o, quote, offer)
}

const (
	// holdTTL is how long units are held for a buyer that does not return.
	holdTTL = 10 * time.Second
	// lostIntervals is the number of metering intervals after which a silent provider is lost, but at least
	// lostAtLeast.
	lostIntervals = 3
	lostAtLeast   = 3 * time.Second
	// maxOutput bounds one output that a buyer takes, bytes.
	maxOutput = 64 << 30
)

// newBuyer makes the buying loop.
func (n *Node) newBuyer(ctx context.Context) (*buyer.Buyer, error) {
	interval := time.Duration(n.p.Genesis.IntervalSlots*n.p.Genesis.SlotMillis) * time.Millisecond
	limits, err := n.p.Config.Buy.Limits.Amounts(n.p.Genesis.Decimals)
	if err != nil {
		return nil, err
	}
	registries, err := n.p.Config.Docker.Reader()
	if err != nil {
		return nil, err
	}
	return buyer.New(ctx, buyer.Config{
		Escrows: n.given.bought, Stakes: n.chain, Guardian: n.given.guardian, Market: n.given.market,
		Carries: n.given.carries, Filed: n.receipts.file, Blocks: n.p.Blocks(), Disputes: n.proofs,
		Reputation: seen{n.reputation, n}, Weights: n.p.Config.Buy.Weights(n.p.Genesis), Proofs: n.given.proofs,
		Host: n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Owner: n.p.Owner, Store: n.p.Store,
		Blobs: n.p.Blobs, Files: n.files,
		Runtimes: n.p.Runtimes, Slots: n.slots, Dir: n.p.Home,
		Registries: registries, Limits: limits, PrivateHook: n.p.Config.Buy.Webhooks.Private,
		Boxes:       sealed.Boxes{Key: n.p.Key, Network: n.p.Genesis.Tag()},
		Blocked:     func(p sign.Key) (string, bool) { return n.blocks.Blocked(p, block.Provider) },
		QuoteWindow: n.p.Config.Buy.QuoteWindow, MaxJobs: n.p.Config.Buy.MaxJobs, MaxAsked: n.p.MaxAsked,
		LostAfter: max(lostIntervals*interval, lostAtLeast), MaxOutput: maxOutput, Log: n.p.Log.With("role", "buyer"),
	})
}

// seen is the reputation that the buyer reports lost providers to.
type seen struct {
	*reputation.Book
	n *Node
}

// Failed blames a provider only while this peer is connected to another one: else it is most likely cut off itself.
func (s seen) Failed(c market.LeaseCore, lost market.Amount) {
	for _, id := range s.n.p.Host.Network().Peers() {
		if k, err := p2p.KeyFromPeerID(id); err == nil && sign.Key(k) != c.Provider {
			s.Book.Failed(c, lost)
			return
		}
	}
}
