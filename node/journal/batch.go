package journal

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/node/store"
)

// Store makes batches durable. Every store.Store is one.
type Store interface {
	// Write makes all puts durable in one step, or none of them.
	Write(ctx context.Context, puts ...store.Put) error
	// Get returns a record, or store.ErrNotFound.
	Get(ctx context.Context, kind, key string) ([]byte, error)
	// List calls fn for the records of a kind with a key that begins with prefix, in the order of their keys.
	List(ctx context.Context, kind, prefix string, fn func(key string, value []byte) error) error
}

// Batch collects changes of records. It has each record once: a later change replaces an earlier one. The zero value
// is an empty batch. A Batch is not safe for concurrent use.
type Batch struct {
	changes []change
	index   map[[2]string]int // position in changes, by kind and key
	err     error             // first key that is not valid
}

// change is a new value of a record, or its removal.
type change struct {
	kind, key string
	encode    func() ([]byte, error) // nil removes the record
}

// Add adds records that are encoded already, of kinds that have no table yet.
func (b *Batch) Add(puts ...store.Put) {
	for _, p := range puts {
		c := change{kind: p.Kind, key: p.Key}
		if p.Value != nil {
			c.encode = func() ([]byte, error) { return p.Value, nil }
		}
		b.add(c)
	}
}

func (b *Batch) add(c change) {
	at := [2]string{c.kind, c.key}
	if i, ok := b.index[at]; ok {
		b.changes[i] = c
		return
	}
	if b.index == nil {
		b.index = map[[2]string]int{}
	}
	b.index[at] = len(b.changes)
	b.changes = append(b.changes, c)
}

// fail keeps the first error, for Commit to return.
func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Len returns the number of records that the batch changes.
func (b *Batch) Len() int { return len(b.changes) }

// Commit makes the batch durable: all of it when it returns nil, nothing otherwise, except after store.ErrBroken. An
// empty batch costs no write. It returns store.ErrRecord if a record can never be written, and the store's errors.
func (b *Batch) Commit(ctx context.Context, s Store) error {
	if b.err != nil || len(b.changes) == 0 {
		return b.err
	}
	puts := make([]store.Put, len(b.changes))
	for i, c := range b.changes {
		puts[i] = store.Put{Kind: c.kind, Key: c.key}
		if c.encode == nil {
			continue
		}
		value, err := c.encode()
		if err != nil {
			return fmt.Errorf("%w: %s %s: %w", store.ErrRecord, c.kind, c.key, err)
		}
		puts[i].Value = value
	}
	return s.Write(ctx, puts...)
}
