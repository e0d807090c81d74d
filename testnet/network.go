// Package testnet runs a whole network of peers on one machine: real peer processes on loopback, each with its own
// home, and a local Solana for payments. One directory contains all files.
//
//	<dir>/testnet.json     state: processes, addresses, genesis
//	<dir>/faucet.json      key that makes test tokens
//	<dir>/peer-N/          home of peer N, with its log peer.log
//	<dir>/buyer-N/         home of a peer that sells nothing
//
// The network belongs to the process that started it: a demonstration, a test or the background process of `starling
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
	"sync"
	"time"

	"github.com/starling-network/starling/chain/program/account"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/wholefile"
	"github.com/starling-network/starling/testnet/localnet"
	"github.com/starling-network/starling/verify/audit"
	"golang.org/x/sync/errgroup"
)

// Network is a running testnet.
type Network struct {
	Dir string `json:"dir"`
	PID int    `json:"pid"` // of the network's process
	// start time of that process, to detect another process under the same number
	Started uint64         `json:"started"`
	RPC     string         `json:"rpc,omitempty"` // of the chain; empty on a free network
	Genesis market.Genesis `json:"genesis"`
	Peers   []*Peer        `json:"peers"` // providers, then buyers
	Ready   bool           `json:"ready"`

	opts  Options
	chain *localnet.Chain

	borrowed bool // the caller owns the chain
}

// Start makes a new network. It deletes the homes of an earlier one in o.Dir, starts the chain and all peers, and
// returns when every peer sees the chain and has found others. After an error no process is left.
func Start(ctx context.Context, o Options) (n *Network, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := unused(o.Dir); err != nil {
		return nil, err
	}
	n = &Network{Dir: o.Dir, PID: os.Getpid(), Started: startTime(os.Getpid()), opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop())
			n = nil
		}
	}()
	if err := n.clear(); err != nil {
		return n, err
	}
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
	if err := n.launch(ctx); err != nil {
		return n, err
	}
	if o.Audit > 0 {
		if err := n.bond(ctx); err != nil {
			return n, fmt.Errorf("bonding the judges' stakes: %w", err)
		}
	}
	return n, n.ready(began)
}

// unused returns an error if a testnet runs in dir.
func unused(dir string) error {
	if old, err := Load(dir); err == nil && old.Alive() {
		return fmt.Errorf("a testnet runs in %s already (process %d); stop it with `starling testnet down --dir %s`",
			dir, old.PID, dir)
	}
	return nil
}

// launch starts the peers and waits until they are ready.
func (n *Network) launch(ctx context.Context) error {
	for _, p := range n.Peers {
		if p.place.Late {
			continue
		}
		if err := p.start(); err != nil {
			return err
		}
	}
	if err := n.save(); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// ready records that the network can be used.
func (n *Network) ready(began time.Time) error {
	started := 0
	for _, p := range n.Peers {
		if !p.place.Late {
			started++
		}
	}
	n.Ready = true
	n.opts.Say("%d peers are up after %v", started, time.Since(began).Round(time.Millisecond))
	return n.save()
}

// startChain starts a local Solana, or uses the chain of the options, and deploys Starling's program on it.
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
	if n.Genesis, err = n.chain.EscrowGenesis(ctx, "testnet", o.Interval, func(p *account.Params) {
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

// bondTokens is the bond of each judge, of its owner's 1,000 tokens.
const bondTokens = "250"

// bond has the providers bond a stake, as their users would, so that they judge one another. If they are too few, the
// first buyers bond as well.
func (n *Network) bond(ctx context.Context) error {
	judges := n.Peers[:max(n.opts.Providers, audit.MinBonded)]
	n.opts.Say("%d peers bond %s tokens each, to be drawn as judges of one another", len(judges), bondTokens)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(bonders)
	for _, p := range judges {
		if !p.Running() {
			continue
		}
		g.Go(func() error {
			for _, args := range [][]string{{"stake", "register"}, {"stake", "add", bondTokens},
				{"stake", "bond", "all"}} {
				if err := Command(gctx, func(string, ...any) {}, n.opts.Binary, p.Home, nil, args...); err != nil {
					return fmt.Errorf("%s: %w", p.Name, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// bonders is the number of peers that bond concurrently.
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
			wg.Go(func() { _, errs[i] = p.Ready(ctx, want) })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Providers are the selling peers.
func (n *Network) Providers() []*Peer { return n.Peers[:n.opts.Providers] }

// Buyers are the peers that only buy.
func (n *Network) Buyers() []*Peer { return n.Peers[n.opts.Providers:] }

// Chain is the local chain; nil on a free network and on one that was resumed.
func (n *Network) Chain() *localnet.Chain { return n.chain }

// Ledger is a view of the chain without a wallet.
func (n *Network) Ledger() (*solana.Ledger, error) {
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
	return wholefile.Write(filepath.Join(n.Dir, stateFile), b, 0o600)
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
