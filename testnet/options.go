package testnet

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/verify/audit"
)

// MinAudit is the shortest window that leaves time for an audit: a block is final only after some seconds.
const MinAudit = 30 * time.Second

// Options of a testnet. The default of a zero value is in the comment of the field.
type Options struct {
	Dir       string // directory of the testnet; required
	Binary    string // the peers' program; this one
	Providers int    // selling peers; 5
	Buyers    int    // peers that only buy
	Units     uint32 // of each provider; 2
	Unit      config.Unit
	Price     func(i int) string // of provider i per unit-hour; 0.36
	RPC       string             // URL of a running Solana chain; "" starts one
	Chain     *localnet.Chain    // an existing chain, which the caller closes; optional
	Connected int                // least connections of a ready peer; 0: the number of its bootstrap peers
	Env       []string           // added to the peers' environment
	Interval  uint64             // slots between receipts; 10, 100 among more than 30 peers
	Place     func(i int) Place  // place of peer i, providers first; this machine's loopback
	// address of the container engine of provider i, with internet access; the default engine, if any
	Engine     func(i int) string
	Registries []string // image registries on loopback that providers with such an engine may read
	// GPUs that provider i sells besides its units; none. With mocks among them the network is a simulated one
	GPUs func(i int) GPUs
	// Config has additional lines of each peer's config.yaml.
	Config string
	PSK    string // absolute path of the pre-shared key of a private network; peers then listen on TCP alone
	Say    func(format string, args ...any)

	Free        bool          // a free network: no chain, no money; Price is not called
	Audit       time.Duration // length of an audit's window, at least MinAudit; 0 disables audits
	BuyersRelay bool          // only peers that do not sell are relays; by default all peers are

	// Twin gives a peer, by number, the key and the wallet of an earlier peer: one identity in two independent
	// processes.
	Twin map[int]int
	// Links are the peers through which each peer joins, by number; the default is the first few.
	Links map[int][]int
	// Refuse lists the peers that each peer refuses, by number, for connections in both directions.
	Refuse map[int][]int
	// Late are peers, by number, that the caller starts instead of Start.
	Late []int
}

// GPUs are the GPUs of a provider.
type GPUs struct {
	Mock    string // name in gpu.Mocks; "" uses the machine's own GPUs
	Devices string // selector in the form of --gpus; "" for none
}

// Place is the place of a peer outside this machine's loopback.
type Place struct {
	Enter  func() error // moves the calling thread, and with it the peer's process, there
	Listen []string     // multiaddrs
	Boot   string       // multiaddr in the other peers' bootstrap; "" for none
	Region string       // "": local
	RPC    string       // URL of the chain at that place
	Config string       // additional lines of config.yaml
	Late   bool         // as if Options.Late contained it
}

// The testnet's constants: slots of 100 ms, and a receipt every second, or every ten seconds among many peers, as on
// most networks: one machine cannot sign for all of them every second.
const (
	SlotMillis    = 100
	intervalSlots = 10
	many          = 30
	manySlots     = 100
	fundTokens    = 1_000_000_000 // base units of each peer's owner: 1,000 tokens
	fundLamports  = 1_000_000_000 // of each peer's key, for fees
	bootstraps    = 3             // number of bootstrap peers
	readyTime     = 60 * time.Second
)

func (o Options) withDefaults() (Options, error) {
	if o.Providers == 0 {
		o.Providers = 5
	}
	if o.Units == 0 {
		o.Units = 2
	}
	if o.Unit == (config.Unit{}) {
		o.Unit = config.Unit{MilliCPU: 1000, MemoryMiB: 512, DiskMiB: 1024}
		if o.Audit > 0 { // all units answer at once, and use half of this machine
			o.Unit.MilliCPU = min(1000, uint32(max(runtime.NumCPU()*500/max(o.Providers*int(o.Units), 1), 10)))
		}
	}
	if o.Interval == 0 {
		o.Interval = intervalSlots
		if o.Providers+o.Buyers > many {
			o.Interval = manySlots
		}
	}
	switch {
	case o.Free:
		o.Price = func(int) string { return "0" }
	case o.Price == nil:
		o.Price = func(int) string { return "0.36" }
	}
	if o.GPUs == nil {
		o.GPUs = func(int) GPUs { return GPUs{} }
	}
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	if o.Binary == "" {
		self, err := os.Executable()
		if err != nil {
			return o, fmt.Errorf("finding this program: %w", err)
		}
		o.Binary = self
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return o, fmt.Errorf("a testnet needs a directory: %w", err)
	}
	o.Dir = dir
	if o.Audit > 0 && o.Providers+o.Buyers < audit.MinBonded {
		return o, fmt.Errorf("%d peers in all: audits need %d to judge one another",
			o.Providers+o.Buyers, audit.MinBonded)
	}
	return o, nil
}
