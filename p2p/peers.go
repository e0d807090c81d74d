package p2p

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/admit"
)

// Limits of the file of remembered peers.
const (
	// maxRemembered peers are kept, the latest seen: enough to find the network again after most of them left.
	maxRemembered = 256
	// maxInbound of them are peers that this one never dialled: many keys that connect take no place of dialled ones.
	maxInbound = 64
	// maxPerNetwork of these are from one IPv4 /24 or IPv6 /56, loopback apart.
	maxPerNetwork = 4
	// maxRememberedAddrs is how many addresses of one peer are kept.
	maxRememberedAddrs = 8
	// maxPeersFile bounds the file as read.
	maxPeersFile = 1 << 20
	// forgetAfter is when a peer that was not seen again is dropped.
	forgetAfter = 30 * 24 * time.Hour

	peersFile = "peers.json"
)

// entry is one remembered peer: addresses at which it was connected, and when last.
type entry struct {
	ID    peer.ID
	Addrs []ma.Multiaddr
	Seen  int64 // Unix seconds
	// Dialled: this peer connected to it and was answered, at least once.
	Dialled bool
}

// savedEntry is entry as written: multiaddrs as text, so that one bad address costs one entry.
type savedEntry struct {
	ID    string   `json:"id"`
	Addrs []string `json:"addrs"`
	Seen  int64    `json:"seen"`

	Dialled bool `json:"dialled,omitempty"`
}

// encodePeers is the file of remembered peers: a JSON array, latest seen first.
func encodePeers(entries []entry) []byte {
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

// decodePeers is the inverse of encodePeers. Entries that make no sense are left out.
func decodePeers(data []byte) ([]entry, error) {
	if len(data) > maxPeersFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrPeersFile, maxPeersFile)
	}
	var saved []savedEntry
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPeersFile, err)
	}
	var out []entry
	seen := make(map[peer.ID]bool)
	for _, s := range saved {
		id, err := peer.Decode(s.ID)
		if err != nil || seen[id] || len(out) == maxRemembered {
			continue
		}
		if _, err := KeyFromPeerID(id); err != nil {
			continue
		}
		e := entry{ID: id, Seen: s.Seen, Dialled: s.Dialled}
		for _, text := range s.Addrs {
			if a, err := ma.NewMultiaddr(text); err == nil && len(e.Addrs) < maxRememberedAddrs {
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

// restore loads the remembered peers. A file that does not decode is set aside: addresses are a
// convenience, and losing them must not keep a peer from starting.
func (h *Host) restore() error {
	path := filepath.Join(h.cfg.PeerstoreDir, peersFile)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var entries []entry
	if err == nil && info.Size() > maxPeersFile {
		err = fmt.Errorf("%w: %d bytes", ErrPeersFile, info.Size())
	} else if err == nil {
		var data []byte
		if data, err = os.ReadFile(path); err == nil {
			entries, err = decodePeers(data)
		}
	}
	if errors.Is(err, ErrPeersFile) {
		h.log.Warn("remembered peers set aside", "path", path+".bad", "err", err)
		err = os.Rename(path, path+".bad")
	}
	if err != nil {
		return fmt.Errorf("restoring remembered peers: %w", err)
	}
	for _, e := range entries {
		h.remembered[e.ID] = e
		if e.Dialled {
			h.standings.Remember(e.ID, e.Addrs[0])
		}
		h.Peerstore().AddAddrs(e.ID, e.Addrs, peerstore.RecentlyConnectedAddrTTL)
	}
	return nil
}

// remember adds the connected peers to the remembered ones and writes the file.
func (h *Host) remember(now time.Time) error {
	entries := h.refresh(now)
	if h.cfg.PeerstoreDir == "" {
		return nil
	}
	if err := writeFile(filepath.Join(h.cfg.PeerstoreDir, peersFile), encodePeers(entries)); err != nil {
		return fmt.Errorf("saving remembered peers: %w", err)
	}
	return nil
}

// refresh adds the connected peers to the remembered ones, and returns them, latest seen first.
func (h *Host) refresh(now time.Time) []entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.Network().Peers() {
		addrs := h.Peerstore().Addrs(p)
		if len(addrs) == 0 {
			continue
		}
		if len(addrs) > maxRememberedAddrs {
			addrs = addrs[:maxRememberedAddrs]
		}
		h.remembered[p] = entry{ID: p, Addrs: addrs, Seen: now.Unix(), Dialled: h.remembered[p].Dialled || h.dialled(p)}
	}
	entries := make([]entry, 0, len(h.remembered))
	for id, e := range h.remembered {
		if now.Sub(time.Unix(e.Seen, 0)) > forgetAfter {
			delete(h.remembered, id)
			continue
		}
		entries = append(entries, e)
	}
	kept := choosePeers(entries)
	clear(h.remembered)
	for _, e := range kept {
		h.remembered[e.ID] = e
	}
	return kept
}

// dialled reports whether this peer has connected to p.
func (h *Host) dialled(p peer.ID) bool {
	return slices.ContainsFunc(h.Network().ConnsToPeer(p), func(c network.Conn) bool {
		return c.Stat().Direction == network.DirOutbound
	})
}

// choosePeers returns those that are remembered, latest seen first: of those that were not dialled a share, and a few
// of each network.
func choosePeers(entries []entry) (kept []entry) {
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.ID, b.ID))
	})
	dialled := 0
	for _, e := range entries {
		if e.Dialled {
			dialled++
		}
	}
	inbound, of := min(maxInbound, maxRemembered-min(dialled, maxRemembered)), map[netip.Prefix]int{}
	for _, e := range entries {
		if !e.Dialled {
			at := admit.NetworkOf(e.Addrs[0])
			if at.IsValid() {
				of[at]++
			}
			if inbound == 0 || of[at] > maxPerNetwork {
				continue
			}
			inbound--
		}
		if kept = append(kept, e); len(kept) == maxRemembered {
			break
		}
	}
	return kept
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
