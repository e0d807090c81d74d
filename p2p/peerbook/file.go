package peerbook

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// savedEntry is an Entry as written: multiaddrs as text, so that one bad address costs one entry.
type savedEntry struct {
	ID    string   `json:"id"`
	Addrs []string `json:"addrs"`
	Seen  int64    `json:"seen"`

	Dialled bool `json:"dialled,omitempty"`
}

// encode is the file of remembered peers: a JSON array, latest seen first.
func encode(entries []Entry) []byte {
	saved := make([]savedEntry, 0, len(entries))
	for _, e := range entries {
		s := savedEntry{ID: e.ID.String(), Seen: e.Seen, Dialled: e.Dialled}
		for _, a := range e.Addrs {
			s.Addrs = append(s.Addrs, a.String())
		}
		saved = append(saved, s)
	}
	out, _ := json.MarshalIndent(saved, "", " ") // strings and integers always encode
	return append(out, '\n')
}

// decode is the inverse of encode. Entries that make no sense, and those of peers that sound refuses, are left out.
func decode(data []byte, sound func(peer.ID) error) ([]Entry, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrFile, maxFile)
	}
	var saved []savedEntry
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	var out []Entry
	seen := make(map[peer.ID]bool)
	for _, s := range saved {
		id, err := peer.Decode(s.ID)
		if err != nil || seen[id] || len(out) == maxPeers {
			continue
		}
		if sound(id) != nil {
			continue
		}
		e := Entry{ID: id, Seen: s.Seen, Dialled: s.Dialled}
		for _, text := range s.Addrs {
			if a, err := ma.NewMultiaddr(text); err == nil && len(e.Addrs) < maxAddrs {
				e.Addrs = append(e.Addrs, a)
			}
		}
		if len(e.Addrs) > 0 {
			seen[id] = true
			out = append(out, e)
		}
	}
	return out, nil
}

// writeFile replaces path as a whole.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".peers-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
