package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	libp2p "github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/anchored"
	"github.com/starling-network/starling/node/buyer/copies"
	"github.com/starling-network/starling/node/buyer/guardian/wards"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/files"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/money"
	"github.com/starling-network/starling/node/replies"
	"github.com/starling-network/starling/node/rewards"
	"github.com/starling-network/starling/node/sealed"
	"github.com/starling-network/starling/node/selling"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify"
)

// sell composes the selling loop.
func (n *Node) sell(ctx context.Context) (err error) {
	if n.provider, err = n.newProvider(ctx, n.lots); err != nil {
		return fmt.Errorf("setting up the provider: %w", err)
	}
	n.seller = selling.New(n.provider, n.gpus, n.p.Genesis.Decimals)
	n.user.Operator, n.user.Shelf, n.user.Leases = n.seller, n.seller, n.seller
	n.given.units, n.given.earner = n.provider, n.provider
	n.services.Add(n.seller)
	n.proofs.Offered = n.provider.Shown
	if n.gpus.Sold() {
		n.services.Add(inventory.NewWatch(n.gpus, n.provider.Withdraw))
	}
	n.files.Need("lease", n.seller.Blobs)
	return nil
}

// govern composes the watch of the network's rules, which change by vote.
func (n *Node) govern(context.Context) error {
	n.services.Add(n.chain.Rules())
	return nil
}

// buy composes the buying loop.
func (n *Node) buy(ctx context.Context) (err error) {
	if n.buyer, err = n.newBuyer(ctx); err != nil {
		return fmt.Errorf("setting up the buyer: %w", err)
	}
	n.files.Serve(n.buyer)
	n.files.Need(files.NeedJob, n.buyer.Blobs)
	n.copies = copies.New(copies.Config{
		Self: n.p.Key.Key(), Store: n.p.Store, Boxes: sealed.Boxes{Key: n.p.Key, Network: n.p.Genesis.Tag()},
		Jobs: n.buyer, Files: n.files, Parts: files.Parts{Host: n.p.Host, Network: n.tag},
		Log: n.p.Log.With("role", "buyer"),
	})
	n.files.Need("copy", n.copies.Blobs)
	n.services.Add(service.Loop("buyer", n.buyer.Run), service.Loop("copies", n.copies.Run))
	return nil
}

// earn composes the view of the peer's money.
func (n *Node) earn(context.Context) error {
	n.money = money.New(n.p.Program, n.buyer, n.given.earner, n.p.Genesis.Decimals)
	n.services.Add(n.money)
	return nil
}

// watch composes the guardian's loop, which hands jobs to the buyer, and the claims of its wages.
func (n *Node) watch(ctx context.Context) error {
	n.guardian.HandTo(n.buyer)
	n.services.Add(service.Loop("guardian", n.guardian.Run))
	return n.money.Guards(ctx, money.Guarding{
		Guardian: n.guardian, Genesis: n.p.Genesis, Self: n.p.Key.Key(), Chain: n.p.Program, Network: n.network,
		Params: n.p.Escrow, When: n.given.sold.When, Slots: n.slots, Store: n.p.Store,
		Log: n.p.Log.With("role", "guardian"),
	})
}

// anchor composes the exchange of receipts that peers anchored on the chain.
func (n *Node) anchor(ctx context.Context) error {
	p := n.p
	room, err := anchored.New(ctx, anchored.Config{
		Host: p.Host, Genesis: p.Genesis, Key: p.Key.Key(), Store: p.Store, Ledger: p.Ledger, Slots: n.slots,
		Anchor: n.proofs.AnchorIn, Book: n.reputation, Buyer: n.buyer, Busy: n.net.Exchange.Busy,
		Audits: n.given.audits, Log: p.Log.With("role", "reputation"),
	})
	if err != nil {
		return fmt.Errorf("setting up anchored receipts: %w", err)
	}
	n.services.Add(room)
	return nil
}

// receipts is the list of rooms that receive receipts of the peer's leases.
type receipts []func(market.Lease, []market.UnitID, verify.Receipt)

func (r *receipts) add(room func(market.Lease, []market.UnitID, verify.Receipt)) {
	*r = append(*r, room)
}

// file passes a receipt to the rooms.
func (r *receipts) file(l market.Lease, units []market.UnitID, of verify.Receipt) {
	for _, file := range *r {
		file(l, units, of)
	}
}

// quotes is the ways of quotes, for package replies.
type quotes struct{ *Node }

// way returns where quotes for an order go: to this peer's user, or to the neighbour that the order came from.
func (n quotes) way(o market.OrderID) (replies.Way, bool) {
	if w, ok := n.own(o); ok {
		return w, true
	}
	return n.net.Exchange.Way(o)
}

// own returns where quotes for an order of this peer's user go.
func (n quotes) own(o market.OrderID) (replies.Way, bool) {
	leases, ok := n.buyer.Exchange().Asks(o)
	return replies.Way{To: n.p.Host.ID(), Leases: leases}, ok
}

// take passes a quote to this peer's user.
func (n quotes) take(via peer.ID, o market.OrderID, box []byte) error {
	return n.buyer.Exchange().TakeQuote(via, o, box)
}

// guardPolicy returns the policy of the section about guarding.
func guardPolicy(c config.Config) wards.Policy {
	g := c.Guard
	return wards.Policy{
		Accept: g.Accept, MaxJobs: g.MaxJobs, ShareMillionths: uint32(g.Share * 1e6), MaxBytes: int64(g.MaxMiB) << 20,
		Longest: g.Longest,
	}
}

// guard composes the guarding of others' jobs, for which guardians are paid from escrows. The guardian runs behind
// the buyer.
func (n *Node) guard(ctx context.Context) (err error) {
	n.guardian, err = wards.New(ctx, wards.Config{
		Host: n.p.Host, Genesis: n.p.Genesis, Key: n.p.Key, Payout: n.p.Owner, Policy: guardPolicy(n.p.Config),
		Store: n.p.Store, Slots: n.slots, Files: n.files, Log: n.p.Log.With("role", "guardian"),
		Unseal: func(p sealed.Purpose, box []byte) ([]byte, error) { return sealed.Open(n.p.Key, p, box) },
		Backed: func(ctx context.Context, w wards.Ward, state []byte) error { return n.money.Backed(ctx, w, state) },
	})
	if err != nil {
		return fmt.Errorf("setting up the guardian: %w", err)
	}
	n.user.Guards, n.given.guardian = guarded{n.guardian, n.p.Key.Key()}, n.guardian
	n.files.Need("guarded job", func() (map[cid.Cid]bool, error) { return n.guardian.Blobs(), nil })
	return nil
}

// reward composes this peer's part in rewards, if the chain pays any.
func (n *Node) reward(context.Context) error {
	c, ok := n.p.Program.(rewards.Chain)
	if !ok || n.chain.Registry() == nil {
		return nil
	}
	window := time.Duration(n.p.Genesis.AuditOneIn*n.p.Genesis.AuditSlots*n.p.Genesis.SlotMillis) * time.Millisecond
	room := rewarded{rewards.New(rewards.Config{
		Genesis: n.p.Genesis, Key: n.p.Key.Key(), Chain: rewards.Listed(c, n.chain.Registry()), Sight: n.facts.Public,
		Store: n.p.Store, Peers: rewards.Streams{Host: n.p.Host, Tag: n.tag},
		Records: n.audits.Records, Wards: n.guardian.Escrows, Every: min(max(window/4, rewardsLeast), rewardsEvery),
		Log: n.p.Log.With("role", "rewards"),
	})}
	n.user.Rewards = room
	open := func() (service.Door, error) { return room.Handle(n.p.Host, n.tag), nil }
	n.services.Add(service.Behind(service.Loop("rewards", room.Run), open))
	return nil
}

// enter composes the market of a light peer: its entry peers replace DHT and gossip.
func (n *Node) enter(context.Context) error {
	n.replies = replies.New(replies.Config{
		Host: n.p.Host, Network: n.tag, Way: quotes{n}.own, Take: quotes{n}.take, Log: n.p.Log,
	})
	n.services.Add(entries{n.p.Light}, service.Loop("replies", n.replies.Run))
	n.given.market, n.given.carries = entries{n.p.Light}, n.p.Light.Carries
	return nil
}

// serve composes the service for light clients. Circuits for them are a part of the host's relay.
func (n *Node) serve(context.Context) error {
	cfg := entry.Config{
		Genesis: n.p.Genesis, Market: n.net.Exchange, Audits: n.given.facts, RPC: n.p.RPC, Log: n.p.Log,
		Others: func() []peer.AddrInfo { return otherEntries(n.p.Host, n.tag) },
		Limits: n.p.Config.Entry.Limits(),
		Slot: func() (market.Slot, bool) {
			slot, err := n.slots.Now(time.Now())
			return slot, err == nil && n.slots.Reachable()
		},
	}
	n.services.Add(service.Behind(service.Loop("clients", wait), func() (service.Door, error) {
		s, err := entry.Serve(n.p.Host, cfg)
		if err != nil {
			return nil, fmt.Errorf("serving light clients: %w", err)
		}
		return s, nil
	}))
	return nil
}

// otherEntries returns connected peers that serve light clients too and carry circuits for them, in random order.
func otherEntries(h *p2p.Host, tag string) []peer.AddrInfo {
	var out []peer.AddrInfo
	peers := h.Network().Peers()
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	for _, p := range peers {
		if len(out) == entry.MaxOthers {
			break
		}
		serves, err := h.Peerstore().SupportsProtocols(p, libp2p.ID(entry.FindID(tag)), proto.ProtoIDv2Hop)
		if err == nil && len(serves) == 2 {
			out = append(out, h.Peerstore().PeerInfo(p))
		}
	}
	return out
}
