package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/onchain"
	"github.com/starling-network/starling/node/runtimes"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	// slotEvery is the interval of a peer's reads of the chain's slot.
	slotEvery = 5 * time.Second
	// maxBlobs bounds the content-addressed files of a peer, bytes.
	maxBlobs = 256 << 30
)

// Peer is a node with all its parts, opened from a home directory.
type Peer struct {
	*Node
	opened []io.Closer // parts, in the order of their opening
}

// file is a file that is removed when its peer closes.
type file string

// Close removes the file, if it is still there.
func (f file) Close() error {
	_ = os.Remove(string(f))
	return nil
}

// Once overrides the configuration of a peer while it runs.
type Once struct {
	NoClusters bool // Clusters.Accept is false
}

// Open opens the peer that lives in home: its configuration, keys, journal and files, a host, the chain, runtimes and
// GPUs. cache holds compiled programs and may be shared by the peers of one user. once overrides the configuration.
// Close it after Run.
func Open(ctx context.Context, home, cache, version string, once Once, log *slog.Logger) (p *Peer, err error) {
	parts := Parts{Home: home, SlotEvery: slotEvery, Version: version, Log: log}
	if err := read(&parts, once); err != nil {
		return nil, err
	}
	p = &Peer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	if err := p.openJournal(&parts); err != nil {
		return p, err
	}
	if parts.Blobs, err = blob.OpenStore(filepath.Join(home, "blobs"), maxBlobs); err != nil {
		return p, fmt.Errorf("opening the file store: %w", err)
	}
	if err := reachChain(&parts); err != nil {
		return p, err
	}
	if err := p.openHost(&parts); err != nil {
		return p, err
	}
	if err := p.openHardware(ctx, cache, &parts); err != nil {
		return p, err
	}
	p.Node, err = New(ctx, parts)
	return p, err
}

// read reads the files of a home directory that configure its peer.
func read(parts *Parts, once Once) (err error) {
	if parts.Config, err = config.Load(filepath.Join(parts.Home, config.FileConfig)); err != nil {
		return err
	}
	if once.NoClusters {
		parts.Config.Clusters.Accept = false
	}
	if parts.Genesis, err = config.LoadGenesis(parts.Home); err != nil {
		return err
	}
	parts.Key, parts.Owner, err = config.LoadKeys(parts.Home, parts.Config)
	return err
}

// reachChain opens the chain of the peer's network, and the way of light clients' calls to it.
func reachChain(parts *Parts) (err error) {
	c := parts.Config.Solana
	if len(c.RPC) == 0 && !parts.Genesis.Free {
		return fmt.Errorf("%w: solana.rpc: no address, want at least one endpoint of the network's chain",
			config.ErrConfig)
	}
	if parts.Access, err = onchain.Dial(c.RPC, c.Fees.Bids(), parts.Genesis, parts.Key, parts.Owner); err != nil {
		return err
	}
	if parts.Program != nil {
		parts.RPC, err = onchain.Forward(c.RPC, entry.MaxAnswer)
	}
	return err
}

// openHost opens the peer's host.
func (p *Peer) openHost(parts *Parts) error {
	hc, err := parts.Config.Reach().Host(parts.Home)
	if err != nil {
		return err
	}
	hc.Key, hc.Network = p2p.PrivKey(parts.Key.Seed()), parts.Genesis.Tag()
	hc.Agent, hc.Logger = "starling/"+parts.Version, parts.Log
	if parts.Config.Metrics.Libp2p {
		parts.Metrics = prometheus.NewRegistry()
		hc.Registerer = parts.Metrics
	}
	if parts.Host, err = p2p.New(hc); err != nil {
		return err
	}
	p.opened = append(p.opened, parts.Host)
	parts.Mask = func() (*p2p.Host, sign.Private, error) { return mask(hc) }
	return nil
}

// mask opens a host with a new key in the same network, which listens on nothing.
func mask(hc p2p.Config) (*p2p.Host, sign.Private, error) {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, sign.Private{}, err
	}
	other := p2p.Config{
		Key: p2p.PrivKey(seed), Network: hc.Network, Agent: hc.Agent, PSK: hc.PSK, Block: hc.Block,
		Dials: hc.ClosedDials(), Logger: hc.Logger, NAT: p2p.NAT{DialOutOnly: true},
	}
	h, err := p2p.New(other)
	return h, sign.NewPrivate(seed), err
}

// openHardware opens the runtimes of programs and the GPUs that are sold.
func (p *Peer) openHardware(ctx context.Context, cache string, parts *Parts) (err error) {
	engine, sells := parts.Config.Docker, parts.Config.Provide
	if !sells.Enabled {
		engine.Enabled = config.DockerOff
	}
	parts.Runtimes, err = runtimes.Open(ctx, engine, parts.Home, cache, parts.Key.Key(), parts.Log)
	p.opened = append(p.opened, parts.Runtimes) // even after an error
	if err != nil || !sells.Enabled || sells.GPU.Price == "" {
		return err
	}
	if parts.GPUs, err = inventory.Open(sells.GPU, parts.Genesis.Simulated, parts.Key.Key().String()); err != nil {
		return fmt.Errorf("%w: provide.gpu: %w", config.ErrConfig, err)
	}
	p.opened = append(p.opened, parts.GPUs)
	return nil
}

// Close closes the parts that Open opened, the last one first.
func (p *Peer) Close() error {
	var errs []error
	for _, part := range slices.Backward(p.opened) {
		errs = append(errs, part.Close())
	}
	return errors.Join(errs...)
}

// ErrRuns means that another peer runs in the home directory.
var ErrRuns = errors.New("a peer already runs")

// openJournal opens the journal, which one process holds at a time, and notes which one does.
func (p *Peer) openJournal(parts *Parts) error {
	pidFile := filepath.Join(parts.Home, config.FilePID)
	s, err := store.OpenSQLite(filepath.Join(parts.Home, config.FileJournal))
	if errors.Is(err, store.ErrLocked) {
		text := fmt.Sprintf("in %s", parts.Home)
		if b, no := os.ReadFile(pidFile); no == nil && len(b) > 0 && len(b) < 16 {
			text += ", pid " + strings.TrimSpace(string(b))
		}
		return fmt.Errorf("%w %s", ErrRuns, text)
	}
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	parts.Store, p.opened = s, append(p.opened, s)
	if err := os.WriteFile(pidFile, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		return fmt.Errorf("noting which process runs: %w", err)
	}
	p.opened = append(p.opened, file(pidFile))
	return nil
}
