// Package testnet runs a whole network of peers on one machine: real peer processes on loopback, each with its own
// home, and a local Solana for payments. One directory holds everything.
//
//	<dir>/testnet.json     state: processes, addresses, genesis
//	<dir>/faucet.json      key that makes test tokens
//	<dir>/peer-N/          home of peer N, with its log peer.log
//	<dir>/buyer-N/         home of a peer that sells nothing
//
// The network lives in the process that started it: a demonstration, a test or the background process of `starling
// testnet up`. It ends with that process.
package testnet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node"
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
	Unit      node.Unit
	Price     func(i int) string // of provider i per unit-hour; 0.36
	RPC       string             // of a Solana chain that runs already; "" starts one
	Chain     *localnet.Chain    // one that is made already, and that the caller closes
	Connected int                // how many others a peer must have found to be ready; all that are known from the start
	Env       []string           // added to the peers' environment
	Interval  uint64             // slots between receipts; 10
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

// The testnet's own numbers: slots of 100 ms, a receipt every second.
const (
	SlotMillis    = 100
	intervalSlots = 10
	FundTokens    = 1_000_000_000 // base units of each peer's owner: 1,000 tokens
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
	if o.Unit == (node.Unit{}) {
		o.Unit = node.Unit{MilliCPU: 1000, MemoryMiB: 512, DiskMiB: 1024}
		if o.Audit > 0 { // all units answer at once, and half of this machine is for their hardware's work
			o.Unit.MilliCPU = min(1000, uint32(max(runtime.NumCPU()*500/max(o.Providers*int(o.Units), 1), 10)))
		}
	}
	if o.Interval == 0 {
		o.Interval = intervalSlots
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
		return o, fmt.Errorf("%d peers in all: audits need %d, which judge one another", o.Providers+o.Buyers, audit.MinBonded)
	}
	return o, nil
}

// Network is a running testnet.
type Network struct {
	Dir string `json:"dir"`
	PID int    `json:"pid"` // of the process that holds it
	// that process's start time, so that another one under the same number is not taken for it
	Started uint64         `json:"started"`
	RPC     string         `json:"rpc,omitempty"` // of the chain; empty on a free network
	Genesis market.Genesis `json:"genesis"`
	Peers   []*Peer        `json:"peers"` // providers, then buyers
	Ready   bool           `json:"ready"`

	opts  Options
	chain *localnet.Chain

	borrowed bool // the chain is the caller's
}

// Start makes the directory, starts the chain and all peers and returns when
// every peer sees the chain and has found others. On an error nothing is left
// running.
func Start(ctx context.Context, o Options) (n *Network, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if old, err := Load(o.Dir); err == nil && old.Alive() {
		return nil, fmt.Errorf("a testnet runs in %s already (process %d); stop it with `starling testnet down --dir %s`", o.Dir, old.PID, o.Dir)
	}
	n = &Network{Dir: o.Dir, PID: os.Getpid(), Started: startTime(os.Getpid()), opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop())
			n = nil
		}
	}()
	began := time.Now()
	if o.Free {
		n.Genesis, err = market.FreeGenesis("testnet", rand.Reader)
		n.Genesis.SlotMillis, n.Genesis.IntervalSlots = SlotMillis, o.Interval
	} else {
		err = n.startChain(ctx, began)
	}
	if err != nil {
		return n, err
	}
	for i := range o.Providers {
		n.Genesis.Simulated = n.Genesis.Simulated || o.GPUs(i).Mock != ""
	}
	if err := n.Genesis.Validate(); err != nil {
		return n, err
	}
	if err := n.makeHomes(ctx); err != nil {
		return n, err
	}
	if n.chain != nil {
		if err := n.saveFaucet(); err != nil {
			return n, err
		}
	}
	started := 0
	for _, p := range n.Peers {
		if p.place.Late {
			continue
		}
		if err := p.start(); err != nil {
			return n, err
		}
		started++
	}
	if err := n.save(); err != nil {
		return n, err
	}
	if err := n.WaitReady(ctx); err != nil {
		return n, err
	}
	if o.Audit > 0 {
		if err := n.bond(ctx); err != nil {
			return n, fmt.Errorf("bonding what committees are drawn by: %w", err)
		}
	}
	n.Ready = true
	o.Say("%d peers are up after %v", started, time.Since(began).Round(time.Millisecond))
	return n, n.save()
}

// startChain starts a local Solana, or takes the one that the options name, and deploys Starling's program on it.
func (n *Network) startChain(ctx context.Context, began time.Time) (err error) {
	o := n.opts
	o.Say("starting a local Solana")
	switch {
	case o.Chain != nil:
		n.chain, n.borrowed = o.Chain, true
	case o.RPC == "":
		n.chain, err = localnet.Start(ctx, localnet.Config{SlotMillis: SlotMillis})
	default:
		n.chain, err = localnet.Attach(ctx, o.RPC, localnet.Config{})
	}
	if err != nil {
		return fmt.Errorf("starting the chain: %w", err)
	}
	n.RPC = n.chain.URL()
	o.Say("chain is up at %s after %v", n.RPC, time.Since(began).Round(time.Millisecond))
	if n.Genesis, err = n.chain.EscrowGenesis(ctx, "testnet", o.Interval, func(p *program.Params) {
		p.AuditSlots = uint32(market.Genesis{SlotMillis: SlotMillis}.SlotsIn(o.Audit))
	}); err != nil {
		return fmt.Errorf("setting up the network: %w", err)
	}
	if n.Genesis.AuditSlots = n.Genesis.SlotsIn(o.Audit); n.Genesis.AuditSlots > 0 {
		n.Genesis.AuditOneIn = 1
	}
	o.Say("program %s is deployed after %v", n.Genesis.Program, time.Since(began).Round(time.Millisecond))
	return nil
}

// bondTokens is the bond of each judge, of the 1,000 that its owner has.
const bondTokens = "250"

// bond has the providers bond a stake, as their users would, so that they judge one another; where they are too few,
// the first buyers as well.
func (n *Network) bond(ctx context.Context) error {
	judges := n.Peers[:max(n.opts.Providers, audit.MinBonded)]
	n.opts.Say("%d peers bond %s tokens each, by which they are drawn to judge one another", len(judges), bondTokens)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(bonders)
	for _, p := range judges {
		if !p.Running() {
			continue
		}
		g.Go(func() error {
			for _, args := range [][]string{{"stake", "register"}, {"stake", "add", bondTokens}, {"stake", "bond", "all"}} {
				if err := command(gctx, func(string, ...any) {}, n.opts.Binary, p.Home, nil, args...); err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// bonders is how many peers bond at a time.
const bonders = 8

// freePorts finds n ports that are free for TCP and UDP on loopback.
func freePorts(n int) ([]int, error) {
	var out []int
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	for tries := 0; len(out) < n && tries < 20*n+100; tries++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding free ports: %w", err)
		}
		open = append(open, l)
		port := l.Addr().(*net.TCPAddr).Port
		u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			continue
		}
		u.Close()
		out = append(out, port)
	}
	if len(out) < n {
		return nil, fmt.Errorf("only %d of %d free ports were found on loopback", len(out), n)
	}
	return out, nil
}

// WaitReady waits until every running peer sees the chain and has found others.
func (n *Network) WaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	want := min(len(n.Peers)-1, bootstraps)
	if n.opts.Connected > 0 {
		want = n.opts.Connected
	}
	errs := make([]error, len(n.Peers))
	var wg sync.WaitGroup
	for i, p := range n.Peers {
		if p.Running() {
			wg.Go(func() { _, errs[i] = p.ready(ctx, want) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Providers are the peers that sell, Buyers the others.
func (n *Network) Providers() []*Peer { return n.Peers[:n.opts.Providers] }

// Buyers are the peers that sell nothing.
func (n *Network) Buyers() []*Peer { return n.Peers[n.opts.Providers:] }

// Chain is the local chain; nil on a free network.
func (n *Network) Chain() *localnet.Chain { return n.chain }

// ledger looks at the chain without a wallet of its own.
func (n *Network) ledger() (*solana.Ledger, error) {
	return solana.NewReader([]string{n.RPC}, n.Genesis)
}

// Stop ends all peers, then the chain, and waits for them.
func (n *Network) Stop() error {
	errs := make([]error, len(n.Peers))
	var wg sync.WaitGroup
	for i, p := range n.Peers {
		wg.Go(func() { errs[i] = p.stop() })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if n.chain != nil && !n.borrowed {
		err = errors.Join(err, n.chain.Close())
	}
	if rm := os.Remove(filepath.Join(n.Dir, stateFile)); !errors.Is(rm, os.ErrNotExist) {
		err = errors.Join(err, rm)
	}
	return err
}

const stateFile = "testnet.json"

func (n *Network) save() error {
	b, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(n.Dir, stateFile+".new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(n.Dir, stateFile))
}

// Load reads the state of the testnet in dir, running or not.
func Load(dir string) (*Network, error) {
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, err
	}
	n := &Network{}
	if err := json.Unmarshal(b, n); err != nil {
		return nil, fmt.Errorf("reading %s: %w", stateFile, err)
	}
	return n, nil
}
