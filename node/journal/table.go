package journal

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"sync"

	"github.com/starling-network/starling/node/store"
)

// Table is one kind of record. K is a type with string or an unsigned integer as its underlying type, or one with
// MarshalText and UnmarshalText. V is encoded as JSON.
type Table[K comparable, V any] struct{ kind string }

// defined has the kinds that have a table.
var defined struct {
	sync.Mutex
	kinds map[string]bool
}

// Define returns the table of a kind. It is called once for each kind, by package variables. It panics if the kind is
// defined already, because two packages must not share one, and if it is empty or longer than store.MaxKind.
func Define[K comparable, V any](kind string) Table[K, V] {
	defined.Lock()
	defer defined.Unlock()
	switch {
	case kind == "" || len(kind) > store.MaxKind:
		panic(fmt.Sprintf("journal: kind %q: want 1 to %d bytes", kind, store.MaxKind))
	case defined.kinds[kind]:
		panic(fmt.Sprintf("journal: kind %q is defined twice", kind))
	case defined.kinds == nil:
		defined.kinds = map[string]bool{}
	}
	defined.kinds[kind] = true
	return Table[K, V]{kind}
}

// Kind returns the kind of the table's records.
func (t Table[K, V]) Kind() string { return t.kind }

// Put adds a record to the batch. Commit encodes it, so v must not change until then.
func (t Table[K, V]) Put(b *Batch, k K, v V) {
	t.change(b, k, func() ([]byte, error) { return json.Marshal(v) })
}

// Encode returns a record as the store takes it, for a caller that writes it beside records without a table.
func (t Table[K, V]) Encode(k K, v V) (store.Put, error) {
	key, err := keyText(k)
	var value []byte
	if err == nil {
		value, err = json.Marshal(v)
	}
	if err != nil {
		return store.Put{}, fmt.Errorf("%w: %s %v: %w", store.ErrRecord, t.kind, k, err)
	}
	return store.Put{Kind: t.kind, Key: key, Value: value}, nil
}

// Delete adds the removal of a record to the batch. A record that does not exist may be removed.
func (t Table[K, V]) Delete(b *Batch, k K) { t.change(b, k, nil) }

// Write replaces one record, in a write of its own. Its errors are those of Commit.
func (t Table[K, V]) Write(ctx context.Context, s Store, k K, v V) error {
	var b Batch
	t.Put(&b, k, v)
	return b.Commit(ctx, s)
}

// Remove removes one record, in a write of its own. A record that does not exist may be removed.
func (t Table[K, V]) Remove(ctx context.Context, s Store, k K) error {
	var b Batch
	t.Delete(&b, k)
	return b.Commit(ctx, s)
}

func (t Table[K, V]) change(b *Batch, k K, encode func() ([]byte, error)) {
	key, err := keyText(k)
	if err != nil {
		b.fail(fmt.Errorf("%w: %s %v: %w", store.ErrRecord, t.kind, k, err))
		return
	}
	b.add(change{t.kind, key, encode})
}

// Get returns a record. It returns store.ErrNotFound if there is none. A record with an unknown field is an error.
func (t Table[K, V]) Get(ctx context.Context, s Store, k K) (v V, err error) {
	key, err := keyText(k)
	if err != nil {
		return v, fmt.Errorf("reading %s %v: %w", t.kind, k, err)
	}
	value, err := s.Get(ctx, t.kind, key)
	if err == nil {
		err = decode(value, &v)
	}
	if err != nil {
		return v, fmt.Errorf("reading %s %s: %w", t.kind, key, err)
	}
	return v, nil
}

// List calls fn for each record with a key that begins with prefix, in the order of their keys. It returns fn's first
// error. A record with an unknown field is an error, because a newer version of the program wrote it.
func (t Table[K, V]) List(ctx context.Context, s Store, prefix string, fn func(K, V) error) error {
	return s.List(ctx, t.kind, prefix, func(key string, value []byte) error {
		k, err := keyFrom[K](key)
		var v V
		if err == nil {
			err = decode(value, &v)
		}
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", t.kind, key, err)
		}
		return fn(k, v)
	})
}

// Clear adds the removal of all records with a key that begins with prefix to the batch. It does not decode them.
func (t Table[K, V]) Clear(ctx context.Context, s Store, b *Batch, prefix string) error {
	return Raw(t).Clear(ctx, s, b, prefix)
}

var errTrailing = errors.New("data after the value")

func decode(value []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}

// digits is the length of the largest uint64 in decimal: shorter keys are padded, so that they sort as numbers do.
const digits = 20

// keyText encodes a key.
func keyText(k any) (string, error) {
	if m, ok := k.(encoding.TextMarshaler); ok {
		b, err := m.MarshalText()
		return string(b), err
	}
	switch v := reflect.ValueOf(k); {
	case v.Kind() == reflect.String:
		return v.String(), nil
	case v.CanUint():
		return fmt.Sprintf("%0*d", digits, v.Uint()), nil
	}
	return "", fmt.Errorf("key of type %T: want a string, an unsigned integer or text", k)
}

// keyFrom decodes a key. It refuses text that keyText does not make, since a record under it could never be changed.
func keyFrom[K comparable](text string) (k K, err error) {
	v := reflect.ValueOf(&k).Elem()
	if m, ok := any(&k).(encoding.TextUnmarshaler); ok {
		err = m.UnmarshalText([]byte(text))
	} else if v.Kind() == reflect.String {
		v.SetString(text)
	} else if v.CanUint() {
		var n uint64
		n, err = strconv.ParseUint(text, 10, v.Type().Bits())
		v.SetUint(n)
	}
	if err != nil {
		return k, err
	}
	again, err := keyText(k)
	if err == nil && again != text {
		err = fmt.Errorf("key: want %q", again)
	}
	return k, err
}
