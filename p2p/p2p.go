// Package p2p is one libp2p host per peer: identity, transports, limits and the loop that keeps the peer connected. Its
// subpackages are
//
//	addr        classes of addresses, and the ones that a peer announces
//	conns       peers with several connections: the live and the direct ones
//	dials       the policy for addresses to dial
//	entries     a light host's access to the network: entry peers and circuits through them
//	peerbook    peers remembered between runs
//	peermap     a bounded map from peers to values
//	portmap     port mapping on the router
//	punch       direct connections through NATs, to replace relayed ones
//
//	discovery   signed records in a Kademlia DHT, found by topic
//	gossip      typed topics over gossipsub
//	stream      typed request and response over streams
//	blob        content-addressed files over streams
//	overlay     network namespaces of peers joined into one network
//	admit       strangers' limits, and the reserves for others
//	relay       connections carried for peers that cannot reach each other
//	closed      the addresses that a machine opens only to itself
//
// A peer behind a NAT or a firewall is reached through relays until a direct path is punched through; both carry all
// protocols. The package is generic: it has peers, addresses and a network name, without their purpose.
package p2p

import (
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/gologshim"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/relay"
)

// Config is the configuration of a host. Only Key and Network are required.
type Config struct {
	Key      crypto.PrivKey // Ed25519
	Network  string         // [a-z0-9-]{1,64}: peers of another network are disconnected after the handshake
	Listen   []string       // multiaddrs; none means a free port on every interface, TCP and QUIC
	Announce []string       // multiaddrs to announce instead of the listening ones, for a host behind a forwarded port
	Agent    string         // announced software and version

	Bootstrap    []peer.AddrInfo // first peers to try; none is special, and remembered peers are tried with them
	PeerstoreDir string          // where recently good addresses are kept between runs; "" keeps none
	// Low is the number of connections kept when trimming, High the number at which trimming begins. Zero means the
	// default.
	Low, High int

	NAT NAT
	// PlainUDP makes QUIC's ports do without the kernel's offloads once overlays share them, see
	// [overlay.Network.Plain].
	PlainUDP bool
	PSK      *[32]byte // key of a private network: peers without it cannot connect. TCP only, QUIC has no such thing
	Block    []peer.ID // peers that are refused and never dialled
	// Dials are closed ranges (package closed) in which addresses of others are dialled, beside those in which an
	// address of Bootstrap, NAT.Relays or Announce lies. Without PSK others are dialled there only in the networks of
	// this machine's interfaces.
	Dials []netip.Prefix

	Logger     *slog.Logger          // nil means slog.Default()
	Registerer prometheus.Registerer // where libp2p's metrics go; nil switches them off

	// Transport replaces TCP and QUIC on the machine's own network; simulated networks set it.
	Transport libp2p.Option
}

// NAT is how a peer that cannot be dialled is reached, and whether this one helps others to be. All of it is off by
// default, except that any host can be reached through a relay and dial through one.
type NAT struct {
	// Auto finds out by AutoNATv2 which addresses can be dialled. A peer without such an address reserves places at
	// relays, and direct paths are punched through where NATs allow it.
	Auto bool
	// PortMap requests a port from the router by UPnP. libp2p also supports NAT-PMP, but cannot find the router for it:
	// its go-netroute 0.4 refuses to look up 0.0.0.0 on Linux.
	PortMap bool
	// DialOutOnly listens on nothing: the peer is reached through relays only, over connections that it opened itself.
	DialOutOnly bool
	// Relays are tried first for reservations; peers of the network that offer to relay are found without.
	Relays []peer.AddrInfo
	// Serve relays for others, within Limits, and takes light clients' connections to any peer of the network. It is
	// for peers that can be dialled.
	Serve  bool
	Limits relay.Limits
}

func (c Config) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.Default()
	}
	return c.Logger
}

var networkName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// check refuses a configuration that cannot work, before anything is opened.
func (c Config) check() error {
	if c.Key == nil {
		return fmt.Errorf("%w: no key", ErrConfig)
	}
	if _, err := SeedOf(c.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if !networkName.MatchString(c.Network) {
		return fmt.Errorf("%w: network name %q is not [a-z0-9-]{1,64}", ErrConfig, c.Network)
	}
	if c.High < c.Low {
		return fmt.Errorf("%w: connection high water %d is below low water %d", ErrConfig, c.High, c.Low)
	}
	if err := c.NAT.Limits.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if c.NAT.DialOutOnly && (len(c.Listen) > 0 || len(c.Announce) > 0 || c.NAT.Serve) {
		return fmt.Errorf("%w: a peer that only dials out has no addresses to listen on or to announce, "+
			"and cannot relay",
			ErrConfig)
	}
	return c.checkListen()
}

// checkListen refuses addresses that cannot be listened on.
func (c Config) checkListen() error {
	for _, text := range c.Listen {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			return fmt.Errorf("%w: listening address %q: %w", ErrConfig, text, err)
		}
		if c.PSK != nil && !addr.Has(a, ma.P_TCP) {
			return fmt.Errorf("%w: listening address %s: a private network works over TCP only, "+
				"QUIC has no pre-shared keys; use /ip4/0.0.0.0/tcp/<port>",
				ErrConfig, text)
		}
	}
	return nil
}

// LogTo sends libp2p's own log to h, so that a process has one log. Call it before the first host is made.
func LogTo(h slog.Handler) { gologshim.SetDefaultHandler(h) }
