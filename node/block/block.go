// Package block is the list of peers that a user wants nothing to do with: providers that are never asked for work to be done,
// buyers that nothing is sold to. It is kept in the peer's journal and takes effect at once. The list of peers that are not
// even connected to is the configuration's `block`.
package block

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/store"
)

var (
	// ErrEntry says that an entry cannot be listed, or is malformed.
	ErrEntry = errors.New("block list")
	// ErrNotListed says that a peer is not on the list.
	ErrNotListed = errors.New("not on the block list")
)

// Role is in what a peer is not wanted.
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

	maxEncoded = 4 << 10
	kind       = "block" // of the journal, by the peer's address
)

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

// Marshal is the entry as the journal has it.
func (e Entry) Marshal() ([]byte, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	return json.Marshal(e)
}

// Unmarshal reads what Marshal wrote. ErrEntry otherwise.
func Unmarshal(b []byte) (Entry, error) {
	var e Entry
	if len(b) > maxEncoded {
		return e, fmt.Errorf("%w: %d bytes, at most %d", ErrEntry, len(b), maxEncoded)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	if dec.More() {
		return Entry{}, fmt.Errorf("%w: bytes after its end", ErrEntry)
	}
	return e, e.Check()
}

// List is the block list of one peer. All methods may be called from many goroutines.
type List struct {
	store store.Store

	mu sync.Mutex
	m  map[sign.Key]Entry
}

// Open reads the list from the journal.
func Open(ctx context.Context, st store.Store) (*List, error) {
	l := &List{store: st, m: map[sign.Key]Entry{}}
	err := st.List(ctx, kind, "", func(key string, value []byte) error {
		e, err := Unmarshal(value)
		if err != nil {
			return fmt.Errorf("reading block list: %s: %w", key, err)
		}
		l.m[e.Peer] = e
		return nil
	})
	return l, err
}

// Add puts a peer on the list, in place of what the list had of it. ErrEntry.
func (l *List) Add(ctx context.Context, e Entry) error {
	e.Roles = slices.Compact(slices.Sorted(slices.Values(e.Roles)))
	b, err := e.Marshal()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.m[e.Peer]; !there && len(l.m) >= MaxEntries {
		return fmt.Errorf("%w: it has %d peers, at most %d fit", ErrEntry, len(l.m), MaxEntries)
	}
	if err := l.store.Write(ctx, store.Put{Kind: kind, Key: e.Peer.String(), Value: b}); err != nil {
		return err
	}
	l.m[e.Peer] = e
	return nil
}

// Remove takes a peer off the list. ErrNotListed.
func (l *List) Remove(ctx context.Context, p sign.Key) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.m[p]; !there {
		return fmt.Errorf("%s is %w", p, ErrNotListed)
	}
	if err := l.store.Write(ctx, store.Put{Kind: kind, Key: p.String()}); err != nil {
		return err
	}
	delete(l.m, p)
	return nil
}

// Blocked reports whether a peer is on the list in a role, and why.
func (l *List) Blocked(p sign.Key, r Role) (reason string, blocked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.m[p]
	if !ok || !slices.Contains(e.Roles, r) {
		return "", false
	}
	return e.Reason, true
}

// Entries lists what is blocked, the latest first.
func (l *List) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.m), func(x, y Entry) int {
		return cmp.Or(y.At.Compare(x.At), bytes.Compare(x.Peer[:], y.Peer[:]))
	})
}
