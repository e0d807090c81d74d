package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/p2p"
)

// infoTimeout bounds what describing this peer may ask of the chain.
const infoTimeout = 2 * time.Second

// Info describes this peer.
func (n *Node) Info(ctx context.Context) api.NodeInfo {
	key := n.p.Key.Key()
	info := api.NodeInfo{
		Peer: n.p.Host.ID().String(), Key: key, Owner: n.p.Owner, Version: n.p.Version, Genesis: n.p.Genesis,
		Region: n.p.Config.Region, Peers: len(n.p.Host.Network().Peers()), Started: n.started, ChainUp: n.slots.Reachable(),
	}
	addrs, err := peer.AddrInfoToP2pAddrs(&peer.AddrInfo{ID: n.p.Host.ID(), Addrs: n.p.Host.Addrs()})
	if err == nil {
		for _, a := range addrs {
			info.Addrs = append(info.Addrs, a.String())
		}
	}
	info.Reach = n.reach()
	if n.p.Light != nil {
		info.Direct = n.p.Light.Dials()
		info.Warning = n.p.Light.Warning()
		for _, e := range n.p.Light.Entries() {
			info.Entries = append(info.Entries, e.String())
		}
	}
	info.Program = n.code.Load()
	info.Slot, err = n.slots.Now(time.Now())
	if err != nil {
		info.ChainErr = err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	if info.Balance, err = n.p.Ledger.Balance(ctx, n.p.Owner); err != nil {
		info.ChainErr = err.Error()
	}
	if n.p.Program != nil {
		if f, err := n.p.Program.Funds(ctx); err == nil {
			info.Funds = &f
		}
	}
	if n.provider != nil {
		info.Units, info.FreeUnits = n.provider.Units()
		info.Inventory = n.provider.Inventory()
		if s := n.provider.Status(); s.Reason != "" {
			info.Warning = "nothing is sold: " + s.Reason
		}
	}
	info.Earnings = n.earnings()
	info.Jobs = len(n.buyer.Open())
	return info
}

// earnings sums up what came from escrows, for work and for guarding.
func (n *Node) earnings() *api.Earnings {
	if n.network == nil {
		return nil
	}
	var out api.Earnings
	add := func(a settle.Account) {
		out.Earned, out.Claimed, out.Lost = out.Earned+a.Owed, out.Claimed+a.Claimed, out.Lost+a.Lost
	}
	if n.provider != nil {
		for _, a := range n.provider.Accounts() {
			add(a)
		}
	}
	for _, a := range n.buyer.Wages() {
		add(a)
		out.Wages += a.Claimed
	}
	if n.provider == nil && out == (api.Earnings{}) {
		return nil
	}
	out.Unclaimed = out.Earned - min(out.Earned, out.Claimed+out.Lost)
	return &out
}

// Peers lists the connections of this peer.
func (n *Node) Peers() []api.PeerInfo {
	var out []api.PeerInfo
	for _, id := range n.p.Host.Network().Peers() {
		info := api.PeerInfo{Peer: id.String(), Conns: []api.ConnInfo{}}
		if k, err := p2p.KeyFromPeerID(id); err == nil {
			info.Key = sign.Key(k)
		}
		for _, c := range n.p.Host.Network().ConnsToPeer(id) {
			info.Conns = append(info.Conns, connInfo(n.p.Host.Describe(c)))
		}
		// The one that carries what is new comes first: direct before relayed.
		slices.SortStableFunc(info.Conns, func(a, b api.ConnInfo) int { return cmp.Compare(pathOrder(a), pathOrder(b)) })
		info.RTT = float64(n.p.Host.Peerstore().LatencyEWMA(id)) / float64(time.Millisecond)
		if v, err := n.p.Host.Peerstore().Get(id, "AgentVersion"); err == nil {
			info.Agent, _ = v.(string)
		}
		out = append(out, info)
	}
	n.rate(out)
	return out
}

func pathOrder(c api.ConnInfo) int {
	if c.Path == string(p2p.PathRelayed) {
		return 1
	}
	return 0
}

// Offers lists the offers of a class or family that can be found, probed just now; "" means all that are known, and
// those of the families of every peer.
func (n *Node) Offers(ctx context.Context, class string) ([]api.OfferInfo, error) {
	c := market.Class(class)
	if c != "" {
		if err := c.Check(); err != nil {
			return nil, &api.Error{Status: 400, Code: "bad_class", Message: err.Error()}
		}
	}
	out := []api.OfferInfo{}
	for _, k := range n.buyer.Exchange().Offers(ctx, c) {
		o := k.Offer
		out = append(out, api.OfferInfo{
			Provider: o.Provider, Class: string(o.Class), Region: string(o.Region), Free: o.Units, Total: o.Total, PerUnit: o.PerUnit,
			Price: o.Price, Runtimes: o.Runtimes, Egress: o.Egress, Images: o.Images, Expires: o.Expires,
			Model: o.Model, Capability: o.Capability, Simulated: o.Simulated,
			Proven: o.Proven, Checked: k.Shown.Units, Doubt: k.Shown.Doubt, Operations: k.Shown.Operations, Reads: k.Shown.Reads,
			Answered: k.Fresh(time.Now()), RTT: float64(k.RTT) / float64(time.Millisecond),
		})
	}
	return out, nil
}

// Leases lists what this peer has sold.
func (n *Node) Leases() []api.SoldLease {
	out := []api.SoldLease{}
	if n.provider == nil {
		return out
	}
	accounts := n.provider.Accounts()
	for _, s := range n.provider.Sold() {
		r, paid := s.Record, accounts[s.Record.Lease]
		out = append(out, api.SoldLease{
			Lease: r.Lease, Hold: r.ID.String(), Buyer: r.Buyer, State: r.State.String(), Units: len(r.Units), Rank: r.Rank,
			Class: r.Class, Model: s.Lot.Model, Simulated: s.Lot.Simulated,
			Receipts: s.Receipts, Earned: s.Earned, Reason: r.EndReason,
			Escrow: r.Escrow, Unfunded: r.FundBy > 0, Claimed: paid.Claimed, Lost: paid.Lost,
		})
	}
	return out
}
