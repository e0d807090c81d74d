package store

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
)

type recordKey struct{ kind, key string }

// Memory is a journal without a disk, for tests and simulations.
type Memory struct {
	mu      sync.Mutex
	records map[recordKey][]byte
	closed  bool
}

var _ Store = (*Memory)(nil)

// NewMemory gives an empty journal.
func NewMemory() *Memory { return &Memory{records: map[recordKey][]byte{}} }

// Write implements Store.
func (m *Memory) Write(ctx context.Context, puts ...Put) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := checkPuts(puts); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	for _, p := range puts {
		at := recordKey{p.Kind, p.Key}
		if p.Value == nil {
			delete(m.records, at)
		} else {
			m.records[at] = append([]byte{}, p.Value...)
		}
	}
	return nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := checkKey(kind, key); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, ErrClosed
	}
	v, ok := m.records[recordKey{kind, key}]
	if !ok {
		return nil, ErrNotFound
	}
	return append([]byte{}, v...), nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, kind, prefix string, fn func(key string, value []byte) error) error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	found := map[string][]byte{}
	for at, v := range m.records {
		if at.kind == kind && strings.HasPrefix(at.key, prefix) {
			found[at.key] = append([]byte{}, v...)
		}
	}
	m.mu.Unlock() // fn may use the store
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(key, found[key]); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Close implements Store. The records stay for Snapshot.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// Snapshot returns an open copy of the current journal: the disk that a restarted peer finds. It works on a closed
// journal too.
func (m *Memory) Snapshot() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := NewMemory()
	maps.Copy(c.records, m.records) // values are never changed in place
	return c
}
