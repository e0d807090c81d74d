// Package peerbook remembers a host's connected peers, and stores them in a file between runs. With them a peer finds
// its network again if its bootstrap peers are offline.
package peerbook

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/admit"
)

const (
	// maxPeers are kept, the latest seen: enough to find the network again after most of them left.
	maxPeers = 256
	// maxInbound of them are peers that this one never dialled: many keys that connect take no place of dialled ones.
	maxInbound = 64
	// maxPerNetwork of these are from one IPv4 /24 or IPv6 /56, loopback apart.
	maxPerNetwork = 4
	// maxAddrs is how many addresses of one peer are kept.
	maxAddrs = 8
	// maxFile bounds the file as read.
	maxFile = 1 << 20
	// forgetAfter is when a peer that was not seen again is dropped.
	forgetAfter = 30 * 24 * time.Hour

	fileName = "peers.json"
)

// ErrFile: the file of remembered addresses does not decode; it is set aside and a new one begun.
var ErrFile = errors.New("not a file of remembered peers")

// Entry is one remembered peer: addresses at which it was connected, and when last.
type Entry struct {
	ID    peer.ID
	Addrs []ma.Multiaddr
	Seen  int64 // Unix seconds
	// Dialled: this peer connected to it and was answered, at least once.
	Dialled bool
}

// Book is the remembered peers of one host. Its methods may be called by several goroutines at a time.
type Book struct {
	path string // "" without a file

	mu    sync.Mutex
	known map[peer.ID]Entry
}

// Open reads the book in a directory; with dir "" it is empty and never written. Peers that sound refuses are left out.
// A file that does not decode is set aside: addresses are a convenience, and losing them must not keep a peer from
// starting.
func Open(dir string, sound func(peer.ID) error, log *slog.Logger) (*Book, error) {
	b := &Book{known: make(map[peer.ID]Entry)}
	if dir == "" {
		return b, nil
	}
	b.path = filepath.Join(dir, fileName)
	entries, err := read(b.path, sound)
	if errors.Is(err, ErrFile) {
		log.Warn("remembered peers set aside", "path", b.path+".bad", "err", err)
		err = os.Rename(b.path, b.path+".bad")
	}
	if err != nil {
		return nil, fmt.Errorf("restoring remembered peers: %w", err)
	}
	for _, e := range entries {
		b.known[e.ID] = e
	}
	return b, nil
}

func read(path string, sound func(peer.ID) error) ([]Entry, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%w: %d bytes", ErrFile, info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decode(data, sound)
}

// Entries returns the remembered peers, in random order.
func (b *Book) Entries() []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]Entry, 0, len(b.known))
	for _, e := range b.known { // in Go's random order
		out = append(out, e)
	}
	return out
}

// Len returns the number of remembered peers.
func (b *Book) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.known)
}

// Seen returns the time at which p was last connected, as far as remembered; zero if it is not.
func (b *Book) Seen(p peer.ID) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.known[p]; ok {
		return time.Unix(e.Seen, 0)
	}
	return time.Time{}
}

// Save adds the peers that h is connected to now and writes the file.
func (b *Book) Save(h host.Host, now time.Time) error {
	entries := b.add(connected(h, now), now)
	if b.path == "" {
		return nil
	}
	if err := writeFile(b.path, encode(entries)); err != nil {
		return fmt.Errorf("saving remembered peers: %w", err)
	}
	return nil
}

// connected returns an entry for each connected peer with an address.
func connected(h host.Host, now time.Time) (out []Entry) {
	for _, p := range h.Network().Peers() {
		addrs := h.Peerstore().Addrs(p)
		if len(addrs) == 0 {
			continue
		}
		dialled := slices.ContainsFunc(h.Network().ConnsToPeer(p), func(c network.Conn) bool {
			return c.Stat().Direction == network.DirOutbound
		})
		out = append(out, Entry{ID: p, Addrs: addrs[:min(len(addrs), maxAddrs)], Seen: now.Unix(), Dialled: dialled})
	}
	return out
}

// add adds entries and drops those beyond the bounds. It returns the remembered peers, latest seen first.
func (b *Book) add(entries []Entry, now time.Time) []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		e.Dialled = e.Dialled || b.known[e.ID].Dialled
		b.known[e.ID] = e
	}
	all := make([]Entry, 0, len(b.known))
	for _, e := range b.known {
		if now.Sub(time.Unix(e.Seen, 0)) <= forgetAfter {
			all = append(all, e)
		}
	}
	kept := choose(all)
	clear(b.known)
	for _, e := range kept {
		b.known[e.ID] = e
	}
	return kept
}

// choose returns the entries to remember, latest seen first. Entries that were not dialled have a limited share, with a
// few of each network.
func choose(entries []Entry) (kept []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(a.ID, b.ID))
	})
	dialled := 0
	for _, e := range entries {
		if e.Dialled {
			dialled++
		}
	}
	inbound, of := min(maxInbound, maxPeers-min(dialled, maxPeers)), map[netip.Prefix]int{}
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
		if kept = append(kept, e); len(kept) == maxPeers {
			break
		}
	}
	return kept
}
