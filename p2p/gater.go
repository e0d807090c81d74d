package p2p

import (
	"net/netip"
	"slices"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/p2p/dials"
)

// gater refuses peers with unsound keys, and those on the block list. It dials no address with which a stranger could
// aim this machine at its neighbours.
type gater struct {
	blocked map[peer.ID]bool
	dials   *dials.Rules
}

func (c Config) gater(d *dials.Rules) gater {
	g := gater{blocked: make(map[peer.ID]bool, len(c.Block)), dials: d}
	for _, p := range c.Block {
		g.blocked[p] = true
	}
	return g
}

func (g gater) InterceptPeerDial(p peer.ID) bool {
	_, err := KeyFromPeerID(p)
	return err == nil && !g.blocked[p]
}

// InterceptAddrDial reports whether an address may be dialled. The address of a relayed connection is its relay's.
func (g gater) InterceptAddrDial(_ peer.ID, a ma.Multiaddr) bool { return g.dials.Allow(a) }

func (gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

func (gater) InterceptSecured(_ network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	_, err := KeyFromPeerID(p)
	return err == nil
}

// InterceptUpgraded refuses blocked peers. Only at this late stage the refusal carries a code, [network.ConnGated], so
// that the other side can distinguish a block from an outage.
func (g gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return !g.blocked[c.RemotePeer()], 0
}

// dials returns c's rules for dialling.
func (c Config) dials() *dials.Rules {
	d := dials.New(c.PSK != nil, c.Dials)
	listen, announce := parse(c.Listen), parse(c.Announce)
	if !slices.ContainsFunc(listen, func(a ma.Multiaddr) bool { return !manet.IsIPLoopback(a) }) { // a testnet's peer
		d.Open(listen...)
	}
	d.Open(announce...)
	for _, p := range slices.Concat(c.Bootstrap, c.NAT.Relays) {
		d.Open(p.Addrs...)
	}
	return d
}

// parse returns the valid ones of some multiaddrs.
func parse(texts []string) (out []ma.Multiaddr) {
	for _, text := range texts {
		if a, err := ma.NewMultiaddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// ClosedDials returns the closed ranges in which addresses lie that c names, for another host of the same user
// (Config.Dials).
func (c Config) ClosedDials() []netip.Prefix { return c.dials().Ranges() }
