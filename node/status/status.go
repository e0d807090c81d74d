// Package status describes a peer to its user: itself, its connected peers, their reputation, and its known offers.
// Rooms add their part to the description of the peer.
package status

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/exchange"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/reputation"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/p2p"
)

// infoTimeout bounds the requests to the chain for one description.
const infoTimeout = 2 * time.Second

// Informer is a room that adds its part to the description of the peer.
type Informer interface {
	Inform(ctx context.Context, info *api.NodeInfo)
}

// Buyer is the buying loop of the peer.
type Buyer interface {
	// Open lists the peer's own jobs that have not ended, newest first.
	Open() []record.Job
	// Exchange returns the buyer's door to the market.
	Exchange() *exchange.Exchange
}

// Config is the configuration of a Status.
type Config struct {
	Host    *p2p.Host
	Key     sign.Key
	Owner   sign.Key
	Genesis market.Genesis
	Version string
	Region  string
	Private bool // the network has a pre-shared key
	Started time.Time
	Ledger  chain.Ledger
	Slots   *slots.Clock
	Buyer   Buyer
	Book    *reputation.Book
	// Rooms add their parts in order.
	Rooms []Informer
	// Health returns the problems of services that are out of order.
	Health func() []service.Problem
}

// Status describes one peer.
type Status struct{ cfg Config }

// New makes the status of a peer.
func New(cfg Config) *Status { return &Status{cfg: cfg} }

// Info describes this peer.
func (s *Status) Info(ctx context.Context) api.NodeInfo {
	c := s.cfg
	info := api.NodeInfo{
		Peer: c.Host.ID().String(), Key: c.Key, Owner: c.Owner, Version: c.Version, Genesis: c.Genesis,
		Region: c.Region, Peers: len(c.Host.Network().Peers()), Started: c.Started, ChainUp: c.Slots.Reachable(),
		Reach: s.reach(), Jobs: len(c.Buyer.Open()),
	}
	addrs, err := peer.AddrInfoToP2pAddrs(&peer.AddrInfo{ID: c.Host.ID(), Addrs: c.Host.Addrs()})
	if err == nil {
		for _, a := range addrs {
			info.Addrs = append(info.Addrs, a.String())
		}
	}
	if info.Slot, err = c.Slots.Now(time.Now()); err != nil {
		info.ChainErr = err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	if info.Balance, err = c.Ledger.Balance(ctx, c.Owner); err != nil {
		info.ChainErr = err.Error()
	}
	for _, r := range c.Rooms {
		r.Inform(ctx, &info)
	}
	info.Problems = s.Health().Problems
	return info
}

// Health returns the health of this peer.
func (s *Status) Health() api.Health {
	out := api.Health{Problems: []api.Fault{}}
	for _, p := range s.cfg.Health() {
		out.Problems = append(out.Problems, api.Fault(p))
	}
	out.Healthy = len(out.Problems) == 0
	return out
}

// Peers lists the connections of this peer.
func (s *Status) Peers() []api.PeerInfo {
	var out []api.PeerInfo
	for _, id := range s.cfg.Host.Network().Peers() {
		info := api.PeerInfo{Peer: id.String(), Conns: []api.ConnInfo{}}
		if k, err := p2p.KeyFromPeerID(id); err == nil {
			info.Key = sign.Key(k)
		}
		for _, c := range s.cfg.Host.Network().ConnsToPeer(id) {
			info.Conns = append(info.Conns, connInfo(s.cfg.Host.Describe(c)))
		}
		// The connection that carries new streams comes first: direct before relayed.
		slices.SortStableFunc(info.Conns, func(a, b api.ConnInfo) int {
			return cmp.Compare(pathOrder(a), pathOrder(b))
		})
		info.RTT = float64(s.cfg.Host.Peerstore().LatencyEWMA(id)) / float64(time.Millisecond)
		if v, err := s.cfg.Host.Peerstore().Get(id, "AgentVersion"); err == nil {
			info.Agent, _ = v.(string)
		}
		out = append(out, info)
	}
	s.rate(out)
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
func (s *Status) Offers(ctx context.Context, class string) ([]api.OfferInfo, error) {
	c := market.Class(class)
	if c != "" {
		if err := c.Check(); err != nil {
			return nil, &api.Error{Status: 400, Code: "bad_class", Message: err.Error()}
		}
	}
	out := []api.OfferInfo{}
	for _, k := range s.cfg.Buyer.Exchange().Offers(ctx, c) {
		o := k.Offer
		out = append(out, api.OfferInfo{
			Provider: o.Provider, Class: string(o.Class), Region: string(o.Region), Free: o.Units, Total: o.Total,
			PerUnit: o.PerUnit, Price: o.Price, Runtimes: o.Runtimes, Egress: o.Egress, Images: o.Images,
			Ready: o.Ready, Expires: o.Expires, Model: o.Model, Capability: o.Capability, Simulated: o.Simulated,
			Proven: o.Proven, Checked: k.Shown.Units, Doubt: k.Shown.Doubt, Operations: k.Shown.Operations,
			Reads: k.Shown.Reads, Answered: k.Fresh(time.Now()), RTT: float64(k.RTT) / float64(time.Millisecond),
		})
	}
	return out, nil
}
