package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/conns"
	"github.com/starling-network/starling/p2p/dials"
	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/peerbook"
	"github.com/starling-network/starling/p2p/peermap"
	"github.com/starling-network/starling/p2p/portmap"
	"github.com/starling-network/starling/p2p/punch"
	"github.com/starling-network/starling/p2p/relay"
)

// Host is a libp2p host that keeps itself connected while [Host.Run] runs. The owner closes it.
type Host struct {
	host.Host
	cfg        Config
	log        *slog.Logger
	membership *membership
	book       *peerbook.Book
	join       *joiner
	relay      *relay.Service // nil when we do not serve
	overlay    *overlay.Network
	blocked    map[peer.ID]bool
	viaRelay   peermap.Map[time.Time] // when the last relayed connection to a peer was opened
	find       atomic.Pointer[func(context.Context, peer.ID) (peer.AddrInfo, error)]
	mapped     *portmap.Mapper
	punches    *punch.Puncher
	guided     bool // AutoNATv2 and the relay client run
	standings  *admit.Standings
	admission  *admit.Manager // nil for a host that New did not make
	dials      *dials.Rules   // nil for a host that neither New nor NewLight made
}

// New makes a host that listens at once. Call [Host.Run] to keep it connected, and Close at the end.
func New(cfg Config) (*Host, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	standings := admit.NewStandings()
	dials := cfg.dials()
	limits, err := resources(standings)
	if err != nil {
		return nil, err
	}
	opts, err := options(cfg, limits, dials)
	if err != nil {
		return nil, err
	}
	ov := overlay.New(cfg.Network, cfg.logger())
	if cfg.PlainUDP {
		ov.Plain()
	}
	if cfg.Transport == nil && cfg.PSK == nil && !cfg.NAT.DialOutOnly {
		opts = append(opts, sharedPorts(ov, cfg.Registerer))
	}
	mapped := &portmap.Mapper{}
	nat, source := natOptions(cfg, mapped)
	h, err := libp2p.New(append(opts, nat...)...)
	if err != nil {
		return nil, fmt.Errorf("starting libp2p host: %w", err)
	}
	w, err := wrap(h, cfg, standings)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	w.membership.handshake = handshake(cfg.Network)
	w.guided, w.mapped, w.dials = source != nil, mapped, dials
	w.blocked = cfg.gater(dials).blocked
	w.overlay, w.admission = ov, limits
	ov.Attach(h, w.punches.Addrs)
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(ov); err != nil {
			return nil, errors.Join(fmt.Errorf("registering the overlay's metrics: %w", err), w.Close())
		}
	}
	if cfg.NAT.Serve {
		if err := w.serve(); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	if source != nil {
		source.h.Store(w)
	}
	return w, nil
}

// Close closes the host and all its connections.
func (h *Host) Close() error {
	var err error
	if h.overlay != nil {
		if h.cfg.Registerer != nil {
			h.cfg.Registerer.Unregister(h.overlay)
		}
		err = h.overlay.Close()
	}
	if h.relay != nil {
		err = errors.Join(err, h.relay.Close())
	}
	return errors.Join(err, admit.Close(h.Host))
}

// Wrap makes a Host of a libp2p host that was made elsewhere; of cfg only Network, Bootstrap, PeerstoreDir and Logger
// are used, and PSK for diagnoses. Peers of another network are not disconnected.
func Wrap(h host.Host, cfg Config) (*Host, error) { return wrap(h, cfg, admit.NewStandings()) }

func wrap(h host.Host, cfg Config, standings *admit.Standings) (*Host, error) {
	log := cfg.logger()
	book, err := peerbook.Open(cfg.PeerstoreDir, func(p peer.ID) error {
		_, err := KeyFromPeerID(p)
		return err
	}, log)
	if err != nil {
		return nil, err
	}
	w := &Host{Host: h, cfg: cfg, log: log, mapped: &portmap.Mapper{}, standings: standings, book: book,
		membership: &membership{h: h, log: log}, punches: punch.New(h, log)}
	w.join = newJoiner(w, cfg.Bootstrap, book)
	standings.Watch(h.Network())
	for _, b := range cfg.Bootstrap {
		h.Peerstore().AddAddrs(b.ID, b.Addrs, peerstore.PermanentAddrTTL)
	}
	for _, e := range book.Entries() {
		if e.Dialled {
			standings.Remember(e.ID, e.Addrs[0])
		}
		h.Peerstore().AddAddrs(e.ID, e.Addrs, peerstore.RecentlyConnectedAddrTTL)
	}
	return w, nil
}

// Overlay joins overlays on this host; nil for a host that New did not make. Without UDP ports of its own (a private
// network, a simulated one, a peer that only dials out) members are reached over streams alone.
func (h *Host) Overlay() *overlay.Network { return h.overlay }

// sharedPorts makes QUIC open its ports through the overlay. The rest is as libp2p makes it where nothing is given.
func sharedPorts(ov *overlay.Network, metrics prometheus.Registerer) libp2p.Option {
	return libp2p.QUICReuse(func(
		reset quic.StatelessResetKey, token quic.TokenGeneratorKey, limits network.ResourceManager, life fx.Lifecycle,
	) (*quicreuse.ConnManager, error) {
		opts := []quicreuse.Option{
			quicreuse.OverrideListenUDP(ov.ListenUDP),
			quicreuse.ConnContext(func(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
				addr, err := quicreuse.ToQuicMultiaddr(client.RemoteAddr, quic.Version1)
				if err != nil {
					addr = nil // the limits decide about it
				}
				scope, err := limits.OpenConnection(network.DirInbound, false, addr)
				if err != nil {
					return ctx, err
				}
				context.AfterFunc(ctx, scope.Done)
				return network.WithConnManagementScope(ctx, scope), nil
			}),
			quicreuse.VerifySourceAddress(limits.VerifySourceAddress),
		}
		if metrics != nil {
			opts = append(opts, quicreuse.EnableMetrics(metrics))
		}
		m, err := quicreuse.NewConnManager(reset, token, opts...)
		if err != nil {
			return nil, err
		}
		life.Append(fx.StopHook(m.Close))
		return m, nil
	})
}

// AddrInfo is this peer's ID and its announced addresses.
func (h *Host) AddrInfo() peer.AddrInfo { return peer.AddrInfo{ID: h.ID(), Addrs: h.Addrs()} }

// Remember adds addresses of the peer with a key to the address book; invalid ones are left out. It returns an error if
// the key is not a valid peer key.
func (h *Host) Remember(key [32]byte, addrs []string) (peer.ID, error) {
	id, err := PeerIDFromKey(key)
	if err != nil {
		return "", err
	}
	var out []ma.Multiaddr
	for _, s := range addrs {
		if a, err := ma.NewMultiaddr(s); err == nil {
			out = append(out, a)
		}
	}
	h.Peerstore().AddAddrs(id, out, peerstore.TempAddrTTL)
	return id, nil
}

// Protect makes p a counterparty, and keeps the connection to it from being trimmed, until every tag is unprotected
// again. Both ends of a lease must do it, or the other end may trim.
func (h *Host) Protect(p peer.ID, tag string) {
	h.standings.Deal(p, tag)
	h.ConnManager().Protect(p, tag)
}

// Unprotect removes one tag and reports whether p is still protected by another.
func (h *Host) Unprotect(p peer.ID, tag string) bool {
	h.standings.NoDeal(p, tag)
	return h.ConnManager().Unprotect(p, tag)
}

// Standing returns p's standing, which determines its limits.
func (h *Host) Standing(p peer.ID) admit.Standing { return h.standings.Of(p) }

// Fund makes p funded for a while: it has placed an order that it can pay for.
func (h *Host) Fund(p peer.ID) { h.standings.Fund(p) }

// Seen returns p's standing, and the network that it is connected from; the zero prefix if that is not known.
func (h *Host) Seen(p peer.ID) (admit.Standing, netip.Prefix) { return h.standings.Seen(p) }

// Admission returns the other peers' use of this one; false for a host that New did not make.
func (h *Host) Admission() (admit.Stats, bool) {
	if h.admission == nil {
		return admit.Stats{}, false
	}
	return h.admission.Stats(), true
}

// Forgive forgets failed dials to p, so that the next call dials at once. Use it on news that p is back.
func (h *Host) Forgive(p peer.ID) { conns.Forgive(h.Host, p) }

// Find looks up the addresses of a peer if none is known. Errors show when the peer is dialled.
func (h *Host) Find(ctx context.Context, p peer.ID) {
	find := h.find.Load()
	if find == nil || len(h.Peerstore().Addrs(p)) > 0 || h.Network().Connectedness(p) == network.Connected {
		return
	}
	if found, err := (*find)(ctx, p); err == nil {
		h.Peerstore().AddAddrs(p, found.Addrs, pingAddrTTL)
	}
}

// FindWith sets the lookup of peers without known address, for relaying, Find and Ping.
func (h *Host) FindWith(find func(ctx context.Context, p peer.ID) (peer.AddrInfo, error)) {
	h.find.Store(&find)
}

// Relay is the relay service, or nil.
func (h *Host) Relay() *relay.Service { return h.relay }

// options are the libp2p options of cfg.
func options(cfg Config, limits *admit.Manager, d *dials.Rules) ([]libp2p.Option, error) {
	low, high := cfg.Low, cfg.High
	if high == 0 {
		low, high = DefaultLow, DefaultHigh
	}
	conns, err := connmgr.NewConnManager(low, high, connmgr.WithGracePeriod(TrimGrace))
	if err != nil {
		return nil, fmt.Errorf("making connection manager: %w", err)
	}
	announce, err := announcer(cfg.Announce)
	if err != nil {
		return nil, err
	}
	agent := cfg.Agent
	if agent == "" {
		agent = "starling"
	}
	opts := []libp2p.Option{
		libp2p.Identity(cfg.Key),
		libp2p.ProtocolVersion(handshake(cfg.Network)),
		libp2p.UserAgent(agent),
		libp2p.ConnectionManager(conns),
		libp2p.ResourceManager(limits),
		libp2p.ConnectionGater(cfg.gater(d)),
		libp2p.AddrsFactory(announce),
		libp2p.SwarmOpts(swarm.WithDialRanker(tcpFirst)),
		libp2p.WithDialTimeout(DialTimeout),
		libp2p.WithFxOption(fx.Supply([]upgrader.Option{upgrader.WithAcceptTimeout(HandshakeTimeout)})),
	}
	if cfg.Registerer != nil {
		opts = append(opts, libp2p.PrometheusRegisterer(cfg.Registerer))
	} else {
		opts = append(opts, libp2p.DisableMetrics())
	}
	if cfg.Transport != nil {
		// Observed addresses mean nothing in a simulation, and learning them stalls its clock.
		opts = append(opts, cfg.Transport, libp2p.DisableIdentifyAddressDiscovery())
	} else {
		opts = append(opts, libp2p.Transport(tcp.NewTCPTransport))
		if cfg.PSK != nil {
			opts = append(opts, libp2p.PrivateNetwork(cfg.PSK[:]))
		} else {
			opts = append(opts, libp2p.Transport(libp2pquic.NewTransport))
		}
		opts = append(opts,
			libp2p.Security(libp2ptls.ID, libp2ptls.New), // TLS before Noise: cheaper handshake, faster bulk
			libp2p.Security(noise.ID, noise.New))
	}
	return opts, nil
}

// tcpFirst dials TCP, then QUIC, then relays, each as libp2p ranks it within itself.
func tcpFirst(addrs []ma.Multiaddr) []network.AddrDelay {
	var tcps, others, relays []ma.Multiaddr
	for _, a := range addrs {
		switch {
		case addr.Circuit(a):
			relays = append(relays, a)
		case addr.Has(a, ma.P_TCP):
			tcps = append(tcps, a)
		default:
			others = append(others, a)
		}
	}
	out := swarm.DefaultDialRanker(tcps)
	add := func(group []ma.Multiaddr, base time.Duration) {
		if len(out) == 0 {
			base = 0
		}
		for _, d := range swarm.DefaultDialRanker(group) {
			d.Delay += base
			out = append(out, d)
		}
	}
	add(others, quicDelay)
	add(relays, relayDelay)
	return out
}

// announcer returns the function that selects the announced addresses.
func announcer(announce []string) (func([]ma.Multiaddr) []ma.Multiaddr, error) {
	fixed := make([]ma.Multiaddr, 0, len(announce))
	for _, s := range announce {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("%w: announced address %q: %w", ErrConfig, s, err)
		}
		fixed = append(fixed, a)
	}
	return func(addrs []ma.Multiaddr) []ma.Multiaddr {
		if len(fixed) > 0 {
			return fixed
		}
		return addr.Choose(addrs)
	}, nil
}
