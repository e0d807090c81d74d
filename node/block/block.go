// Package block is the list of peers that a user excludes: it never buys from or sells to them. The list is in the
// peer's journal and takes effect at once. To refuse even connections, use the configuration's `block`.
package block

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/journal"
)

var (
	// ErrEntry means that an entry cannot be listed, or is malformed.
	ErrEntry = errors.New("block list")
	// ErrNotListed means that a peer is not on the list.
	ErrNotListed = errors.New("not on the block list")
)

// Role is a part in which a peer is blocked.
type Role string

// The roles.
const (
	Provider Role = "provider" // nothing is bought from it
	Buyer    Role = "buyer"    // nothing is sold to it
)

// Entry is one blocked peer.
type Entry struct {
	Peer   sign.Key  `json:"peer"`
	Roles  []Role    `json:"roles"` // at least one, sorted, each once
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

const (
	// MaxEntries bounds the list.
	MaxEntries = 10_000
	// MaxReason bounds why, bytes.
	MaxReason = 256
)

// entries has the list by the peers' addresses.
var entries = journal.Define[sign.Key, Entry]("block")

// Check holds an entry to its rules.
func (e Entry) Check() error {
	switch {
	case e.Peer.IsZero():
		return fmt.Errorf("%w: no peer is named", ErrEntry)
	case len(e.Roles) == 0 || !slices.IsSorted(e.Roles) || len(slices.Compact(slices.Clone(e.Roles))) != len(e.Roles):
		return fmt.Errorf("%w: roles %v, want provider, buyer or both", ErrEntry, e.Roles)
	case len(e.Reason) > MaxReason || !utf8.ValidString(e.Reason):
		return fmt.Errorf("%w: the reason has more than %d bytes or is not text", ErrEntry, MaxReason)
	}
	for _, r := range e.Roles {
		if r != Provider && r != Buyer {
			return fmt.Errorf("%w: role %.40q, want provider or buyer", ErrEntry, string(r))
		}
	}
	return nil
}

// List is the block list of one peer. All methods may be called from many goroutines.
type List struct {
	store  journal.Store
	change chan struct{} // has a token while the list is changed and journalled

	mu sync.Mutex
	m  map[sign.Key]Entry
}

// Open reads the list from the journal.
func Open(ctx context.Context, st journal.Store) (*List, error) {
	l := &List{store: st, change: make(chan struct{}, 1), m: map[sign.Key]Entry{}}
	err := entries.List(ctx, st, "", func(k sign.Key, e Entry) error {
		err := e.Check()
		if err == nil && e.Peer != k {
			err = fmt.Errorf("%w: record of another peer, %s", ErrEntry, e.Peer)
		}
		if err != nil {
			return fmt.Errorf("reading block list: %s: %w", k, err)
		}
		l.m[k] = e
		return nil
	})
	return l, err
}

// get returns the entry of a peer, and the length of the list.
func (l *List) get(p sign.Key) (e Entry, there bool, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, there = l.m[p]
	return e, there, len(l.m)
}

// Add puts an entry on the list, in place of the peer's former one. It returns ErrEntry.
func (l *List) Add(ctx context.Context, e Entry) error {
	e.Roles = slices.Compact(slices.Sorted(slices.Values(e.Roles)))
	if err := e.Check(); err != nil {
		return err
	}
	l.change <- struct{}{}
	defer func() { <-l.change }()
	if _, there, n := l.get(e.Peer); !there && n >= MaxEntries {
		return fmt.Errorf("%w: block list is full: %d peers of %d", ErrEntry, n, MaxEntries)
	}
	if err := entries.Write(ctx, l.store, e.Peer, e); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.m[e.Peer] = e
	return nil
}

// Remove takes a peer off the list. ErrNotListed.
func (l *List) Remove(ctx context.Context, p sign.Key) error {
	l.change <- struct{}{}
	defer func() { <-l.change }()
	if _, there, _ := l.get(p); !there {
		return fmt.Errorf("%s is %w", p, ErrNotListed)
	}
	if err := entries.Remove(ctx, l.store, p); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.m, p)
	return nil
}

// Blocked reports whether a peer is on the list in a role, and why.
func (l *List) Blocked(p sign.Key, r Role) (reason string, blocked bool) {
	e, ok, _ := l.get(p)
	if !ok || !slices.Contains(e.Roles, r) {
		return "", false
	}
	return e.Reason, true
}

// Entries lists the entries, the latest first.
func (l *List) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.m), func(x, y Entry) int {
		return cmp.Or(y.At.Compare(x.At), bytes.Compare(x.Peer[:], y.Peer[:]))
	})
}
