package entries

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/node/config"
	"github.com/starling-network/starling/p2p"
)

// FileEntries is the file of a light client's home with the entry peers that are remembered.
const FileEntries = "entries.json"

// Limits of that file.
const (
	maxEntries     = 2 * config.MaxPeers
	maxEntryAddrs  = 8
	maxEntriesFile = 256 << 10
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

// info returns the peer in libp2p's form. It reports false for a malformed peer.
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

// readEntries reads the file. A malformed or missing file counts as empty, since the user can give addresses again.
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
