package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime/docker/fetch"
	"github.com/starling-network/starling/p2p/relay"
)

// Files of a peer's home directory.
const (
	FileConfig   = "config.yaml"   // Config
	FileGenesis  = "genesis.json"  // market.Genesis of the network it is on
	FileIdentity = "identity.json" // the peer's key, Solana CLI keypair format
	FileWallet   = "wallet.json"   // the owner's key, for commands that need its signature; a running peer does not read it
	FileOwner    = "owner.address" // the owner's address, one line
	FilePSK      = "swarm.key"     // where init puts the pre-shared key of a private network
	FileJournal  = "journal.db"
	FilePID      = "peer.pid" // of the process that runs
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
	// NAT says how the peer is reached when it cannot be dialled.
	NAT NAT `yaml:"nat"`
	// PlainUDP makes clusters' networks do without the kernel's offloads for UDP, for machines on which those fail.
	PlainUDP bool `yaml:"plainUDP"`
	// Relay says what it does for others that cannot be, and for light clients.
	Relay Relay `yaml:"relay"`
	// PrivateNetwork is the file with the pre-shared key of a private network, as a path from the home directory; empty means
	// an open network.
	PrivateNetwork string `yaml:"privateNetwork"`
	// Block are peers that are refused: their ids, or their keys.
	Block []string `yaml:"block"`
	// Region is the peer's own word for where it is: [a-z0-9-]{1,32}.
	Region string `yaml:"region"`
	// API is the loopback address of the local HTTP API, where port 0 takes a free one; empty means a unix socket in the home
	// directory, which other users of the machine cannot connect to.
	API string `yaml:"api"`
	// Owner is the address of the wallet that pays and is paid; empty means the one in owner.address, and without that file the
	// peer's own key.
	Owner string `yaml:"owner"`
	// Solana says how to reach the chain.
	Solana Solana `yaml:"solana"`
	// Provide says what the peer sells.
	Provide Provide `yaml:"provide"`
	// Docker says which container engine runs what is sold.
	Docker Docker `yaml:"docker"`
	// Egress says what containers reach outside.
	Egress Egress `yaml:"egress"`
	// Clusters reports whether what is sold may be members of clusters.
	Clusters Clusters `yaml:"clusters"`
	// Buy bounds what the peer buys.
	Buy Buy `yaml:"buy"`
	// Entry says what the peer does for light clients.
	Entry Entry `yaml:"entry"`
	// Guard says what the peer does for jobs whose owners are away.
	Guard Guard `yaml:"guard"`
	// Metrics says what the peer measures of itself beside what costs nothing.
	Metrics Metrics `yaml:"metrics"`
}

// Entry is what a peer does for light clients, who are no part of the network: it finds offers for them, gossips their
// orders and passes their calls to the chain on. The limits are for all clients together; 0 takes the default.
type Entry struct {
	Serve bool `yaml:"serve"`
	// Finds, Orders and Calls are how many look-ups of offers, orders and calls to the chain a second.
	Finds  float64 `yaml:"finds"`
	Orders float64 `yaml:"orders"`
	Calls  float64 `yaml:"calls"`
}

// Solana is how a peer reaches the chain.
type Solana struct {
	// RPC are JSON-RPC endpoints, tried in order.
	RPC []string `yaml:"rpc"`
	// Fees bound what transactions bid for a place in a block, beside the fee for signatures.
	Fees Fees `yaml:"fees"`
}

// Fees are what a peer's transactions may cost. A bid is never more than a tenth of what a transaction is about, or 5,000 lamports.
type Fees struct {
	// MaxLamports is the most that a transaction bids; 0 means 1,000,000.
	MaxLamports uint64 `yaml:"maxLamports"`
	// TokenLamports is what one whole token is worth; 0 means 5,000,000.
	TokenLamports uint64 `yaml:"tokenLamports"`
}

// bids are the fees as the chain's ledger takes them.
func (f Fees) bids() chain.Fees {
	d := chain.DefaultFees()
	return chain.Fees{Least: d.Least, Most: cmp.Or(f.MaxLamports, d.Most), TokenLamports: cmp.Or(f.TokenLamports, d.TokenLamports)}
}

// Docker is the container engine of a peer that sells.
type Docker struct {
	// Enabled is "auto" to offer containers when there is an engine, "true" to refuse to start without one, "false" to offer none.
	Enabled string `yaml:"enabled"`
	// Host is the engine's socket on this machine, as DOCKER_HOST has it; empty means DOCKER_HOST or the usual one.
	Host string `yaml:"host"`
	// Runtime is the OCI runtime that containers of leases run under, by its name in the engine's daemon.json; empty is the engine's own.
	Runtime string `yaml:"runtime"`
	// Registries are those of the operator's own network that images of jobs may come from, HOST or HOST:PORT: over plain HTTP too, and from
	// private addresses. Other registries must be on the internet, with HTTPS.
	Registries []string `yaml:"registries"`
	// MaxImageMiB bounds an image, unpacked; 0 is 64 GiB.
	MaxImageMiB uint32 `yaml:"maxImageMiB"`
	// ImagesPercent is how full the engine's disk may be before images that jobs brought are removed, those that were used longest ago first;
	// 0 is 85. Images that came otherwise stay.
	ImagesPercent uint32 `yaml:"imagesPercent"`
	// FreeMiB is what no image may take of the engine's disk; 0 is 4 GiB.
	FreeMiB uint32 `yaml:"freeMiB"`
}

// runtimeName is what an engine calls an OCI runtime.
var runtimeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// check holds what is said of the engine, its runtime and images to what it may be.
func (d Docker) check() error {
	if !slices.Contains([]string{"", dockerAuto, dockerOn, dockerOff}, d.Enabled) {
		return fmt.Errorf("%w: docker.enabled: %.40q is none of auto, true and false", ErrConfig, d.Enabled)
	}
	if d.Runtime != "" && !runtimeName.MatchString(d.Runtime) {
		return fmt.Errorf("%w: docker.runtime: %.40q is no name of an OCI runtime, as the engine's daemon.json has them", ErrConfig, d.Runtime)
	}
	if _, err := fetch.New(d.Registries); err != nil {
		return fmt.Errorf("%w: docker.registries: %w", ErrConfig, err)
	}
	if d.ImagesPercent > 100 {
		return fmt.Errorf("%w: docker.imagesPercent: %d is more than 100", ErrConfig, d.ImagesPercent)
	}
	return nil
}

// The values of Docker.Enabled.
const (
	dockerAuto = "auto"
	dockerOn   = "true"
	dockerOff  = "false"
)

// Clusters is what a peer that sells has to do with clusters: their members send to one another through its network.
type Clusters struct {
	// Accept is false where units are sold to no cluster; offers say so.
	Accept bool `yaml:"accept"`
	// MaxMembers is how many members of clusters run here at a time; 0 is no limit.
	MaxMembers int `yaml:"maxMembers"`
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
	// MinReputation is the least reputation of a provider whose quote is taken, between 0 and 1; 0 means that all are, in the order
	// of the buyer's weights.
	MinReputation float64 `yaml:"minReputation"`
	// Limits bound what is spent, whoever asks for it; `starling peer key add` sets more for others than the peer's own user.
	Limits Limits `yaml:"limits"`
	// Webhooks bounds where jobs may have their webhooks.
	Webhooks Webhooks `yaml:"webhooks"`
}

// DefaultConfig is the configuration of a peer that says nothing else: it buys,
// and it sells nothing until its operator says what and for how much.
func DefaultConfig() Config {
	return Config{
		Region: "local",
		NAT:    NAT{Auto: true, PortMap: true},
		Relay: Relay{
			DataMiB: relay.DefaultData >> 20, Duration: relay.DefaultDuration, Circuits: relay.DefaultCircuits,
			PerPeer: relay.DefaultPerPeer, Reservations: relay.DefaultReservations, PerIP: relay.DefaultPerIP,
			MiBPerSecond: relay.DefaultRate >> 20,
		},
		Provide: Provide{
			Units: 1, Unit: Unit{MilliCPU: 1000, MemoryMiB: 1024, DiskMiB: 2048},
			Price: "0.05", MinTime: time.Second, MaxTime: 24 * time.Hour,
			Retain: 24 * time.Hour, RetainMiB: 20 << 10,
			StartWhen: StartOptimistic, Claim: Claim{Amount: "1", Every: time.Hour},
		},
		Docker: Docker{Enabled: dockerAuto}, Clusters: Clusters{Accept: true},
		Buy:   Buy{QuoteWindow: 2 * time.Second, MaxJobs: 64},
		Entry: Entry{Serve: true},
		Guard: Guard{Accept: true, MaxJobs: 64, Share: 0.005, MaxMiB: 4 << 10, Longest: 31 * 24 * time.Hour},
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
	if err := c.validateReach(); err != nil {
		return err
	}
	if err := c.Provide.validate(); err != nil {
		return err
	}
	if err := c.Docker.check(); err != nil {
		return err
	}
	if _, _, err := c.egress(); err != nil {
		return err
	}
	switch {
	case c.Buy.QuoteWindow <= 0 || c.Buy.QuoteWindow > time.Minute:
		return fmt.Errorf("%w: buy.quoteWindow: %v is not between 0 and 1m", ErrConfig, c.Buy.QuoteWindow)
	case c.Entry.Finds < 0 || c.Entry.Calls < 0 || c.Entry.Orders < 0 || c.Entry.Orders > maxEntryOrders:
		return fmt.Errorf("%w: entry: finds %g, orders %g, calls %g: want none below 0 and at most %d orders a second, others pass on no more",
			ErrConfig, c.Entry.Finds, c.Entry.Orders, c.Entry.Calls, maxEntryOrders)
	case !(c.Buy.MinReputation >= 0 && c.Buy.MinReputation < 1):
		return fmt.Errorf("%w: buy.minReputation: %g is not at least 0 and below 1", ErrConfig, c.Buy.MinReputation)
	case c.Clusters.MaxMembers < 0:
		return fmt.Errorf("%w: clusters.maxMembers: %d is below 0", ErrConfig, c.Clusters.MaxMembers)
	case c.Buy.MaxJobs < 1:
		return fmt.Errorf("%w: buy.maxJobs: %d is not at least 1", ErrConfig, c.Buy.MaxJobs)
	}
	if err := c.Guard.check(); err != nil {
		return err
	}
	return c.Buy.Limits.check()
}

// maxEntryOrders is how many orders a second one entry may publish for its clients: less than what others take from it.
const maxEntryOrders = relayedPerEntry * 3 / 4

// Between these lies how long results are kept: a buyer must have the time to fetch them, and disks do not grow.
const (
	minRetain = time.Minute
	maxRetain = 30 * 24 * time.Hour
)

// LoadGenesis reads the facts of the network that a home directory is on.
func LoadGenesis(home string) (market.Genesis, error) {
	b, err := os.ReadFile(filepath.Join(home, FileGenesis))
	if err != nil {
		return market.Genesis{}, fmt.Errorf("reading the network's genesis: %w", err)
	}
	return market.ParseGenesis(b)
}
