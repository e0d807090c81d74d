package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/escrow"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/entry"
	"github.com/starling-network/starling/node/gpu"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker"
	"github.com/starling-network/starling/node/runtime/wasm"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	// slotEvery is how often a peer asks the chain for its slot.
	slotEvery = 5 * time.Second
	// maxBlobs bounds what a peer keeps of content-addressed files, bytes.
	maxBlobs = 256 << 30
)

// Peer is a node with all its parts, opened from a home directory.
type Peer struct {
	*Node
	host  *p2p.Host
	store store.Store
	// pidFile names the process that holds the journal.
	pidFile string
	blobs   *blob.Store
	wasm    *wasm.Runtime
	gpus    gpu.Source
	docker  runtime.Runtime // nil without an engine
}

// Once is what a peer is to do otherwise than its configuration says, for as long as it runs.
type Once struct {
	NoClusters bool // Clusters.Accept is false
}

// Open opens the peer that lives in home: its configuration, keys, journal and
// files, a libp2p host and the chain. cache holds compiled programs and may be
// shared by the peers of one user. once stands for what the configuration says.
// Close it after Run.
func Open(ctx context.Context, home, cache, version string, once Once, log *slog.Logger) (p *Peer, err error) {
	cfg, err := LoadConfig(filepath.Join(home, FileConfig))
	if err != nil {
		return nil, err
	}
	if once.NoClusters {
		cfg.Clusters.Accept = false
	}
	genesis, err := LoadGenesis(home)
	if err != nil {
		return nil, err
	}
	key, owner, err := LoadKeys(home, cfg)
	if err != nil {
		return nil, err
	}
	p = &Peer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
			p = nil
		}
	}()
	if err := p.openJournal(home); err != nil {
		return p, err
	}
	if p.blobs, err = blob.OpenStore(filepath.Join(home, "blobs"), maxBlobs); err != nil {
		return p, fmt.Errorf("opening the file store: %w", err)
	}
	if p.wasm, err = wasm.New(wasm.Config{CacheDir: filepath.Join(cache, "wasm"), Logger: log}); err != nil {
		return p, err
	}
	if len(cfg.Solana.RPC) == 0 && !genesis.Free {
		return p, fmt.Errorf("%w: solana.rpc: no address is given, want at least one of the network's chain", ErrConfig)
	}
	sc := solana.ConfigOf(cfg.Solana.RPC, genesis, key)
	sc.Fees = cfg.Solana.Fees.bids()
	sc.Owner = owner
	ledger, program, err := Ledger(sc, genesis)
	if err != nil {
		return p, err
	}
	var forward func(ctx context.Context, call []byte) ([]byte, error)
	if program != nil {
		if forward, err = forwarder(cfg.Solana.RPC); err != nil {
			return p, err
		}
	}
	hc, err := cfg.hostConfig(home)
	if err != nil {
		return p, err
	}
	hc.Key, hc.Network, hc.Agent, hc.Logger = p2p.PrivKey(key.Seed()), genesis.Tag(), "starling/"+version, log
	var metrics *prometheus.Registry
	if cfg.Metrics.Libp2p {
		metrics = prometheus.NewRegistry()
		hc.Registerer = metrics
	}
	if p.host, err = p2p.New(hc); err != nil {
		return p, err
	}
	runtimes := map[string]runtime.Runtime{wasm.Name: p.wasm}
	if cfg.Provide.Enabled {
		if p.docker, err = openDocker(ctx, cfg.Docker, home, key.Key(), log); err != nil {
			return p, err
		}
		if p.docker != nil {
			runtimes[docker.Name] = p.docker
		}
	}
	if cfg.Provide.Enabled && cfg.Provide.GPU.Price != "" {
		if p.gpus, err = gpu.Open(gpu.Config{Simulated: genesis.Simulated, Mock: cfg.Provide.GPU.Mock, MockSeed: key.Key().String()}); err != nil {
			return p, fmt.Errorf("%w: provide.gpu: %w", ErrConfig, err)
		}
	}
	mask := func() (*p2p.Host, sign.Private, error) {
		var seed [32]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return nil, sign.Private{}, err
		}
		other := p2p.Config{Key: p2p.PrivKey(seed), Network: hc.Network, Agent: hc.Agent, PSK: hc.PSK, Block: hc.Block, Dials: hc.ClosedDials(), Logger: log,
			NAT: p2p.NAT{DialOutOnly: true}}
		h, err := p2p.New(other)
		return h, sign.NewPrivate(seed), err
	}
	p.Node, err = New(ctx, Parts{
		Program: program, Escrow: EscrowParams(genesis), Mask: mask,
		Config: cfg, Home: home, Genesis: genesis, Key: key, Owner: owner, Host: p.host, Store: p.store, Blobs: p.blobs, Ledger: ledger,
		Runtimes: runtimes, GPUs: p.gpus, SlotEvery: slotEvery, RPC: forward, Metrics: metrics, Version: version, Log: log,
	})
	return p, err
}

// Ledger opens what a network has for a chain: the cluster that c says, and Starling's program on it; or on a free network the clock
// alone.
func Ledger(c solana.Config, g market.Genesis) (chain.Ledger, settle.Chain, error) {
	if g.Free {
		return slots.Wall(g.SlotMillis), nil, nil
	}
	l, err := solana.New(c)
	return l, l, err
}

// forwarder passes light clients' calls to the chain on.
func forwarder(rpc []string) (func(ctx context.Context, call []byte) ([]byte, error), error) {
	f, err := solana.NewForwarder(rpc, entry.MaxAnswer)
	return f.Call, err
}

// EscrowParams are the intervals at which a peer looks at its escrows, for the length of the network's slots.
func EscrowParams(g market.Genesis) escrow.Params {
	p := escrow.DefaultParams()
	if g.SlotMillis < defaultSlotMillis { // a test network
		p.PollEvery = p.PollEvery * time.Duration(g.SlotMillis) / defaultSlotMillis
		p.LookEvery = p.LookEvery * time.Duration(g.SlotMillis) / defaultSlotMillis
		p.RetryAfter = p.RetryAfter * time.Duration(g.SlotMillis) / defaultSlotMillis
	}
	return p
}

// defaultSlotMillis is the length of Solana's slots.
const defaultSlotMillis = 400

// dockerTimeout bounds how long the container engine may take to be found.
const dockerTimeout = 20 * time.Second

// openDocker connects to the container engine; nil when there is none and none is asked for.
func openDocker(ctx context.Context, c Docker, home string, key sign.Key, log *slog.Logger) (runtime.Runtime, error) {
	if c.Enabled == dockerOff {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dockerTimeout)
	defer cancel()
	rt, err := docker.New(ctx, docker.Config{
		Peer: key.String(), Host: c.Host, Runtime: c.Runtime, Scratch: home, Logger: log,
		Registries: c.Registries, MaxImageMiB: c.MaxImageMiB, ImagesPercent: c.ImagesPercent, FreeMiB: c.FreeMiB,
	})
	if err != nil && c.Enabled == dockerOn {
		return nil, fmt.Errorf("docker.enabled is true: %w", err)
	}
	if err != nil {
		level := slog.LevelInfo
		if c.Runtime != "" { // somebody wants containers here, and none without it
			level = slog.LevelWarn
		}
		log.Log(ctx, level, "containers are not offered", "reason", err)
		return nil, nil
	}
	return rt, nil
}

// Close closes what Open opened.
func (p *Peer) Close() error {
	var errs []error
	if p.host != nil {
		errs = append(errs, p.host.Close())
	}
	if c, ok := p.docker.(io.Closer); ok {
		errs = append(errs, c.Close())
	}
	if p.gpus != nil {
		errs = append(errs, p.gpus.Close())
	}
	if p.wasm != nil {
		errs = append(errs, p.wasm.Close())
	}
	if p.store != nil {
		_ = os.Remove(p.pidFile) // of no use once nobody holds the journal
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// ErrRuns says that another peer runs in the home directory.
var ErrRuns = errors.New("a peer already runs")

// openJournal opens the journal, which one process holds at a time, and notes which one does.
func (p *Peer) openJournal(home string) error {
	pidFile := filepath.Join(home, FilePID)
	s, err := store.OpenSQLite(filepath.Join(home, FileJournal))
	if errors.Is(err, store.ErrLocked) {
		text := fmt.Sprintf("in %s", home)
		if b, no := os.ReadFile(pidFile); no == nil && len(b) > 0 && len(b) < 16 {
			text += ", pid " + strings.TrimSpace(string(b))
		}
		return fmt.Errorf("%w %s", ErrRuns, text)
	}
	if err != nil {
		return fmt.Errorf("opening the journal: %w", err)
	}
	p.store, p.pidFile = s, pidFile
	if err := os.WriteFile(pidFile, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
		return fmt.Errorf("noting which process runs: %w", err)
	}
	return nil
}

// LoadKeys reads the peer's key and the owner's address: that of the configuration, of owner.address, or else the peer's own. It reads no
// secret of the owner. ErrConfig where there is an owner's key without its address.
func LoadKeys(home string, cfg Config) (sign.Private, sign.Key, error) {
	priv, err := p2p.LoadIdentity(filepath.Join(home, FileIdentity))
	if err != nil {
		return sign.Private{}, sign.Key{}, fmt.Errorf("reading the peer's key: %w", err)
	}
	seed, err := p2p.SeedOf(priv)
	if err != nil {
		return sign.Private{}, sign.Key{}, err
	}
	key := sign.NewPrivate(seed)
	if cfg.Owner != "" {
		owner, err := sign.ParseKey(cfg.Owner)
		return key, owner, err
	}
	owner, err := LoadOwner(home)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, owner, err
	}
	if _, err := os.Lstat(filepath.Join(home, FileWallet)); err == nil {
		return key, owner, fmt.Errorf("%w: %s is there without %s, which names its address: set owner in %s, or move the wallet away and take it in again by `starling wallet import`",
			ErrConfig, FileWallet, FileOwner, FileConfig)
	}
	return key, key.Key(), nil
}

// LoadOwner reads the owner's address of a home directory. fs.ErrNotExist where it has none.
func LoadOwner(home string) (sign.Key, error) {
	b, err := os.ReadFile(filepath.Join(home, FileOwner))
	if err != nil {
		return sign.Key{}, err
	}
	owner, err := sign.ParseKey(strings.TrimSpace(string(b)))
	if err != nil {
		return owner, fmt.Errorf("%w: %s: %w", ErrConfig, FileOwner, err)
	}
	return owner, nil
}

// SaveOwner writes the owner's address into a home directory.
func SaveOwner(home string, owner sign.Key) error {
	return os.WriteFile(filepath.Join(home, FileOwner), []byte(owner.String()+"\n"), 0o644)
}
