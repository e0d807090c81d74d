package entry

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/entry/entrypb"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/verify/audit"
)

// Ask requests an entry's Hello. The genesis is only checked to be well formed: the caller compares it with its own. It
// returns ErrBad and the errors of package stream.
func Ask(ctx context.Context, h host.Host, to peer.ID) (Hello, error) {
	m, err := hello.Call(ctx, h, p2p.AnyNetwork, to, &entrypb.HelloRequest{})
	if err != nil {
		return Hello{}, err
	}
	return decodeHello(m)
}

func decodeHello(m *entrypb.HelloReply) (Hello, error) {
	g, err := market.ParseGenesis(m.Genesis)
	if err != nil {
		return Hello{}, fmt.Errorf("%w: %w", ErrBad, err)
	}
	if len(m.Others) > MaxOthers {
		return Hello{}, fmt.Errorf("%w: other entries: got %d, want at most %d", ErrBad, len(m.Others), MaxOthers)
	}
	out := Hello{Genesis: g, Slot: market.Slot(m.Slot), ChainUp: m.ChainUp, RPC: m.Rpc, Peers: int(min(m.Peers, 1<<24))}
	for _, o := range m.Others {
		if info, ok := decodeEntry(o); ok {
			out.Others = append(out.Others, info)
		}
	}
	return out, nil
}

// decodeEntry reads one entry; entries that cannot be dialled are omitted.
func decodeEntry(o *entrypb.Entry) (peer.AddrInfo, bool) {
	if len(o.GetKey()) != 32 {
		return peer.AddrInfo{}, false
	}
	id, err := p2p.PeerIDFromKey([32]byte(o.Key))
	if err != nil {
		return peer.AddrInfo{}, false
	}
	info := peer.AddrInfo{ID: id}
	for _, text := range o.Addrs {
		if len(info.Addrs) == maxOtherAddrs {
			break
		}
		if a, err := ma.NewMultiaddr(text); err == nil && len(text) <= maxAddrLen && plain(a) {
			info.Addrs = append(info.Addrs, a)
		}
	}
	return info, len(info.Addrs) > 0
}

// plain reports whether an address is one to be dialled, without a peer's id and not through another peer.
func plain(a ma.Multiaddr) bool {
	_, named := a.ValueForProtocol(ma.P_P2P)
	_, relayed := a.ValueForProtocol(ma.P_CIRCUIT)
	return len(a) > 0 && named != nil && relayed != nil
}

func encodeEntry(p peer.AddrInfo) (*entrypb.Entry, bool) {
	key, err := p2p.KeyFromPeerID(p.ID)
	if err != nil {
		return nil, false
	}
	e := &entrypb.Entry{Key: key[:]}
	for _, a := range p.Addrs {
		if len(e.Addrs) < maxOtherAddrs && plain(a) && len(a.String()) <= maxAddrLen {
			e.Addrs = append(e.Addrs, a.String())
		}
	}
	return e, len(e.Addrs) > 0
}

// Found is the result of one entry's search.
type Found struct {
	Offers []market.Offer
	Bad    int // offers left out because their signature, network or time is not right
}

// Find requests offers of a class from an entry. Every offer's signature, network and times are checked here.
func Find(
	ctx context.Context, h host.Host, g market.Genesis, to peer.ID, c market.Class, regions []market.Region, most int,
) (Found, error) {
	req := &entrypb.FindRequest{Class: string(c), Most: uint32(min(max(most, 0), MaxOffers))}
	for _, r := range regions {
		req.Regions = append(req.Regions, string(r))
	}
	m, err := find.Call(ctx, h, g.Tag(), to, req)
	if err != nil {
		return Found{}, err
	}
	return decodeFound(m, g, c, time.Now())
}

func decodeFound(m *entrypb.FindReply, g market.Genesis, c market.Class, now time.Time) (Found, error) {
	if len(m.Offers) > MaxOffers {
		return Found{}, fmt.Errorf("%w: %d offers, at most %d", ErrBad, len(m.Offers), MaxOffers)
	}
	var f Found
	for _, b := range m.Offers {
		o, err := market.DecodeOffer(g.Domain(), b, now)
		if err != nil || o.CheckGenesis(g) != nil || !c.Accepts(o.Class) {
			f.Bad++
			continue
		}
		f.Offers = append(f.Offers, o)
	}
	return f, nil
}

// Publish has an entry gossip an order that this host's key signed, and returns the number of the entry's neighbours in
// its topic.
func Publish(ctx context.Context, h host.Host, network string, to peer.ID, envelope []byte) (int, error) {
	m, err := publish.Call(ctx, h, network, to, &entrypb.PublishRequest{Order: envelope})
	if err != nil {
		return 0, err
	}
	return int(min(m.Neighbours, 1<<20)), nil
}

// RPC passes one JSON-RPC call to the chain through an entry.
func RPC(ctx context.Context, h host.Host, network string, to peer.ID, call []byte) ([]byte, error) {
	m, err := rpc.Call(ctx, h, network, to, &entrypb.RPCRequest{Call: call})
	if err != nil {
		return nil, err
	}
	return m.Answer, nil
}

// Recent reads from an entry the last two windows with an audit up to one. It returns ErrBad if the answer is invalid.
func Recent(ctx context.Context, h host.Host, network string, to peer.ID, w audit.Window) (audit.Recent, error) {
	m, err := recent.Call(ctx, h, network, to, &entrypb.RecentRequest{Window: uint64(w)})
	if err != nil {
		return audit.Recent{}, err
	}
	r := audit.Recent{Known: w, Last: audit.Window(m.Last), Before: audit.Window(m.Before)}
	if r.Last > w || r.Before > r.Last {
		return audit.Recent{}, fmt.Errorf("%w: windows %d and %d up to %d", ErrBad, r.Before, r.Last, w)
	}
	return r, nil
}

// Roster reads from an entry the roster of a window's committees. It returns ErrBad if the answer is invalid.
func Roster(ctx context.Context, h host.Host, network string, to peer.ID, w audit.Window) (audit.Roster, error) {
	m, err := roster.Call(ctx, h, network, to, &entrypb.RosterRequest{Window: uint64(w)})
	if err != nil {
		return nil, err
	}
	r, err := audit.UnmarshalRoster(m.Members)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBad, err)
	}
	return r, nil
}
