package p2p

import (
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// gater refuses peers whose key proves nothing, and those on the block list.
type gater struct{ blocked map[peer.ID]bool }

func (c Config) gater() gater {
	g := gater{blocked: make(map[peer.ID]bool, len(c.Block))}
	for _, p := range c.Block {
		g.blocked[p] = true
	}
	return g
}

func (g gater) InterceptPeerDial(p peer.ID) bool {
	_, err := KeyFromPeerID(p)
	return err == nil && !g.blocked[p]
}

func (gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }
func (gater) InterceptAccept(network.ConnMultiaddrs) bool  { return true }

func (gater) InterceptSecured(_ network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	_, err := KeyFromPeerID(p)
	return err == nil
}

// InterceptUpgraded refuses blocked peers this late because only here the refusal carries a code, [network.ConnGated], that
// the other side can read: it then knows that it is blocked, and not that we are gone.
func (g gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return !g.blocked[c.RemotePeer()], 0
}
