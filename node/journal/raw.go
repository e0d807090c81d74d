package journal

import (
	"context"
	"fmt"

	"github.com/starling-network/starling/node/store"
)

// Raw is one kind of record whose values have a binary encoding of their own: signed bytes, which must stay as they
// were received.
type Raw struct{ kind string }

// DefineRaw returns the raw records of a kind. As Define, it is called once for each kind and panics if the kind is
// defined already.
func DefineRaw(kind string) Raw { return Raw{Define[string, []byte](kind).kind} }

// Kind returns the kind of the records.
func (r Raw) Kind() string { return r.kind }

// Encode returns a record as the store takes it.
func (r Raw) Encode(key string, value []byte) store.Put {
	return store.Put{Kind: r.kind, Key: key, Value: value}
}

// List calls fn for each record with a key that begins with prefix, in the order of their keys. It returns fn's first
// error.
func (r Raw) List(ctx context.Context, s Store, prefix string, fn func(key string, value []byte) error) error {
	return s.List(ctx, r.kind, prefix, fn)
}

// Put adds a record to the batch.
func (r Raw) Put(b *Batch, key string, value []byte) { b.Add(r.Encode(key, value)) }

// Delete adds the removal of a record to the batch. A record that does not exist may be removed.
func (r Raw) Delete(b *Batch, key string) { b.Add(r.Encode(key, nil)) }

// Get returns a record. It returns store.ErrNotFound if there is none.
func (r Raw) Get(ctx context.Context, s Store, key string) ([]byte, error) {
	value, err := s.Get(ctx, r.kind, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", r.kind, key, err)
	}
	return value, nil
}

// Clear adds the removal of all records with a key that begins with prefix to the batch.
func (r Raw) Clear(ctx context.Context, s Store, b *Batch, prefix string) error {
	return r.List(ctx, s, prefix, func(key string, _ []byte) error {
		r.Delete(b, key)
		return nil
	})
}
