package node

import (
	"context"
	"maps"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/protocol"
	"github.com/starling-network/starling/node/provider"
	"github.com/starling-network/starling/node/sealed"
)

// newProvider makes the selling loop of what this peer has.
func (n *Node) newProvider(ctx context.Context, lots []provider.Lot) (*provider.Provider, error) {
	c := n.p.Config.Provide
	policy, err := c.policy()
	if err != nil {
		return nil, err
	}
	policy.Clusters = provider.Clusters{No: !n.p.Config.Clusters.Accept, MaxMembers: n.p.Config.Clusters.MaxMembers}
	policy.Blocked = func(buyer sign.Key) bool {
		_, blocked := n.blocks.Blocked(buyer, block.Buyer)
		return blocked
	}
	var escrows *provider.Escrows
	if n.network != nil {
		when, err := c.Claim.when(n.p.Genesis)
		if err != nil {
			return nil, err
		}
		escrows = &provider.Escrows{Chain: n.p.Program, Network: n.network, Params: n.p.Escrow, Fees: n.p.Config.Solana.Fees.bids(), When: when, WaitFunded: c.StartWhen == StartFunded}
	}
	reach, _, err := n.p.Config.egress()
	if err != nil {
		return nil, err
	}
	networks := n.networks()
	var overlay func(market.HoldID) cluster.PrivateKey
	if networks != nil {
		overlay = func(h market.HoldID) cluster.PrivateKey { return cluster.MemberKey(n.p.Key, h) }
	}
	return provider.New(ctx, provider.Config{
		Escrows: escrows,
		Host:    n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Owner: n.p.Owner,
		Lots: lots, Policy: policy, AllowImage: policy.Images.Check, Devices: n.gpus.devices, Vacate: n.kept.vacate, Health: n.health, Network: reach.Mode, Region: market.Region(n.p.Config.Region),
		MinSlots: n.p.Genesis.SlotsIn(c.MinTime), MaxSlots: n.p.Genesis.SlotsIn(c.MaxTime),
		Store: n.p.Store, Blobs: n.p.Blobs, Fetch: n.fetch, Grant: n.grants.add, Runtimes: n.p.Runtimes, Slots: n.slots,
		Dir: n.p.Home, Version: n.p.Version, Log: n.p.Log.With("role", "provider"),
		Offered: n.offered, Filed: n.filed, Reputation: n.reputation, Orders: n.orders.next, Reply: n.replies.Send,
		HoldTTL: holdTTL, Retain: c.Retain, RetainBytes: int64(c.RetainMiB) << 20, Drop: n.drop,
		Unseal: n.unseal, Networks: networks, Overlay: overlay, Coordinate: n.coords.Coordinate,
	})
}

const (
	// holdTTL is how long units are set aside for a buyer that does not come back.
	holdTTL = 10 * time.Second
	// lostIntervals is how many metering intervals a silent provider is waited for, but not less than lostAtLeast.
	lostIntervals = 3
	lostAtLeast   = 3 * time.Second
	// maxOutput bounds one output that a buyer takes, bytes.
	maxOutput = 64 << 30
)

// newBuyer makes the buying loop, which sees the market by find and publish.
func (n *Node) newBuyer(ctx context.Context, find finder, publish publisher) (*buyer.Buyer, error) {
	interval := time.Duration(n.p.Genesis.IntervalSlots*n.p.Genesis.SlotMillis) * time.Millisecond
	limits, err := n.p.Config.Buy.Limits.amounts(n.p.Genesis.Decimals)
	if err != nil {
		return nil, err
	}
	var carries func() int64
	peers := n.neighbours
	if n.p.Light != nil {
		carries, peers = n.p.Light.Carries, n.p.Light.Peers
	}
	blocks, _ := n.p.Ledger.(chain.Blocks)
	var escrows *buyer.Escrows
	var bond func(context.Context, sign.Key) (sign.Key, market.Amount, error)
	var stake func(context.Context, sign.Key) (market.Amount, error)
	if n.network != nil {
		stake, bond = n.stake, n.bond
		when := escrow.When{}
		if n.guardian != nil {
			if when, err = n.p.Config.Provide.Claim.when(n.p.Genesis); err != nil {
				return nil, err
			}
		}
		escrows = &buyer.Escrows{Chain: n.p.Program, Network: n.network, Params: n.p.Escrow, Fees: n.p.Config.Solana.Fees.bids(), When: when}
	}
	return buyer.New(ctx, buyer.Config{
		Escrows: escrows, Guardian: n.guardian, Stake: stake, Peers: peers,
		Carries: carries, Filed: n.filed, Blocks: blocks, Bond: bond, Dissent: n.evidence.KeepDissent, Reputation: seen{n.reputation, n}, Weights: n.weights(), Proofs: n.newProofs(),
		Host: n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Owner: n.p.Owner, Store: n.p.Store,
		Blobs: n.p.Blobs, Fetch: n.fetch, Grant: n.grants.add, Runtimes: n.p.Runtimes, Slots: n.slots, Dir: n.p.Home,
		Uploaded: func(key string, c cid.Cid) bool { return n.p.Blobs.Brought(c, keyHolder(key)) },
		Market:   buyerMarket{n, find, publish}, Limits: limits, PrivateHook: n.p.Config.Buy.Webhooks.Private,
		Unseal:      func(p sealed.Purpose, box []byte) ([]byte, error) { return sealed.Open(n.p.Key, p, box) },
		Blocked:     func(p sign.Key) (string, bool) { return n.blocks.Blocked(p, block.Provider) },
		QuoteWindow: n.p.Config.Buy.QuoteWindow, MaxJobs: n.p.Config.Buy.MaxJobs, MaxAsked: n.p.MaxAsked,
		LostAfter: max(lostIntervals*interval, lostAtLeast), MaxOutput: maxOutput, Log: n.p.Log.With("role", "buyer"),
	})
}

// neighbours are the peers that this one is connected to.
func (n *Node) neighbours() []peer.AddrInfo {
	var out []peer.AddrInfo
	for _, id := range n.p.Host.Network().Peers() {
		out = append(out, n.p.Host.Peerstore().PeerInfo(id))
	}
	return out
}

// unseal opens what a buyer sealed to this peer for a lease.
func (n *Node) unseal(box []byte, l market.LeaseID) ([]byte, error) {
	return sealed.Open(n.p.Key, protocol.LeaseSecrets(n.tag, l), box)
}

// collectEvery is how often the store of blobs is looked at: whether it, or the disk, is nearly full.
const collectEvery = 15 * time.Second

// collect removes blobs that nobody needs while the disk is nearly full.
func (n *Node) collect(ctx context.Context) error {
	every := time.NewTicker(collectEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		removed, err := n.p.Blobs.Collect(n.needed)
		if err != nil {
			n.p.Log.Warn("blobs that nobody needs cannot be removed", "err", err)
		}
		if removed > 0 {
			n.p.Log.Info("blobs that nobody needs were removed: the disk, or the store, was nearly full", "bytes", removed)
		}
	}
}

// needed are the blobs that this peer's part in anything needs.
func (n *Node) needed() (map[cid.Cid]bool, error) {
	out, err := n.buyer.Blobs()
	if err != nil {
		return nil, err
	}
	if n.provider != nil {
		maps.Copy(out, n.provider.Blobs())
	}
	if n.guardian != nil {
		maps.Copy(out, n.guardian.Blobs())
	}
	return out, nil
}

// drop gives a blob back that the selling side does not need any more, unless a job of this peer's own has it.
func (n *Node) drop(c cid.Cid) {
	if n.buyer.Uses(c) {
		return
	}
	if err := n.p.Blobs.Remove(c); err != nil {
		n.p.Log.Warn("a blob that nobody needs cannot be removed", "cid", c, "err", err)
	}
}
