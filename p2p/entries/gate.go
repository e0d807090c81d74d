package entries

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/conns"
)

// lightHost sends everything that is not for an entry through a circuit.
type lightHost struct {
	host.Host
	s *Set
}

// Addrs are where others reach this host through its entries.
func (h lightHost) Addrs() []ma.Multiaddr { return h.s.Addrs() }

// Connect reaches a peer; of its addresses only the entries' are dialled.
func (h lightHost) Connect(ctx context.Context, p peer.AddrInfo) error { return h.s.reach(ctx, p) }

// NewStream opens a stream, over a circuit where there is no connection yet.
func (h lightHost) NewStream(ctx context.Context, p peer.ID, pids ...protocol.ID) (network.Stream, error) {
	if err := h.s.reach(ctx, peer.AddrInfo{ID: p}); err != nil {
		return nil, err
	}
	s, err := h.Host.NewStream(network.WithNoDial(ctx, "light"), p, pids...)
	if errors.Is(err, network.ErrLimitedConn) {
		err = fmt.Errorf("%w: %w", ErrSmallRelay, err)
	}
	return s, err
}

// gate enforces the rule of a light host: dials go to entries and through them, connections come through them.
type gate struct {
	connmgr.ConnectionGater
	s *Set
}

// Gate returns the gater of the libp2p host. Everything that the set allows is left to inner.
func (s *Set) Gate(inner connmgr.ConnectionGater) connmgr.ConnectionGater { return gate{inner, s} }

// InterceptAddrDial reports whether an address is dialled: an entry's, a circuit's, or any that inner allows if the set
// dials others too.
func (g gate) InterceptAddrDial(p peer.ID, a ma.Multiaddr) bool {
	if addr.Circuit(a) {
		return g.s.carries(a)
	}
	if g.s.dials {
		return g.ConnectionGater.InterceptAddrDial(p, a)
	}
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	// A dead entry is not dialled for a circuit: that would take longer than to go through another.
	d := g.s.door(p)
	return d != nil && d.open > 0
}

// InterceptAccept reports whether a connection comes through an entry that is in use.
func (g gate) InterceptAccept(c network.ConnMultiaddrs) bool { return g.s.carries(c.RemoteMultiaddr()) }

// carries reports whether a is the address of a circuit at an entry that is in use.
func (s *Set) carries(a ma.Multiaddr) bool {
	via := addr.Relay(a)
	if via == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.door(via)
	return d != nil && d.live
}

// reach connects to p through any entry that has it and, if other peers may be dialled, at p's own addresses.
func (s *Set) reach(ctx context.Context, p peer.AddrInfo) error {
	if s.inner.Network().Connectedness(p.ID) != network.NotConnected {
		if s.dials && !conns.Direct(s.inner, p.ID) {
			s.widen(p)
		}
		return nil
	}
	entries := s.Entries()
	to := peer.AddrInfo{ID: p.ID}
	if s.dials {
		to.Addrs = slices.Clone(p.Addrs)
	}
	if len(entries) == 0 {
		if !s.dials || len(to.Addrs)+len(s.inner.Peerstore().Addrs(p.ID)) == 0 {
			return ErrNoEntry
		}
		if err := s.inner.Connect(network.WithForceDirectDial(ctx, "light"), to); err != nil {
			return fmt.Errorf("%w, and the peer cannot be dialled: %w", ErrNoEntry, err)
		}
		return nil
	}
	for _, e := range entries {
		to.Addrs = append(to.Addrs, circuitVia(e))
	}
	s.inner.Peerstore().AddAddrs(p.ID, to.Addrs, peerstore.TempAddrTTL)
	return s.inner.Connect(network.WithAllowLimitedConn(ctx, "light"), to)
}

// widen dials a peer that is connected only through a circuit, in the background. New streams then use the direct
// connection, at both ends. Closing the host ends the dial.
func (s *Set) widen(p peer.AddrInfo) {
	if at, ok := s.tried.Get(p.ID); ok && time.Since(at) < directAgain {
		return
	}
	to := peer.AddrInfo{ID: p.ID, Addrs: slices.DeleteFunc(slices.Concat(p.Addrs, s.inner.Peerstore().Addrs(p.ID)),
		addr.Circuit)}
	if len(to.Addrs) == 0 {
		return // until some are known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return
	}
	s.tried.Set(p.ID, time.Now())
	s.widening.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, dialTimeout)
		defer cancel()
		if err := s.inner.Connect(network.WithForceDirectDial(ctx, "light"), to); err != nil {
			s.log.Debug("a peer cannot be dialled; the circuit to it stays", "peer", p.ID, "err", err)
		}
	})
}
