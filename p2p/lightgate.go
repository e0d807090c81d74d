package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
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

// reach connects to p through whichever entry has it, and where others are dialled too by its own addresses.
func (l *Light) reach(ctx context.Context, p peer.AddrInfo) error {
	if l.inner.Network().Connectedness(p.ID) != network.NotConnected {
		if l.dials && !l.connected(p.ID) {
			l.widen(p)
		}
		return nil
	}
	entries := l.Entries()
	to := peer.AddrInfo{ID: p.ID}
	if l.dials {
		to.Addrs = slices.Clone(p.Addrs)
	}
	if len(entries) == 0 {
		if !l.dials || len(to.Addrs)+len(l.inner.Peerstore().Addrs(p.ID)) == 0 {
			return ErrNoEntry
		}
		if err := l.inner.Connect(network.WithForceDirectDial(ctx, "light"), to); err != nil {
			return fmt.Errorf("%w, and the peer cannot be dialled: %w", ErrNoEntry, err)
		}
		return nil
	}
	for _, e := range entries {
		to.Addrs = append(to.Addrs, circuitVia(e))
	}
	l.inner.Peerstore().AddAddrs(p.ID, to.Addrs, peerstore.TempAddrTTL)
	return l.inner.Connect(network.WithAllowLimitedConn(ctx, "light"), to)
}

// widen dials a peer to which there is a circuit only, as when it came first, beside whatever asked for it. New streams
// then go the direct way, at both ends. Closing the host ends the dial.
func (l *Light) widen(p peer.AddrInfo) {
	if at, ok := l.tried.get(p.ID); ok && time.Since(at) < directAgain {
		return
	}
	to := peer.AddrInfo{ID: p.ID, Addrs: slices.DeleteFunc(slices.Concat(p.Addrs, l.inner.Peerstore().Addrs(p.ID)),
		func(a ma.Multiaddr) bool {
			return has(a, ma.P_CIRCUIT)
		})}
	if len(to.Addrs) == 0 {
		return // until some are known
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		return
	}
	l.tried.add(p.ID, time.Now())
	l.widening.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, DialTimeout)
		defer cancel()
		if err := l.inner.Connect(network.WithForceDirectDial(ctx, "light"), to); err != nil {
			l.log.Debug("a peer cannot be dialled; the circuit to it stays", "peer", p.ID, "err", err)
		}
	})
}
