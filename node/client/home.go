package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// Files of a light client's home, beside those that every peer has (config.FileIdentity and so on).
const (
	FileEntries = "entries.json" // entry peers that are remembered
	fileLock    = "lock"
)

// Limits of those files.
const (
	maxEntries     = 2 * config.MaxPeers
	maxEntryAddrs  = 8
	maxEntriesFile = 256 << 10
	maxGenesisFile = 4096
)

// known is one entry peer that may be tried.
type known struct {
	ID    string   `json:"id"`
	Addrs []string `json:"addrs"`
	// Given: by the user. Such a peer is tried first and never forgotten.
	Given bool `json:"given,omitempty"`
	// Shown: it has shown the pinned genesis once.
	Shown bool  `json:"shown,omitempty"`
	Seen  int64 `json:"seen,omitempty"` // Unix seconds; 0: never entered
	// By is the first entry in the chain of entries that named this one, unless its user gave it.
	By string `json:"by,omitempty"`
}

// info is the peer as libp2p has it; one that makes no sense is not ok.
func (k known) info() (peer.AddrInfo, bool) {
	id, err := peer.Decode(k.ID)
	if err != nil {
		return peer.AddrInfo{}, false
	}
	if _, err := p2p.KeyFromPeerID(id); err != nil {
		return peer.AddrInfo{}, false
	}
	out := peer.AddrInfo{ID: id}
	for _, text := range k.Addrs {
		if a, err := ma.NewMultiaddr(text); err == nil && len(out.Addrs) < maxEntryAddrs {
			out.Addrs = append(out.Addrs, a)
		}
	}
	return out, len(out.Addrs) > 0
}

func knownOf(p peer.AddrInfo) known {
	k := known{ID: p.ID.String()}
	for _, a := range p.Addrs {
		k.Addrs = append(k.Addrs, a.String())
	}
	return k
}

// encodeEntries is the file of remembered entries: those given first, then the latest seen.
func encodeEntries(all []known) []byte {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b known) int {
		if a.Given != b.Given {
			return map[bool]int{true: -1, false: 1}[a.Given]
		}
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), strings.Compare(a.ID, b.ID))
	})
	b, _ := json.MarshalIndent(all[:min(len(all), maxEntries)], "", " ") // strings and numbers always encode
	return append(b, '\n')
}

// decodeEntries is the inverse; invalid entries are left out.
func decodeEntries(b []byte) ([]known, error) {
	if len(b) > maxEntriesFile {
		return nil, fmt.Errorf("%w: %d bytes", ErrEntriesFile, len(b))
	}
	var all []known
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEntriesFile, err)
	}
	var out []known
	for _, k := range all {
		info, ok := k.info()
		if !ok || len(out) == maxEntries || slices.ContainsFunc(out,
			func(o known) bool { return o.ID == info.ID.String() }) {
			continue
		}
		sound := knownOf(info)
		sound.Given, sound.Shown, sound.Seen = k.Given, k.Shown, max(k.Seen, 0)
		if by, err := peer.Decode(k.By); err == nil {
			sound.By = by.String()
		}
		out = append(out, sound)
	}
	return out, nil
}

// readEntries reads the file; one that is broken or not there is an empty one, since addresses can be given again.
func readEntries(home string) []known {
	b, err := os.ReadFile(filepath.Join(home, FileEntries))
	if err != nil {
		return nil
	}
	all, err := decodeEntries(b)
	if err != nil {
		return nil
	}
	return all
}

// makeHome makes the client's directory and key where there are none, and reports whether it made the key.
func makeHome(home string) (bool, error) {
	if home == "" {
		return false, fmt.Errorf("%w: no home directory", ErrConfig)
	}
	if _, err := os.Stat(filepath.Join(home, config.FileConfig)); err == nil {
		return false, fmt.Errorf("%w: %s is the directory of a full peer; a light client needs one of its own",
			ErrConfig,
			home)
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

// pin is the genesis that the client is to believe: pinned in its home by an earlier use, or as text a file or a hash.
type pin struct {
	genesis *market.Genesis // known in full
	hash    *sign.Hash      // only its hash is known
}

func (p pin) check(g market.Genesis) error {
	switch {
	case p.genesis != nil && p.genesis.Hash() != g.Hash():
		return fmt.Errorf("%w: it shows genesis %s (%s), pinned is %s (%s)", ErrOtherNetwork, g.Hash(), g.Tag(),
			p.genesis.Hash(), p.genesis.Tag())
	case p.hash != nil && *p.hash != g.Hash():
		return fmt.Errorf("%w: it shows genesis %s (%s), pinned is %s", ErrOtherNetwork, g.Hash(), g.Tag(), *p.hash)
	}
	return nil
}

// readPin reads the pinned genesis: in home, and the text of Config.Genesis, which must agree.
func readPin(home, text string) (pin, error) {
	var p pin
	g, err := config.LoadGenesis(home)
	switch {
	case err == nil:
		p.genesis = &g
	case !errors.Is(err, fs.ErrNotExist):
		return p, err
	}
	if text == "" {
		return p, nil
	}
	var said pin
	if h, err := sign.ParseHash(text); err == nil {
		said.hash = &h
	} else {
		st, err := os.Stat(text)
		if err != nil || st.Size() > maxGenesisFile {
			return p, fmt.Errorf("%w: genesis %q is neither a hash of 64 hexadecimal digits nor a genesis file",
				ErrConfig, text)
		}
		b, err := os.ReadFile(text)
		if err != nil {
			return p, fmt.Errorf("reading the genesis: %w", err)
		}
		g, err := market.ParseGenesis(b)
		if err != nil {
			return p, fmt.Errorf("%w: genesis %s: %w", ErrConfig, text, err)
		}
		said.genesis = &g
	}
	if p.genesis == nil {
		return said, nil
	}
	if err := said.check(*p.genesis); err != nil {
		return p, fmt.Errorf("%w: %s was used on network %s (genesis %s); use another home directory for another "+
			"network",
			ErrConfig, home, p.genesis.Tag(), p.genesis.Hash())
	}
	return p, nil
}

// keep writes the genesis down, so that from now on no entry can show another.
func keepGenesis(home string, g market.Genesis) error {
	b, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return err
	}
	return config.Replace(filepath.Join(home, config.FileGenesis), append(b, '\n'))
}

// lockHome takes the home for this process, waiting for one that is just ending. Closing the file frees it.
func lockHome(ctx context.Context, home string) (*os.File, error) {
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

// readPSK is the pre-shared key of the client's private network: the one that is kept in home, or the one in the file
// that is given. nil on an open network.
func readPSK(home, given string) (*[32]byte, error) {
	path := filepath.Join(home, config.FilePSK)
	kept, err := p2p.LoadPSK(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if given == "" {
		return kept, nil
	}
	f, err := os.Open(given)
	if err != nil {
		return nil, fmt.Errorf("%w: pre-shared key: %w", ErrConfig, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxGenesisFile))
	if err != nil {
		return nil, fmt.Errorf("%w: pre-shared key: %w", ErrConfig, err)
	}
	key, err := p2p.DecodePSK(text)
	if err != nil {
		return nil, fmt.Errorf("%w: pre-shared key %s: %w", ErrConfig, given, err)
	}
	if kept != nil && *kept != *key {
		return nil, fmt.Errorf("%w: %s has another pre-shared key than %s; remove it if the network's has changed, "+
			"or use another directory", ErrConfig, path, given)
	}
	return key, nil
}

// keepPSK writes the key into home unless it is there.
func keepPSK(home string, key *[32]byte) error {
	if key == nil {
		return nil
	}
	path := filepath.Join(home, config.FilePSK)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := config.Replace(path, p2p.EncodePSK(*key)); err != nil {
		return fmt.Errorf("keeping the pre-shared key: %w", err)
	}
	return nil
}
