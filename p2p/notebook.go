package p2p

import (
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	// maxNoted bounds how many peers a notebook remembers.
	maxNoted = 512
	// maxHandshake bounds the remembered network name of a peer of another network.
	maxHandshake = 128
	// connOtherNetwork is the code with which a connection to a peer of another network is closed.
	connOtherNetwork network.ConnErrorCode = 0x53740001
	// punchedWithin is how long after a relayed connection a direct one counts as opened with the relay's help.
	punchedWithin = time.Minute
)

// notebook remembers one thing of each of some peers.
type notebook[V any] struct {
	mu sync.Mutex
	m  map[peer.ID]V
}

func (n *notebook[V]) add(p peer.ID, v V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = make(map[peer.ID]V)
	}
	for id := range n.m { // any, in Go's random order
		if len(n.m) < maxNoted {
			break
		}
		delete(n.m, id)
	}
	n.m[p] = v
}

func (n *notebook[V]) remove(p peer.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, p)
}

func (n *notebook[V]) get(p peer.ID) (V, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, ok := n.m[p]
	return v, ok
}

// relayedBefore reports whether a relayed connection to p stood when a direct one was opened, or shortly before.
func (h *Host) relayedBefore(p peer.ID, opened time.Time) bool {
	for _, c := range h.Network().ConnsToPeer(p) {
		if has(c.RemoteMultiaddr(), ma.P_CIRCUIT) && c.Stat().Opened.Before(opened) {
			return true
		}
	}
	at, ok := h.viaRelay.get(p)
	return ok && !opened.Before(at) && opened.Sub(at) < punchedWithin
}
