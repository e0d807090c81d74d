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

// Options of a testnet. Zero values take the defaults beside them.
type Options struct {
	Dir       string // required: holds everything
	Binary    string // of the peers; this one
	Providers int    // peers that sell; 5
	Buyers    int    // peers that only buy
	Units     uint32 // of each provider; 2
	Unit      config.Unit
	Price     func(i int) string // of provider i per unit-hour; 0.36
	RPC       string             // of a Solana chain that runs already; "" starts one
	Chain     *localnet.Chain    // one that is made already, and that the caller closes
	Connected int                // peers that a peer must find to be ready; 0: its bootstrap peers
	Env       []string           // added to the peers' environment
	Interval  uint64             // slots between receipts; 10, 100 among more than 30 peers
	Place     func(i int) Place  // where peer i runs, providers first; on this machine's loopback
	// address of the container engine of provider i, whose containers have the internet; the one that it finds, if any
	Engine     func(i int) string
	Registries []string // of images, on loopback, that providers with such an engine may read from
	// that provider i sells beside its units; none. With mocks among them the network is a simulated one
	GPUs func(i int) GPUs
	PSK  string // file with the pre-shared key of a private network, absolute; peers then listen on TCP alone
	Say  func(format string, args ...any)

	Free        bool          // a free network: no chain, no money; Price is not asked
	Audit       time.Duration // length of an audit's window, at least MinAudit; 0: nothing is audited
	BuyersRelay bool          // those that sell relay for nobody; else all do

	// Twin gives peers, by number, the key and the wallet of an earlier one: one peer in two processes that do not know
	// of each other.
	Twin map[int]int
	// Links says by which peers each joins, by number; missing ones join by the first few.
	Links map[int][]int
	// Refuse lists the peers that each refuses, by number, whichever of both dials.
	Refuse map[int][]int
	// Late are peers, by number, that Start leaves to the caller to start.
	Late []int
}

// GPUs are those that a provider sells.
type GPUs struct {
	Mock    string // of NVIDIA's, gpu.Mocks; empty: the machine's own
	Devices string // which of them, as --gpus says it; empty: none
}

// Place is where a peer runs, when that is not this machine's loopback.
type Place struct {
	Enter  func() error // moves the calling thread, and with it the peer's process, there
	Listen []string     // multiaddrs
	Boot   string       // multiaddr at which others know it from the start; "" for none
	Region string       // "": local
	RPC    string       // the chain as it is seen from there
	Config string       // more lines of its config.yaml
	Late   bool         // as if Options.Late named it
}

// The testnet's own numbers: slots of 100 ms, a receipt every second, or among many peers every ten, as on most
// networks: one machine does not sign for all of them every second.
const (
	SlotMillis    = 100
	intervalSlots = 10
	many          = 30
	manySlots     = 100
	fundTokens    = 1_000_000_000 // base units of each peer's owner: 1,000 tokens
	fundLamports  = 1_000_000_000 // of each peer's key, for fees
	bootstraps    = 3             // how many peers everybody knows from the start
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
		if o.Audit > 0 { // all units answer at once, and half of this machine is for their hardware's work
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
		return o, fmt.Errorf("%d peers in all: audits need %d, which judge one another",
			o.Providers+o.Buyers, audit.MinBonded)
	}
	return o, nil
}
