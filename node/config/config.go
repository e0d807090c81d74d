// Package config is the files of a peer's home directory: the configuration, the keys, the facts of the network, and
// the names of the others.
//
// A section that one room reads is declared by that room, with its defaults and checks. The sections here have several
// readers.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/goccy/go-yaml"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	guard "github.com/starling-network/starling/node/buyer/guardian/settings"
	"github.com/starling-network/starling/node/buyer/settings"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/reach"
	"github.com/starling-network/starling/node/service"
)

// Config is a peer's configuration as its config.yaml has it. Zero values take
// the defaults of Default.
type Config struct {
	// Listen are the multiaddrs to listen on; none means a free port on every interface, TCP and QUIC.
	Listen []string `yaml:"listen"`
	// Announce are the multiaddrs that other peers receive instead, for a host behind a forwarded port.
	Announce []string `yaml:"announce"`
	// Bootstrap are full multiaddrs (…/p2p/<peer>) of peers to join the network by. None is special.
	Bootstrap []string `yaml:"bootstrap"`
	// NAT is the section about reaching a peer that cannot be dialled.
	NAT reach.NAT `yaml:"nat"`
	// PlainUDP makes clusters' networks do without the kernel's offloads for UDP, for machines on which those fail.
	PlainUDP bool `yaml:"plainUDP"`
	// Relay is the relaying for peers that cannot be dialled, and for light clients.
	Relay reach.Relay `yaml:"relay"`
	// PrivateNetwork is the file with the pre-shared key of a private network, as a path from the home directory;
	// empty means an open network.
	PrivateNetwork string `yaml:"privateNetwork"`
	// Block are peers that are refused: their ids, or their keys.
	Block []string `yaml:"block"`
	// Region is the peer's own word for where it is: [a-z0-9-]{1,32}.
	Region string `yaml:"region"`
	// API is the loopback address of the local HTTP API; port 0 selects a free port. Empty means a unix socket in the
	// home directory, closed to other users of the machine.
	API string `yaml:"api"`
	// Owner is the address of the wallet that pays and is paid; empty means the one in owner.address, and without
	// that file the peer's own key.
	Owner string `yaml:"owner"`
	// Solana is the section about the chain's endpoints and fees.
	Solana Solana `yaml:"solana"`
	// Provide is the units that the peer sells.
	Provide inventory.Provide `yaml:"provide"`
	// Docker is the container engine of units that are sold.
	Docker Docker `yaml:"docker"`
	// Inputs are the URLs of inputs that the peer reads for jobs.
	Inputs web.Inputs `yaml:"inputs"`
	// Egress is the part of the outside that containers reach.
	Egress Egress `yaml:"egress"`
	// Clusters is the conditions for units in clusters.
	Clusters inventory.Clusters `yaml:"clusters"`
	// Buy bounds the purchases of the peer.
	Buy settings.Buy `yaml:"buy"`
	// Entry is the service for light clients.
	Entry entry.Settings `yaml:"entry"`
	// Guard is the service for jobs with an absent owner.
	Guard guard.Guard `yaml:"guard"`
	// Metrics are the measurements that cost something, and their port.
	Metrics Metrics `yaml:"metrics"`
}

// Solana is how a peer reaches the chain.
type Solana struct {
	// RPC are JSON-RPC endpoints, tried in order.
	RPC []string `yaml:"rpc"`
	// Fees bound the bids of transactions for a place in a block, beside the fee for signatures.
	Fees Fees `yaml:"fees"`
}

// Fees are the limits of a peer's bids. A bid is never more than a tenth of the amount that a transaction moves, or
// 5,000 lamports.
type Fees struct {
	// MaxLamports is the most that a transaction bids; 0 means 1,000,000.
	MaxLamports uint64 `yaml:"maxLamports"`
	// TokenLamports is the value of one whole token; 0 means 5,000,000.
	TokenLamports uint64 `yaml:"tokenLamports"`
}

// Bids returns the fees as the chain's ledger takes them.
func (f Fees) Bids() chain.Fees {
	d := chain.DefaultFees()
	return chain.Fees{
		Least: d.Least, Most: cmp.Or(f.MaxLamports, d.Most), TokenLamports: cmp.Or(f.TokenLamports, d.TokenLamports),
	}
}

// Metrics is the measurements that cost something, and their port.
type Metrics struct {
	// Libp2p adds libp2p's own metrics: connections, streams and limits by protocol, DHT and gossip, NAT, relays.
	// They are counted all the time and take memory.
	Libp2p bool `yaml:"libp2p"`
	// Listen is the loopback address at which every user of this machine reads /metrics. If it is empty, only the local
	// API's own user does, over its socket.
	Listen string `yaml:"listen"`
}

// Sections of rooms, under the names that builders of a configuration use.
type (
	// Unit is the size of one unit.
	Unit = inventory.Unit
	// GPU is the machine's GPUs that are sold.
	GPU = inventory.GPU
	// Blocked is a buyer that is not served.
	Blocked = inventory.Blocked
	// Limits bound the spending.
	Limits = settings.Limits
)

// Default returns the default configuration: the peer buys, and sells nothing until its operator sets units and a
// price.
func Default() Config {
	return Config{
		Region: "local",
		NAT:    reach.NAT{Auto: true, PortMap: true}, Relay: reach.DefaultRelay(),
		Provide: inventory.Default(), Docker: Docker{Enabled: DockerAuto}, Inputs: web.Default(),
		Clusters: inventory.DefaultClusters(), Buy: settings.Default(), Entry: entry.Default(),
		Guard: guard.Default(),
	}
}

// ErrConfig means that a configuration cannot work; the error's text names the field.
var ErrConfig = service.ErrConfig

const maxConfig = 1 << 20

// Load reads config.yaml; a file that is not there means the defaults. An
// unknown field or a wrong value is an error with its line.
func Load(path string) (Config, error) {
	c := Default()
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return c, fmt.Errorf("reading configuration: %w", err)
	case st.Size() > maxConfig:
		return c, fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrConfig, path, st.Size(), maxConfig)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("reading configuration: %w", err)
	}
	if len(bytes.TrimSpace(b)) > 0 {
		if err := yaml.UnmarshalWithOptions(b, &c, yaml.DisallowUnknownField()); err != nil {
			return c, fmt.Errorf("%w: %s: %s", ErrConfig, path, yaml.FormatError(err, false, true))
		}
	}
	return c, c.Validate()
}

// Validate makes all checks of a configuration that need no network.
func (c Config) Validate() error {
	if err := market.Region(c.Region).Check(); err != nil {
		return fmt.Errorf("%w: region: %w", ErrConfig, err)
	}
	if c.Owner != "" {
		if _, err := sign.ParseKey(c.Owner); err != nil {
			return fmt.Errorf("%w: owner: %w", ErrConfig, err)
		}
	}
	for _, check := range []func() error{
		c.Reach().Check, c.Provide.Check, c.Docker.Check, c.Inputs.Check, c.Egress.Check, c.Clusters.Check, c.Buy.Check,
		c.Entry.Check, c.Guard.Check,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Reach returns the part of the configuration about the peer's place in the network.
func (c Config) Reach() reach.Config {
	return reach.Config{
		Listen: c.Listen, Announce: c.Announce, Bootstrap: c.Bootstrap, NAT: c.NAT, Relay: c.Relay,
		PrivateNetwork: c.PrivateNetwork, Block: c.Block, PlainUDP: c.PlainUDP,
	}
}
