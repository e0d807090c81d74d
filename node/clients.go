package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/proto"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/verify/audit"
)

// serveClients begins to serve light clients. Circuits for them are the host's relay's part.
func (n *Node) serveClients() (*entry.Server, error) {
	c := n.p.Config.Entry
	return entry.Serve(n.p.Host, entry.Config{
		Genesis: n.p.Genesis, Publish: n.orders.publishFor, Peers: func() uint32 { return uint32(n.size()) }, RPC: n.p.RPC, Others: n.entries, Log: n.p.Log,
		Roster: n.tellRoster(), Recent: n.tellRecent(),
		Limits: entry.Limits{Finds: c.Finds, Orders: c.Orders, Calls: c.Calls},
		Find: func(ctx context.Context, c market.Class, regions []market.Region, most int) ([][]byte, error) {
			found, err := n.look(ctx, c, regions, most)
			out := make([][]byte, 0, len(found))
			for _, f := range found {
				out = append(out, f.envelope)
			}
			return out, err
		},
		Slot: func() (market.Slot, bool) {
			slot, err := n.slots.Now(time.Now())
			return slot, err == nil && n.slots.Reachable()
		},
	})
}

// tellRoster gives light clients the set that committees of the last windows are drawn from; nil where nothing is audited.
func (n *Node) tellRoster() func(context.Context, audit.Window) (audit.Roster, error) {
	if n.sight == nil {
		return nil
	}
	return func(ctx context.Context, w audit.Window) (audit.Roster, error) {
		now, _, err := n.sight.Window()
		if err != nil {
			return nil, err
		}
		if w > now || w < n.sight.Instants().Ago(now, audit.EraAudits) {
			return nil, fmt.Errorf("window %d is not one of the last that lead to %d", w, now)
		}
		return n.sight.Roster(ctx, w)
	}
}

// tellRecent gives light clients the last windows with an audit; nil where nothing is audited.
func (n *Node) tellRecent() func(context.Context, audit.Window) (audit.Recent, error) {
	if n.sight == nil {
		return nil
	}
	return func(ctx context.Context, w audit.Window) (audit.Recent, error) {
		recent, err := n.sight.Recent() // so that all blocks before are at hand
		if err != nil {
			return recent, err
		}
		if w > recent.Known || recent.Known-w > maxRecentAgo {
			return recent, fmt.Errorf("window %d is not one of the last that lead to %d", w, recent.Known)
		}
		return n.sight.RecentAt(ctx, w)
	}
}

// maxRecentAgo is how many windows back light clients may ask which had audits.
const maxRecentAgo = 4

// entries are connected peers that serve light clients too and carry circuits for them, in random order.
func (n *Node) entries() []peer.AddrInfo {
	var out []peer.AddrInfo
	peers, h := n.p.Host.Network().Peers(), n.p.Host
	rand.Shuffle(len(peers), func(i, j int) { peers[i], peers[j] = peers[j], peers[i] })
	for _, p := range peers {
		if len(out) == entry.MaxOthers {
			break
		}
		serves, err := h.Peerstore().SupportsProtocols(p, protocol.ID(entry.FindID(n.tag)), proto.ProtoIDv2Hop)
		if err == nil && len(serves) == 2 {
			out = append(out, h.Peerstore().PeerInfo(p))
		}
	}
	return out
}
