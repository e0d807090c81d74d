package journal

import (
	"context"

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
