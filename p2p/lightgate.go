package p2p

import (
	"context"
	"errors"
	"fmt"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
)

// lightHost sends everything that is not for an entry through a circuit.
type lightHost struct {
	host.Host
	l *Light
}

// Addrs are where others reach this host through its entries.
func (h lightHost) Addrs() []ma.Multiaddr { return h.l.addrs() }

// Connect reaches a peer; of its addresses only the entries' are dialled.
func (h lightHost) Connect(ctx context.Context, p peer.AddrInfo) error { return h.l.reach(ctx, p) }

// NewStream opens a stream, over a circuit where there is no connection yet.
func (h lightHost) NewStream(ctx context.Context, p peer.ID, pids ...protocol.ID) (network.Stream, error) {
	if err := h.l.reach(ctx, peer.AddrInfo{ID: p}); err != nil {
		return nil, err
	}
	s, err := h.Host.NewStream(network.WithNoDial(ctx, "light"), p, pids...)
	if errors.Is(err, network.ErrLimitedConn) {
		err = fmt.Errorf("%w: %w", ErrSmallRelay, err)
	}
	return s, err
}

// lightGater enforces the rule of Light: dials go to entries and through them, connections come through them.
type lightGater struct {
	gater
	l *Light
}

func (g lightGater) InterceptAddrDial(p peer.ID, a ma.Multiaddr) bool {
	if has(a, ma.P_CIRCUIT) {
		return g.carries(a)
	}
	if g.l.dials {
		return g.gater.InterceptAddrDial(p, a)
	}
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	// A dead entry is not dialled for a circuit: that would take longer than to go through another.
	d := g.l.door(p)
	return d != nil && d.open > 0
}

func (g lightGater) InterceptAccept(c network.ConnMultiaddrs) bool {
	return g.carries(c.RemoteMultiaddr())
}

// carries reports whether a is the address of a circuit at an entry that is in use.
func (g lightGater) carries(a ma.Multiaddr) bool {
	if !has(a, ma.P_CIRCUIT) {
		return false
	}
	text, err := a.ValueForProtocol(ma.P_P2P) // the first one: of the relay
	if err != nil {
		return false
	}
	via, err := peer.Decode(text)
	if err != nil {
		return false
	}
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	d := g.l.door(via)
	return d != nil && d.live
}
