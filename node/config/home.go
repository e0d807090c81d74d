package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/p2p"
)

// Files of a peer's home directory.
const (
	FileConfig   = "config.yaml"   // Config
	FileGenesis  = "genesis.json"  // market.Genesis of the network it is on
	FileIdentity = "identity.json" // the peer's key, Solana CLI keypair format
	FileWallet   = "wallet.json"   // the owner's key, for commands that need its signature; a peer does not read it
	FileOwner    = "owner.address" // the owner's address, one line
	FilePSK      = "swarm.key"     // where init puts the pre-shared key of a private network
	FileJournal  = "journal.db"
	FilePID      = "peer.pid" // of the process that runs
	FileAPI      = "api.json" // where the local API listens, and its token
)

// LoadGenesis reads the facts of the network that a home directory is on.
func LoadGenesis(home string) (market.Genesis, error) {
	b, err := os.ReadFile(filepath.Join(home, FileGenesis))
	if err != nil {
		return market.Genesis{}, fmt.Errorf("reading the network's genesis: %w", err)
	}
	return market.ParseGenesis(b)
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
