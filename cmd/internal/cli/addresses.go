package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// Addresses are the addresses of a home directory: the owner's and the peer's.
type Addresses struct {
	Owner   sign.Key `json:"owner"`
	OwnerIn string   `json:"ownerIn"` // source of the owner's address
	Key     sign.Key `json:"key"`     // the peer's key: signs, and pays the chain's fees
}

// ReadAddresses finds the addresses of a home directory.
func ReadAddresses(home string) (Addresses, error) {
	var w Addresses
	var err error
	if w.Key, err = KeyOf(filepath.Join(home, config.FileIdentity)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = WithHint(&Error{Code: ExitUsage, Err: fmt.Errorf("no peer was set up in %s", home)}, "starling init")
		}
		return w, err
	}
	cfg, err := config.Load(filepath.Join(home, config.FileConfig))
	if err != nil {
		return w, err
	}
	if cfg.Owner != "" {
		w.OwnerIn = config.FileConfig
		w.Owner, err = sign.ParseKey(cfg.Owner)
		return w, err
	}
	w.OwnerIn = config.FileOwner
	w.Owner, err = config.LoadOwner(home)
	if errors.Is(err, fs.ErrNotExist) {
		w.Owner, w.OwnerIn, err = w.Key, config.FileIdentity, nil
	}
	return w, err
}

// KeyOf is the address of a key file.
func KeyOf(path string) (sign.Key, error) {
	priv, err := p2p.LoadIdentity(path)
	if err != nil {
		return sign.Key{}, err
	}
	raw, err := priv.GetPublic().Raw()
	if err != nil || len(raw) != len(sign.Key{}) {
		return sign.Key{}, fmt.Errorf("%s: not an Ed25519 key", path)
	}
	return sign.Key(raw), nil
}
