// Package store is a peer's journal: its promises, kept so that a crash at any moment breaks none.
//
// A record is a value under (kind, key). One [Store.Write] puts and deletes any number of records as one step: when it
// returns nil they are on the disk, when it returns an error none of them is. The peer's loops write first and send
// afterwards, and on start they rebuild their state machines from [Store.List].
//
// [OpenSQLite] is the real one. [Memory] is its twin for tests and simulations, and [Crashing] wraps either to cut the
// power before or after the n-th write. All three pass the conformance test in storetest.
package store

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of one record. A record past these is a programming error, refused with ErrRecord.
const (
	MaxKind  = 64       // bytes of a kind
	MaxKey   = 512      // bytes of a key
	MaxValue = 16 << 20 // bytes of a value
)

// Put writes Value under (Kind, Key), or deletes the record when Value is nil. An empty, non-nil Value is a record.
type Put struct {
	Kind  string
	Key   string
	Value []byte
}

// Store is a journal. All methods may be called from many goroutines at once.
type Store interface {
	// Write makes all puts durable as one step, in order; the later of two puts to one key wins. If it fails, nothing
	// is written: ErrFull (the disk), ErrRecord (a put past the limits), ErrClosed. After ErrBroken it is unknown
	// whether the puts are on the disk; every later call fails, and a restart resolves it. A context that ends before
	// the write begins stops it; a write that has begun is finished.
	Write(ctx context.Context, puts ...Put) error
	// Get returns a copy of the value; ErrNotFound if there is none.
	Get(ctx context.Context, kind, key string) ([]byte, error)
	// List calls fn for the records of kind with a key that begins with prefix, in byte order of their keys, and stops
	// at fn's first error, which it returns. fn owns value and may use the store. A record that is written or deleted
	// while List runs may be seen or not.
	List(ctx context.Context, kind, prefix string, fn func(key string, value []byte) error) error
	// Close ends the store; later calls return ErrClosed. Written records stay.
	Close() error
}

func checkKey(kind, key string) error {
	switch {
	case kind == "" || len(kind) > MaxKind || !plain(kind):
		return fmt.Errorf("%w: kind %.80q", ErrRecord, kind)
	case key == "" || len(key) > MaxKey || !plain(key):
		return fmt.Errorf("%w: key %.80q of kind %s", ErrRecord, key, kind)
	}
	return nil
}

func checkPuts(puts []Put) error {
	for _, p := range puts {
		if err := checkKey(p.Kind, p.Key); err != nil {
			return err
		}
		if len(p.Value) > MaxValue {
			return fmt.Errorf("%w: %s %s has %d bytes, at most %d fit",
				ErrRecord, p.Kind, p.Key, len(p.Value), MaxValue)
		}
	}
	return nil
}

// plain keys sort the same way in Go and in SQLite.
func plain(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
