package p2p

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	libp2ptls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Host is a libp2p host that keeps itself connected while [Host.Run] runs. The owner closes it.
type Host struct {
	host.Host
	cfg        Config
	log        *slog.Logger
	handshake  string            // identify's protocol version, by which peers of another network are known; "" checks nothing
	remembered map[peer.ID]entry // loaded at New, then owned by Run
}

// New makes a host that listens at once. Call [Host.Run] to keep it connected, and Close at the end.
func New(cfg Config) (*Host, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	opts, err := options(cfg)
	if err != nil {
		return nil, err
	}
	h, err := libp2p.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("starting libp2p host: %w", err)
	}
	w, err := Wrap(h, cfg)
	if err != nil {
		h.Close()
		return nil, err
	}
	w.handshake = handshake(cfg.Network)
	return w, nil
}

// Wrap makes a Host of a libp2p host that was made elsewhere; of cfg only Network, Bootstrap,
// PeerstoreDir and Logger are used, and peers of another network are not disconnected.
func Wrap(h host.Host, cfg Config) (*Host, error) {
	w := &Host{Host: h, cfg: cfg, log: cfg.Logger, remembered: make(map[peer.ID]entry)}
	if w.log == nil {
		w.log = slog.Default()
	}
	for _, b := range cfg.Bootstrap {
		h.Peerstore().AddAddrs(b.ID, b.Addrs, peerstore.PermanentAddrTTL)
	}
	if cfg.PeerstoreDir != "" {
		if err := w.restore(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// AddrInfo is this peer's ID and the addresses it tells others.
func (h *Host) AddrInfo() peer.AddrInfo { return peer.AddrInfo{ID: h.ID(), Addrs: h.Addrs()} }

// Protect keeps the connection to p from being trimmed until every tag is unprotected again. Both ends of
// a lease must do it, or the other end may trim.
func (h *Host) Protect(p peer.ID, tag string) { h.ConnManager().Protect(p, tag) }

// Unprotect removes one tag and reports whether p is still protected by another.
func (h *Host) Unprotect(p peer.ID, tag string) bool { return h.ConnManager().Unprotect(p, tag) }

// Forgive forgets failed dials to p, so that the next call dials at once. Use it on news that p is back.
func (h *Host) Forgive(p peer.ID) {
	if s, ok := h.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(p)
	}
}

func handshake(network string) string { return "starling/" + network }

// options are the libp2p options of cfg.
func options(cfg Config) ([]libp2p.Option, error) {
	low, high := cfg.Low, cfg.High
	if high == 0 {
		low, high = DefaultLow, DefaultHigh
	}
	conns, err := connmgr.NewConnManager(low, high, connmgr.WithGracePeriod(TrimGrace))
	if err != nil {
		return nil, fmt.Errorf("making connection manager: %w", err)
	}
	limits, err := resources()
	if err != nil {
		return nil, err
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
		libp2p.ConnectionGater(gater{}),
		libp2p.AddrsFactory(announce),
		libp2p.SwarmOpts(swarm.WithDialRanker(tcpFirst)),
		libp2p.WithDialTimeout(DialTimeout),
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
		opts = append(opts,
			libp2p.Transport(tcp.NewTCPTransport),
			libp2p.Transport(libp2pquic.NewTransport),
			libp2p.Security(libp2ptls.ID, libp2ptls.New), // TLS before Noise: cheaper handshake, faster bulk
			libp2p.Security(noise.ID, noise.New))
	}
	listen := cfg.Listen
	if len(listen) == 0 {
		listen = []string{"/ip4/0.0.0.0/tcp/0", "/ip4/0.0.0.0/udp/0/quic-v1", "/ip6/::/tcp/0", "/ip6/::/udp/0/quic-v1"}
	}
	opts = append(opts, libp2p.ListenAddrStrings(listen...))
	return append(opts, natOptions(cfg.NAT)...), nil
}

func natOptions(n NAT) []libp2p.Option {
	var opts []libp2p.Option
	if n.PortMap {
		opts = append(opts, libp2p.NATPortMap())
	}
	if len(n.Relays) == 0 && !n.Serve {
		return append(opts, libp2p.DisableRelay())
	}
	if len(n.Relays) > 0 {
		opts = append(opts, libp2p.EnableAutoRelayWithStaticRelays(n.Relays), libp2p.EnableHolePunching())
	}
	if n.Serve {
		opts = append(opts, libp2p.EnableRelayService())
	}
	return opts
}

// announcer makes the function that chooses the addresses told to others.
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
		// Loopback is of use to others only when it is all there is, as on a testnet.
		var out []ma.Multiaddr
		for _, a := range addrs {
			if !manet.IsIPLoopback(a) {
				out = append(out, a)
			}
		}
		if len(out) == 0 {
			return addrs
		}
		return out
	}, nil
}

// tcpFirst dials TCP, then QUIC, then relays, each as libp2p ranks it within itself.
func tcpFirst(addrs []ma.Multiaddr) []network.AddrDelay {
	var tcps, others, relays []ma.Multiaddr
	for _, a := range addrs {
		switch {
		case has(a, ma.P_CIRCUIT):
			relays = append(relays, a)
		case has(a, ma.P_TCP):
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

func has(a ma.Multiaddr, code int) bool {
	_, err := a.ValueForProtocol(code)
	return err == nil
}

// gater refuses peers whose key proves nothing.
type gater struct{}

func (gater) InterceptPeerDial(p peer.ID) bool {
	_, err := KeyFromPeerID(p)
	return err == nil
}
func (gater) InterceptAddrDial(peer.ID, ma.Multiaddr) bool { return true }
func (gater) InterceptAccept(network.ConnMultiaddrs) bool  { return true }
func (gater) InterceptSecured(_ network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	_, err := KeyFromPeerID(p)
	return err == nil
}
func (gater) InterceptUpgraded(network.Conn) (bool, control.DisconnectReason) { return true, 0 }
