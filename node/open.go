package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
	"github.com/starling-network/starling/node/inventory"
	"github.com/starling-network/starling/node/runtimes"
	"github.com/starling-network/starling/node/settle"
	"github.com/starling-network/starling/node/slots"
	"github.com/starling-network/starling/node/store"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/blob"
)

const (
	// slotEvery is how often a peer asks the chain for its slot.
	slotEvery = 5 * time.Second
	// maxBlobs bounds the content-addressed files of a peer, bytes.
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
	// runtimes are those of programs, by name.
	runtimes runtimes.Set
	gpus     inventory.Source
}

// Once overrides the configuration of a peer while it runs.
type Once struct {
	NoClusters bool // Clusters.Accept is false
}

// Open opens the peer that lives in home: its configuration, keys, journal and
// files, a libp2p host and the chain. cache holds compiled programs and may be
// shared by the peers of one user. once overrides the configuration.
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
	hc, err := cfg.reach().Host(home)
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
	engine := cfg.Docker
	if !cfg.Provide.Enabled {
		engine.Enabled = runtimes.Off
	}
	if p.runtimes, err = runtimes.Open(ctx, engine, home, cache, key.Key(), log); err != nil {
		return p, err
	}
	if cfg.Provide.Enabled && cfg.Provide.GPU.Price != "" {
		if p.gpus, err = inventory.Open(cfg.Provide.GPU, genesis.Simulated, key.Key().String()); err != nil {
			return p, fmt.Errorf("%w: provide.gpu: %w", ErrConfig, err)
		}
	}
	mask := func() (*p2p.Host, sign.Private, error) {
		var seed [32]byte
		if _, err := rand.Read(seed[:]); err != nil {
			return nil, sign.Private{}, err
		}
		other := p2p.Config{
			Key: p2p.PrivKey(seed), Network: hc.Network, Agent: hc.Agent, PSK: hc.PSK, Block: hc.Block,
			Dials: hc.ClosedDials(), Logger: log, NAT: p2p.NAT{DialOutOnly: true},
		}
		h, err := p2p.New(other)
		return h, sign.NewPrivate(seed), err
	}
	p.Node, err = New(ctx, Parts{
		Program: program, Escrow: EscrowParams(genesis), Mask: mask,
		Config: cfg, Home: home, Genesis: genesis, Key: key, Owner: owner, Host: p.host, Store: p.store, Blobs: p.blobs,
		Ledger: ledger, Runtimes: p.runtimes, GPUs: p.gpus, SlotEvery: slotEvery, RPC: forward, Metrics: metrics,
		Version: version, Log: log,
	})
	return p, err
}

// Ledger opens the chain of a network: the cluster that c names, and Starling's program on it; or on a free
// network the clock alone.
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

// Close closes the parts that Open opened.
func (p *Peer) Close() error {
	var errs []error
	if p.host != nil {
		errs = append(errs, p.host.Close())
	}
	if p.gpus != nil {
		errs = append(errs, p.gpus.Close())
	}
	errs = append(errs, p.runtimes.Close())
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

// LoadKeys reads the peer's key and the owner's address: that of the configuration, of owner.address, or else the
// peer's own. It reads no secret of the owner. ErrConfig where there is an owner's key without its address.
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
		return key, owner, fmt.Errorf("%w: %s is there without %s, which names its address: set owner in %s, or move "+
			"the wallet away and take it in again by `starling wallet import`",
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
