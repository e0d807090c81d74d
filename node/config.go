package node

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
)

// Files of a peer's home directory.
const (
	FileConfig   = "config.yaml"   // Config
	FileGenesis  = "genesis.json"  // market.Genesis of the network it is on
	FileIdentity = "identity.json" // the peer's key, Solana CLI keypair format
	FileWallet   = "wallet.json"   // the owner's key; only its address is needed by a running peer
	FileJournal  = "journal.db"
	FileAPI      = "api.json" // where the local API listens, and its token
)

// Config is a peer's configuration as its config.yaml has it. Zero values take
// the defaults of DefaultConfig.
type Config struct {
	// Listen are the multiaddrs to listen on; none means a free port on every interface, TCP and QUIC.
	Listen []string `yaml:"listen"`
	// Announce are multiaddrs told to others instead, for a host behind a forwarded port.
	Announce []string `yaml:"announce"`
	// Bootstrap are full multiaddrs (…/p2p/<peer>) of peers to join the network by. None is special.
	Bootstrap []string `yaml:"bootstrap"`
	// Region is the peer's own word for where it is: [a-z0-9-]{1,32}.
	Region string `yaml:"region"`
	// API is the loopback address of the local HTTP API; port 0 takes a free one.
	API string `yaml:"api"`
	// Owner is the address of the wallet that pays and is paid; empty means the one in wallet.json,
	// and without that the peer's own key.
	Owner string `yaml:"owner"`
	// Solana says how to reach the chain.
	Solana Solana `yaml:"solana"`
	// Provide says what the peer sells.
	Provide Provide `yaml:"provide"`
	// Buy bounds what the peer buys.
	Buy Buy `yaml:"buy"`
}

// Solana is how a peer reaches the chain.
type Solana struct {
	// RPC are JSON-RPC endpoints, tried in order.
	RPC []string `yaml:"rpc"`
}

// Provide is what a peer sells, within its operator's limits.
type Provide struct {
	Enabled bool `yaml:"enabled"`
	// Units is how many units of CPU class are sold; each has what Unit says.
	Units uint32 `yaml:"units"`
	Unit  Unit   `yaml:"unit"`
	// Price per unit-hour, a decimal number of tokens: "0.05".
	Price string `yaml:"price"`
	// MinTime and MaxTime bound one lease.
	MinTime time.Duration `yaml:"minTime"`
	MaxTime time.Duration `yaml:"maxTime"`
}

// Unit is the size of one unit.
type Unit struct {
	MilliCPU  uint32 `yaml:"milliCPU"`
	MemoryMiB uint32 `yaml:"memoryMiB"`
	DiskMiB   uint32 `yaml:"diskMiB"`
}

// Buy bounds what a peer buys for its user.
type Buy struct {
	// QuoteWindow is how long quotes for an order are waited for at the most.
	QuoteWindow time.Duration `yaml:"quoteWindow"`
	// MaxJobs is how many jobs may run at a time; those that only wait to be paid do not count.
	MaxJobs int `yaml:"maxJobs"`
}

// DefaultConfig is the configuration of a peer that says nothing else: it buys,
// and it sells nothing until its operator says what and for how much.
func DefaultConfig() Config {
	return Config{
		Region: "local",
		API:    "127.0.0.1:0",
		Provide: Provide{
			Units: 1, Unit: Unit{MilliCPU: 1000, MemoryMiB: 1024, DiskMiB: 2048},
			Price: "0.05", MinTime: time.Second, MaxTime: 24 * time.Hour,
		},
		Buy: Buy{QuoteWindow: 2 * time.Second, MaxJobs: 64},
	}
}

// ErrConfig says that a configuration cannot work; its text names the field.
var ErrConfig = errors.New("configuration")

const maxConfig = 1 << 20

// LoadConfig reads config.yaml; a file that is not there means the defaults. An
// unknown field or a wrong value is an error with its line.
func LoadConfig(path string) (Config, error) {
	c := DefaultConfig()
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

// Validate checks what can be checked without a network.
func (c Config) Validate() error {
	if err := market.Region(c.Region).Check(); err != nil {
		return fmt.Errorf("%w: region: %w", ErrConfig, err)
	}
	if c.Owner != "" {
		if _, err := sign.ParseKey(c.Owner); err != nil {
			return fmt.Errorf("%w: owner: %w", ErrConfig, err)
		}
	}
	p := c.Provide
	switch {
	case p.Enabled && (p.Units == 0 || p.Units > maxUnits):
		return fmt.Errorf("%w: provide.units: %d is not between 1 and %d", ErrConfig, p.Units, maxUnits)
	case p.Enabled && (p.Unit.MilliCPU == 0 || p.Unit.MemoryMiB == 0 || p.Unit.DiskMiB == 0):
		return fmt.Errorf("%w: provide.unit: milliCPU, memoryMiB and diskMiB must all be given", ErrConfig)
	case p.Enabled && (p.MinTime <= 0 || p.MaxTime < p.MinTime):
		return fmt.Errorf("%w: provide.minTime and maxTime: %v to %v is no range", ErrConfig, p.MinTime, p.MaxTime)
	case c.Buy.QuoteWindow <= 0 || c.Buy.QuoteWindow > time.Minute:
		return fmt.Errorf("%w: buy.quoteWindow: %v is not between 0 and 1m", ErrConfig, c.Buy.QuoteWindow)
	case c.Buy.MaxJobs < 1:
		return fmt.Errorf("%w: buy.maxJobs: %d is not at least 1", ErrConfig, c.Buy.MaxJobs)
	}
	return nil
}

// maxUnits bounds the units one peer sells: one tranche's leaves.
const maxUnits = 256

// LoadGenesis reads the facts of the network that a home directory is on.
func LoadGenesis(home string) (market.Genesis, error) {
	b, err := os.ReadFile(filepath.Join(home, FileGenesis))
	if err != nil {
		return market.Genesis{}, fmt.Errorf("reading the network's genesis: %w", err)
	}
	return market.ParseGenesis(b)
}
