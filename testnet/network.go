// Package testnet runs a whole network of peers on one machine: real peer
// processes on loopback, each with its own home, and a local Solana that they
// are paid on. One directory holds everything.
//
//	<dir>/testnet.json     what runs: processes, addresses, genesis
//	<dir>/peer-N/          home of peer N, with its log peer.log
//	<dir>/buyer-N/         home of a peer that sells nothing
//
// The network lives in the process that started it: a demonstration, a test or
// the background process of `starling testnet up`. It ends with that process.
package testnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/testnet/localnet"
)

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
	Env       []string           // added to the peers' environment
	Say       func(format string, args ...any)
}

// The testnet's own numbers: slots of 100 ms, a receipt every second.
const (
	slotMillis    = 100
	intervalSlots = 10
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
	if o.Unit == (node.Unit{}) {
		o.Unit = node.Unit{MilliCPU: 1000, MemoryMiB: 512, DiskMiB: 1024}
	}
	if o.Price == nil {
		o.Price = func(int) string { return "0.36" }
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
	return o, nil
}

// Network is a running testnet.
type Network struct {
	Dir     string         `json:"dir"`
	PID     int            `json:"pid"`     // of the process that holds it
	Started uint64         `json:"started"` // that process's start time, so that another one under the same number is not taken for it
	RPC     string         `json:"rpc"`
	Genesis market.Genesis `json:"genesis"`
	Peers   []*Peer        `json:"peers"` // providers, then buyers
	Ready   bool           `json:"ready"`

	opts  Options
	chain *localnet.Chain
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
	o.Say("starting a local Solana")
	if o.RPC == "" {
		n.chain, err = localnet.Start(ctx, localnet.Config{SlotMillis: slotMillis})
	} else {
		n.chain, err = localnet.Attach(ctx, o.RPC, localnet.Config{})
	}
	if err != nil {
		return n, fmt.Errorf("starting the chain: %w", err)
	}
	n.RPC = n.chain.URL()
	n.Genesis = n.chain.Genesis("testnet", intervalSlots)
	o.Say("chain is up at %s after %v", n.RPC, time.Since(began).Round(time.Millisecond))
	if err := n.makeHomes(ctx); err != nil {
		return n, err
	}
	for _, p := range n.Peers {
		if err := p.start(); err != nil {
			return n, err
		}
	}
	if err := n.save(); err != nil {
		return n, err
	}
	if err := n.WaitReady(ctx); err != nil {
		return n, err
	}
	n.Ready = true
	o.Say("%d peers are up after %v", len(n.Peers), time.Since(began).Round(time.Millisecond))
	return n, n.save()
}

// makeHomes writes the peers' homes and funds their wallets.
func (n *Network) makeHomes(ctx context.Context) error {
	o := n.opts
	ports, err := freePorts(o.Providers + o.Buyers)
	if err != nil {
		return err
	}
	var wallets []localnet.Wallet
	var boot []string
	type home struct {
		peer *Peer
		cfg  homeConfig
	}
	var homes []home
	for i := range o.Providers + o.Buyers {
		p := &Peer{Name: fmt.Sprintf("peer-%d", i+1), binary: o.Binary, env: o.Env}
		cfg := homeConfig{Port: ports[i], RPC: n.RPC, Units: o.Units, Unit: o.Unit}
		if cfg.Provide = i < o.Providers; cfg.Provide {
			cfg.Price = o.Price(i)
		} else {
			p.Name = fmt.Sprintf("buyer-%d", i+1-o.Providers)
		}
		p.Home = filepath.Join(o.Dir, p.Name)
		key, wallet, err := makeKeys(p.Home)
		if err != nil {
			return fmt.Errorf("making %s: %w", p.Home, err)
		}
		p.Key, p.Owner = key, wallet.Key()
		wallets = append(wallets, localnet.Wallet{Owner: wallet, Delegate: key, Tokens: fundTokens, Allowance: fundTokens, Lamports: fundLamports})
		if i < bootstraps {
			id, err := p2p.PeerIDFromKey(key)
			if err != nil {
				return err
			}
			boot = append(boot, fmt.Sprintf("/ip4/127.0.0.1/tcp/%d/p2p/%s", ports[i], id))
		}
		n.Peers = append(n.Peers, p)
		homes = append(homes, home{p, cfg})
	}
	genesis, err := json.MarshalIndent(n.Genesis, "", "  ")
	if err != nil {
		return err
	}
	for _, h := range homes {
		h.cfg.Bootstrap = boot
		var text strings.Builder
		if err := homeTemplate.Execute(&text, h.cfg); err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(filepath.Join(h.peer.Home, node.FileGenesis), genesis, 0o600),
			os.WriteFile(filepath.Join(h.peer.Home, node.FileConfig), []byte(text.String()), 0o600)); err != nil {
			return err
		}
	}
	n.opts.Say("funding %d wallets", len(wallets))
	return n.chain.Fund(ctx, wallets...)
}

type homeConfig struct {
	Port      int
	RPC       string
	Bootstrap []string
	Provide   bool
	Units     uint32
	Unit      node.Unit
	Price     string
}

var homeTemplate = template.Must(template.New("config").Parse(`# A peer of a local testnet.
listen:
  - /ip4/127.0.0.1/tcp/{{.Port}}
  - /ip4/127.0.0.1/udp/{{.Port}}/quic-v1
bootstrap:
{{- range .Bootstrap}}
  - {{.}}
{{- end}}
region: local
api: 127.0.0.1:0
solana:
  rpc: ["{{.RPC}}"]
{{- if .Provide}}
provide:
  enabled: true
  units: {{.Units}}
  unit: {milliCPU: {{.Unit.MilliCPU}}, memoryMiB: {{.Unit.MemoryMiB}}, diskMiB: {{.Unit.DiskMiB}}}
  price: "{{.Price}}"
{{- end}}
`))

// makeKeys makes a home with a peer key and an owner's wallet.
func makeKeys(home string) (sign.Key, sign.Private, error) {
	if err := os.RemoveAll(home); err != nil { // of an earlier testnet in the same directory
		return sign.Key{}, sign.Private{}, err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	priv, err := p2p.CreateIdentity(filepath.Join(home, node.FileIdentity))
	if err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	seed, err := p2p.SeedOf(priv)
	if err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	w, err := p2p.CreateIdentity(filepath.Join(home, node.FileWallet))
	if err != nil {
		return sign.Key{}, sign.Private{}, err
	}
	wseed, err := p2p.SeedOf(w)
	return sign.NewPrivate(seed).Key(), sign.NewPrivate(wseed), err
}

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

// Chain is the local chain.
func (n *Network) Chain() *localnet.Chain { return n.chain }

// Stop ends all peers, then the chain, and waits for them.
func (n *Network) Stop() error {
	errs := make([]error, len(n.Peers))
	var wg sync.WaitGroup
	for i, p := range n.Peers {
		wg.Go(func() { errs[i] = p.stop() })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if n.chain != nil {
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

// Load reads what is known of the testnet in dir, running or not.
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
