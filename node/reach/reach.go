// Package reach is the sections of the configuration about the peer's place in the network: its addresses, the peers to
// join by, NAT, relaying for others, private networks and blocked peers.
package reach

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/service"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/relay"
)

// Config is the part of a peer's configuration about its place in the network.
type Config struct {
	Listen, Announce, Bootstrap []string
	NAT                         NAT
	Relay                       Relay
	PrivateNetwork              string
	Block                       []string
	PlainUDP                    bool
}

// NAT is how a peer that cannot be dialled is reached.
type NAT struct {
	// Auto finds out whether the peer can be dialled, reserves places at relays if not, and punches holes.
	Auto bool `yaml:"auto"`
	// PortMap requests a port from the router by UPnP.
	PortMap bool `yaml:"portMap"`
	// DialOutOnly listens on nothing; the peer is reached through relays.
	DialOutOnly bool `yaml:"dialOutOnly"`
	// Relays are full multiaddrs of relays to try first; others are found without.
	Relays []string `yaml:"relays"`
}

// Relay is the peer's service to peers that cannot be dialled, and to light clients. Zero limits take the defaults.
type Relay struct {
	Serve        bool          `yaml:"serve"`
	DataMiB      int64         `yaml:"dataMiB"`  // that one circuit may carry, both ways together; -1: no limit
	Duration     time.Duration `yaml:"duration"` // that one circuit may live; -1s: no limit
	Circuits     int           `yaml:"circuits"`
	PerPeer      int           `yaml:"perPeer"`
	Reservations int           `yaml:"reservations"`
	PerIP        int           `yaml:"perIP"`
	MiBPerSecond int64         `yaml:"mibPerSecond"` // that all circuits may carry, both ways together; -1: no limit
}

// maxRelayMiB bounds Relay.DataMiB and Relay.MiBPerSecond, so that they fit in bytes.
const maxRelayMiB = 1 << 40

// DefaultRelay returns the section of a peer without relaying.
func DefaultRelay() Relay {
	return Relay{
		DataMiB: relay.DefaultData >> 20, Duration: relay.DefaultDuration, Circuits: relay.DefaultCircuits,
		PerPeer: relay.DefaultPerPeer, Reservations: relay.DefaultReservations, PerIP: relay.DefaultPerIP,
		MiBPerSecond: relay.DefaultRate >> 20,
	}
}

func (r Relay) limits() relay.Limits {
	return relay.Limits{
		Data: r.DataMiB << 20, Duration: r.Duration, Circuits: r.Circuits, PerPeer: r.PerPeer,
		Reservations: r.Reservations, PerIP: r.PerIP, Rate: r.MiBPerSecond << 20,
	}
}

// Check refuses a configuration that cannot work.
func (c Config) Check() error {
	if c.Relay.DataMiB > maxRelayMiB {
		return fmt.Errorf("%w: relay.dataMiB: %d is above %d", service.ErrConfig, c.Relay.DataMiB, int64(maxRelayMiB))
	}
	if c.Relay.MiBPerSecond > maxRelayMiB {
		return fmt.Errorf("%w: relay.mibPerSecond: %d is above %d", service.ErrConfig, c.Relay.MiBPerSecond,
			int64(maxRelayMiB))
	}
	if err := c.Relay.limits().Check(); err != nil {
		return fmt.Errorf("%w: relay: %w", service.ErrConfig, err)
	}
	if c.NAT.DialOutOnly {
		switch {
		case len(c.Listen) > 0 || len(c.Announce) > 0:
			return fmt.Errorf("%w: nat.dialOutOnly: a peer that only dials out has nothing to listen on; "+
				"leave listen and announce empty", service.ErrConfig)
		case c.Relay.Serve:
			return fmt.Errorf("%w: relay.serve: a peer that only dials out (nat.dialOutOnly) cannot relay",
				service.ErrConfig)
		}
	}
	if _, err := infos("nat.relays", c.NAT.Relays); err != nil {
		return err
	}
	_, err := c.blocked()
	return err
}

// blocked returns the block list: peer ids, or the same keys as Solana addresses.
func (c Config) blocked() ([]peer.ID, error) {
	var out []peer.ID
	for i, text := range c.Block {
		id, err := ParsePeer(text)
		if err != nil {
			return nil, fmt.Errorf("%w: block[%d]: %w", service.ErrConfig, i, err)
		}
		out = append(out, id)
	}
	return out, nil
}

// ParsePeer reads a peer's name: its libp2p id, or the same key as a Solana address.
func ParsePeer(text string) (peer.ID, error) {
	if id, err := peer.Decode(text); err == nil {
		if _, err := p2p.KeyFromPeerID(id); err != nil {
			return "", fmt.Errorf("%q: %w", text, err)
		}
		return id, nil
	}
	k, err := sign.ParseKey(text)
	if err != nil {
		return "", fmt.Errorf("%q is neither a peer id (12D3Koo…) nor a key", text)
	}
	return p2p.PeerIDFromKey(k)
}

// Host returns the host's configuration of a peer that lives in home, without its key and network.
func (c Config) Host(home string) (p2p.Config, error) {
	boot, err := infos("bootstrap", c.Bootstrap)
	if err != nil {
		return p2p.Config{}, err
	}
	relays, err := infos("nat.relays", c.NAT.Relays)
	if err != nil {
		return p2p.Config{}, err
	}
	block, err := c.blocked()
	if err != nil {
		return p2p.Config{}, err
	}
	out := p2p.Config{
		Listen: c.Listen, Announce: c.Announce, Bootstrap: boot, Block: block, PlainUDP: c.PlainUDP,
		PeerstoreDir: filepath.Join(home, "peers"),
		NAT: p2p.NAT{
			Auto: c.NAT.Auto, PortMap: c.NAT.PortMap, DialOutOnly: c.NAT.DialOutOnly, Relays: relays,
			Serve: c.Relay.Serve, Limits: c.Relay.limits(),
		},
	}
	if c.PrivateNetwork != "" {
		path := c.PrivateNetwork
		if !filepath.IsAbs(path) {
			path = filepath.Join(home, path)
		}
		if out.PSK, err = p2p.LoadPSK(path); err != nil {
			return out, fmt.Errorf("%w: privateNetwork: %w", service.ErrConfig, err)
		}
	}
	return out, nil
}

// infos reads full multiaddrs.
func infos(field string, addrs []string) ([]peer.AddrInfo, error) {
	var all []ma.Multiaddr
	for i, text := range addrs {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			return nil, fmt.Errorf("%w: %s[%d]: %q: %w", service.ErrConfig, field, i, text, err)
		}
		if _, err := peer.AddrInfoFromP2pAddr(a); err != nil {
			return nil, fmt.Errorf("%w: %s[%d]: %q does not end in /p2p/ and the peer's id", service.ErrConfig, field,
				i, text)
		}
		all = append(all, a)
	}
	out, err := peer.AddrInfosFromP2pAddrs(all...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", service.ErrConfig, field, err)
	}
	return out, nil
}
