package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/chain/solana"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/wasm"
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
	blobs *blob.Store
	wasm  *wasm.Runtime
}

// Open opens the peer that lives in home: its configuration, keys, journal and
// files, a libp2p host and the chain. cache holds compiled programs and may be
// shared by the peers of one user. Close it after Run.
func Open(ctx context.Context, home, cache, version string, log *slog.Logger) (p *Peer, err error) {
	cfg, err := LoadConfig(filepath.Join(home, FileConfig))
	if err != nil {
		return nil, err
	}
	genesis, err := LoadGenesis(home)
	if err != nil {
		return nil, err
	}
	key, owner, err := loadKeys(home, cfg)
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
	if p.store, err = store.OpenSQLite(filepath.Join(home, FileJournal)); err != nil {
		return p, fmt.Errorf("opening the journal: %w", err)
	}
	if p.blobs, err = blob.OpenStore(filepath.Join(home, "blobs"), maxBlobs); err != nil {
		return p, fmt.Errorf("opening the file store: %w", err)
	}
	if p.wasm, err = wasm.New(wasm.Config{CacheDir: filepath.Join(cache, "wasm"), Logger: log}); err != nil {
		return p, err
	}
	ledger, err := solana.New(solana.Config{RPC: cfg.Solana.RPC, Genesis: genesis.Chain, Key: key, Owner: owner, Mint: genesis.Mint, Decimals: genesis.Decimals})
	if err != nil {
		return p, err
	}
	boot, err := bootstrap(cfg.Bootstrap)
	if err != nil {
		return p, err
	}
	if p.host, err = p2p.New(p2p.Config{
		Key: p2p.PrivKey(key.Seed()), Network: genesis.Tag(), Listen: cfg.Listen, Announce: cfg.Announce, Bootstrap: boot,
		PeerstoreDir: filepath.Join(home, "peers"), Agent: "starling/" + version, Logger: log,
	}); err != nil {
		return p, err
	}
	p.Node, err = New(ctx, Parts{
		Config: cfg, Home: home, Genesis: genesis, Key: key, Owner: owner, Host: p.host, Store: p.store, Blobs: p.blobs, Ledger: ledger,
		Runtimes: map[string]runtime.Runtime{wasm.Name: p.wasm}, Settle: chain.DefaultParams(), SlotEvery: slotEvery, Version: version, Log: log,
	})
	return p, err
}

// Close closes what Open opened.
func (p *Peer) Close() error {
	var errs []error
	if p.host != nil {
		errs = append(errs, p.host.Close())
	}
	if p.wasm != nil {
		errs = append(errs, p.wasm.Close())
	}
	if p.store != nil {
		errs = append(errs, p.store.Close())
	}
	return errors.Join(errs...)
}

// loadKeys reads the peer's key, and finds the owner's address: from the
// configuration, from wallet.json, or else the peer's own.
func loadKeys(home string, cfg Config) (sign.Private, sign.Key, error) {
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
	b, err := os.ReadFile(filepath.Join(home, FileWallet))
	if errors.Is(err, fs.ErrNotExist) {
		return key, key.Key(), nil
	}
	if err != nil {
		return key, sign.Key{}, fmt.Errorf("reading the wallet: %w", err)
	}
	wallet, err := sign.ParseKeypair(b)
	if err != nil {
		return key, sign.Key{}, fmt.Errorf("reading the wallet: %w", err)
	}
	return key, wallet.Key(), nil
}

func bootstrap(addrs []string) ([]peer.AddrInfo, error) {
	var all []ma.Multiaddr
	for i, text := range addrs {
		a, err := ma.NewMultiaddr(text)
		if err != nil {
			return nil, fmt.Errorf("%w: bootstrap[%d]: %q: %w", ErrConfig, i, text, err)
		}
		all = append(all, a)
	}
	infos, err := peer.AddrInfosFromP2pAddrs(all...)
	if err != nil {
		return nil, fmt.Errorf("%w: bootstrap: %w (an address ends in /p2p/ and the peer's id)", ErrConfig, err)
	}
	return infos, nil
}
