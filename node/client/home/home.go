// Package home is the directory of a light client: its key, the pinned network, the pre-shared key of a private
// network, and a lock for one process at a time.
package home

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/client/entries"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/node/wholefile"
	"github.com/starling-network/starling/p2p"
)

const (
	fileLock = "lock"
	// maxFile bounds the files of a genesis and of a pre-shared key, bytes.
	maxFile = 4096
)

// ErrInUse: another process runs on this home directory.
var ErrInUse = errors.New("another light client runs on this home directory")

// Make creates the client's directory and key if they are missing, and reports whether it created the key.
func Make(home string) (bool, error) {
	if home == "" {
		return false, fmt.Errorf("%w: no home directory", config.ErrPeers)
	}
	if _, err := os.Stat(filepath.Join(home, config.FileConfig)); err == nil {
		return false, fmt.Errorf("%w: %s is the directory of a full peer; a light client needs a separate one",
			config.ErrPeers, home)
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return false, fmt.Errorf("making the home directory: %w", err)
	}
	_, err := os.Stat(filepath.Join(home, config.FileIdentity))
	if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if _, err := p2p.CreateIdentity(filepath.Join(home, config.FileIdentity)); err != nil {
		return false, fmt.Errorf("making the client's key: %w", err)
	}
	return true, nil
}

// ReadPin reads the pinned genesis: in home, and the text of Config.Genesis, which must agree.
func ReadPin(home, text string) (entries.Pin, error) {
	var p entries.Pin
	g, err := config.LoadGenesis(home)
	switch {
	case err == nil:
		p.Genesis = &g
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	}
	if text == "" {
		return p, nil
	}
	var said entries.Pin
	if h, err := sign.ParseHash(text); err == nil {
		said.Hash = &h
	} else {
		st, err := os.Stat(text)
		if err != nil || st.Size() > maxFile {
			return p, fmt.Errorf("%w: genesis %q is neither a hash of 64 hexadecimal digits nor a genesis file",
				config.ErrPeers, text)
		}
		b, err := os.ReadFile(text)
		if err != nil {
			return p, fmt.Errorf("reading the genesis: %w", err)
		}
		g, err := market.ParseGenesis(b)
		if err != nil {
			return p, fmt.Errorf("%w: genesis %s: %w", config.ErrPeers, text, err)
		}
		said.Genesis = &g
	}
	if p.Genesis == nil {
		return said, nil
	}
	if err := said.Check(*p.Genesis); err != nil {
		return p, fmt.Errorf("%w: %s was used on network %s (genesis %s); use another home directory for another "+
			"network",
			config.ErrPeers, home, p.Genesis.Tag(), p.Genesis.Hash())
	}
	return p, nil
}

// KeepGenesis writes the genesis down, so that from now on no entry can show another.
func KeepGenesis(home string, g market.Genesis) error {
	b, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return err
	}
	return wholefile.Write(filepath.Join(home, config.FileGenesis), append(b, '\n'), 0o600)
}

// Lock locks the home for this process. It waits for a process that is just ending. Closing the file unlocks it.
func Lock(ctx context.Context, home string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(home, fileLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the home directory: %w", err)
	}
	for until := time.Now().Add(lockWait); ; {
		free, err := tryLock(f)
		if free {
			return f, nil
		}
		if err == nil && time.Now().After(until) {
			err = fmt.Errorf("%w: %s", ErrInUse, home)
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = ctx.Err()
			case <-time.After(lockRetry):
			}
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
}

const (
	lockWait  = 3 * time.Second
	lockRetry = 50 * time.Millisecond
)

// ReadPSK returns the pre-shared key of the client's private network: the stored key in home, or the key in the file
// given. It returns nil on an open network.
func ReadPSK(home, given string) (*[32]byte, error) {
	path := filepath.Join(home, config.FilePSK)
	kept, err := p2p.LoadPSK(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", config.ErrPeers, err)
	}
	if given == "" {
		return kept, nil
	}
	f, err := os.Open(given)
	if err != nil {
		return nil, fmt.Errorf("%w: pre-shared key: %w", config.ErrPeers, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, fmt.Errorf("%w: pre-shared key: %w", config.ErrPeers, err)
	}
	key, err := p2p.DecodePSK(text)
	if err != nil {
		return nil, fmt.Errorf("%w: pre-shared key %s: %w", config.ErrPeers, given, err)
	}
	if kept != nil && *kept != *key {
		return nil, fmt.Errorf("%w: %s has another pre-shared key than %s; remove it if the network's has changed, "+
			"or use another directory", config.ErrPeers, path, given)
	}
	return key, nil
}

// KeepPSK writes the key into home unless home has it.
func KeepPSK(home string, key *[32]byte) error {
	if key == nil {
		return nil
	}
	path := filepath.Join(home, config.FilePSK)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := wholefile.Write(path, p2p.EncodePSK(*key), 0o600); err != nil {
		return fmt.Errorf("keeping the pre-shared key: %w", err)
	}
	return nil
}
