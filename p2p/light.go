package p2p

import (
	"context"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/dials"
	"github.com/starling-network/starling/p2p/entries"
)

// AnyNetwork is the network name of a host before it has a network. Hosts of every network accept it. It uses only the
// protocols under this name.
const AnyNetwork = "any"

// Limits of a light host.
const (
	// lightLow and lightHigh are the connections kept and those at which trimming begins: circuits cost their relay.
	lightLow, lightHigh = 16, 32
	// lightGrace is the time for which a new circuit is safe from trimming: longer than a request for a quote.
	lightGrace = 5 * time.Second
)

// Light is a host outside of the network. It does not listen. It keeps one connection to each of a few entry peers and
// dials no other peer. All other connections, in and out, are circuits through its entries (package entries). Both ends
// run their own handshake inside, so an entry cannot read the bytes that it carries.
type Light struct {
	*Host
	entries *entries.Set
}

// NewLight makes a light host. Of cfg Key, Network, PSK, Agent, Logger and Transport are used, and Listen with
// Transport alone: a simulated link needs an address. With dials it also dials other peers by their own addresses,
// which is faster for bulk where it works; where it does not, the entries' circuits stay.
func NewLight(cfg Config, dials bool) (*Light, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l := &Light{entries: entries.New(dials, cfg.logger())}
	named, standings := cfg.dials(), admit.NewStandings()
	opts, err := l.options(cfg, named, standings)
	if err != nil {
		return nil, err
	}
	inner, err := libp2p.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("starting light libp2p host: %w", err)
	}
	outer, err := l.entries.Attach(inner, func(p peer.ID, err error) error {
		if d := l.Diagnose(p, err); d != nil {
			return d
		}
		return nil
	})
	if err == nil {
		l.Host, err = wrap(outer, Config{Network: cfg.Network, PSK: cfg.PSK, Logger: cfg.Logger}, standings)
	}
	if err != nil {
		inner.Close()
		return nil, fmt.Errorf("starting light libp2p host: %w", err)
	}
	l.dials = named
	if cfg.Network != AnyNetwork {
		l.membership.handshake = handshake(cfg.Network)
	}
	return l, nil
}

func (l *Light) options(cfg Config, named *dials.Rules, standings *admit.Standings) ([]libp2p.Option, error) {
	conns, err := connmgr.NewConnManager(lightLow, lightHigh, connmgr.WithGracePeriod(lightGrace))
	if err != nil {
		return nil, fmt.Errorf("making connection manager: %w", err)
	}
	limits, err := resources(standings)
	if err != nil {
		return nil, err
	}
	opts := []libp2p.Option{
		libp2p.Identity(cfg.Key),
		libp2p.ProtocolVersion(handshake(cfg.Network)),
		libp2p.UserAgent(cfg.Agent),
		libp2p.ConnectionManager(conns),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionGater(l.entries.Gate(cfg.gater(named))),
		libp2p.AddrsFactory(func([]ma.Multiaddr) []ma.Multiaddr { return l.entries.Addrs() }),
		libp2p.SwarmOpts(swarm.WithDialRanker(tcpFirst)),
		libp2p.WithDialTimeout(DialTimeout),
		libp2p.DisableMetrics(),
		libp2p.NoListenAddrs, libp2p.EnableRelay(),
	}
	if cfg.Transport != nil {
		return append(opts, cfg.Transport, libp2p.DisableIdentifyAddressDiscovery(),
			libp2p.ListenAddrStrings(cfg.Listen...)), nil
	}
	if cfg.PSK != nil {
		opts = append(opts, libp2p.PrivateNetwork(cfg.PSK[:]))
	} else {
		opts = append(opts, libp2p.Transport(libp2pquic.NewTransport))
	}
	return append(opts,
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(libp2ptls.ID, libp2ptls.New),
		libp2p.Security(noise.ID, noise.New)), nil
}

// Enter connects to an entry at user-given addresses, and reserves a place there: [entries.Set.Enter]. It returns
// ErrNoRelay or a *Diagnosis.
func (l *Light) Enter(ctx context.Context, e peer.AddrInfo) error {
	l.dials.Name(e.Addrs...)
	return l.entries.Enter(ctx, e)
}

// Leave gives an entry up: [entries.Set.Leave].
func (l *Light) Leave(id peer.ID) { l.entries.Leave(id) }

// Keep pings an entry and renews the reservation there until the caller has to leave it, for the returned reason:
// [entries.Set.Keep].
func (l *Light) Keep(ctx context.Context, id peer.ID, every, patience time.Duration) error {
	return l.entries.Keep(ctx, id, every, patience)
}

// Entries are the entries that can be used now, in the order in which they were entered.
func (l *Light) Entries() []peer.ID { return l.entries.Entries() }

// CircuitData is the number of bytes that a circuit at the entry carries before it is cut; 0 means that no limit is
// known.
func (l *Light) CircuitData(id peer.ID) uint64 { return l.entries.CircuitData(id) }

// Dials reports whether the host dials others than its entries too.
func (l *Light) Dials() bool { return l.entries.Dials() }

// Close closes the host and all its connections.
func (l *Light) Close() error {
	l.entries.Stop()
	return admit.Close(l.Host)
}
