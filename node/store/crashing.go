package store

import (
	"context"
	"sync"
)

// When is the side of a write on which the power fails.
type When uint8

const (
	// Before: the write does not take effect.
	Before When = iota
	// After: the write takes effect, but the writer gets no result.
	After
)

// Crashing is a journal with a power cut at a chosen write, so that a test can enumerate every crash a peer can have:
// run once without CrashAt and read Count, then run again for each n and both sides. After the crash every call fails
// with ErrCrashed and Close leaves the inner store open: it is the disk on which the peer is started again.
type Crashing struct {
	inner Store

	mu      sync.Mutex
	count   int
	at      int
	when    When
	crashed chan struct{}
}

var _ Store = (*Crashing)(nil)

// NewCrashing wraps s; until CrashAt is called it only counts.
func NewCrashing(s Store) *Crashing { return &Crashing{inner: s, crashed: make(chan struct{})} }

// CrashAt sets the crash at the n-th Write from the start, counting from 1; 0 means never.
func (c *Crashing) CrashAt(n int, when When) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.when = n, when
}

// Cut cuts the power now.
func (c *Crashing) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.down() {
		close(c.crashed)
	}
}

// Count is the number of Write calls so far, the crashing one included.
func (c *Crashing) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// Crashed is closed at the crash.
func (c *Crashing) Crashed() <-chan struct{} { return c.crashed }

// Write implements Store.
func (c *Crashing) Write(ctx context.Context, puts ...Put) error {
	c.mu.Lock()
	defer c.mu.Unlock() // one write at a time, so that n means the same in every run of one schedule
	if c.down() {
		return ErrCrashed
	}
	c.count++
	if c.count != c.at {
		return c.inner.Write(ctx, puts...)
	}
	defer close(c.crashed)
	if c.when == After {
		if err := c.inner.Write(ctx, puts...); err != nil {
			return err
		}
	}
	return ErrCrashed
}

// Get implements Store.
func (c *Crashing) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if c.down() {
		return nil, ErrCrashed
	}
	return c.inner.Get(ctx, kind, key)
}

// List implements Store.
func (c *Crashing) List(ctx context.Context, kind, prefix string, fn func(key string, value []byte) error) error {
	if c.down() {
		return ErrCrashed
	}
	return c.inner.List(ctx, kind, prefix, func(key string, value []byte) error {
		if c.down() {
			return ErrCrashed
		}
		return fn(key, value)
	})
}

// Close implements Store.
func (c *Crashing) Close() error {
	if c.down() {
		return nil
	}
	return c.inner.Close()
}

func (c *Crashing) down() bool {
	select {
	case <-c.crashed:
		return true
	default:
		return false
	}
}
