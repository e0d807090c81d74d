// Package p2p is one libp2p host per peer: identity, transports, limits, the addresses remembered between
// runs and the loop that keeps the peer connected. Beneath it stand
//
//	discovery   signed records in a Kademlia DHT, found by topic
//	gossip      typed topics over gossipsub
//	stream      typed request and response over direct streams
//	blob        content-addressed files over direct streams
//
// The package is generic: it knows peers, addresses and a network name, and nothing of what they are for.
package p2p

import (
	"fmt"
	"log/slog"
	"regexp"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/prometheus/client_golang/prometheus"
)

// Config says what host to make. Only Key and Network are required.
type Config struct {
	Key      crypto.PrivKey // Ed25519
	Network  string         // [a-z0-9-]{1,64}: peers of another network are disconnected after the handshake
	Listen   []string       // multiaddrs; none means a free port on every interface, TCP and QUIC
	Announce []string       // multiaddrs told to other peers instead of the listening ones, for a host behind a forwarded port
	Agent    string         // software and version told to other peers

	Bootstrap    []peer.AddrInfo // first peers to try; none is special, and remembered peers are tried with them
	PeerstoreDir string          // where recently good addresses are kept between runs; "" keeps none
	Low, High    int             // connections kept when trimming, connections at which trimming begins; zero means the defaults

	NAT        NAT
	Logger     *slog.Logger          // nil means slog.Default()
	Registerer prometheus.Registerer // where libp2p's metrics go; nil switches them off

	// Transport replaces TCP and QUIC on the machine's own network; simulated networks set it.
	Transport libp2p.Option
}

// NAT is how a peer that cannot be dialled is reached. All of it is off by default.
type NAT struct {
	PortMap bool            // ask the router for a port by UPnP or NAT-PMP
	Relays  []peer.AddrInfo // peers that may relay connections to us until a direct one is punched through
	Serve   bool            // relay connections for others, within libp2p's limits (128 KiB and 2 minutes each)
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
	return nil
}
