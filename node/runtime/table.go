package runtime

import (
	"fmt"
	"sync"
)

// Table holds the executions of a runtime's process by their directories. The zero value is open and empty.
type Table[E any] struct {
	mu     sync.Mutex
	closed bool
	all    map[string]owned[E]
}

type owned[E any] struct {
	id        string
	execution E
}

// Find gives the execution of a handle that the runtime of this name made. ErrBadHandle, ErrClosed or ErrNotFound.
func (t *Table[E]) Find(name string, h Handle) (e E, err error) {
	if err := h.Check(); err != nil {
		return e, err
	}
	if h.Runtime != name {
		return e, fmt.Errorf("%w: made by %q", ErrBadHandle, h.Runtime)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return e, ErrClosed
	}
	if o, ok := t.all[h.Dir]; ok && o.id == h.ID {
		return o.execution, nil
	}
	return e, fmt.Errorf("%w: %s", ErrNotFound, h.ID)
}

// Add takes an execution in and calls begin, which must not wait, before anything can close the table. ErrClosed or
// ErrExists.
func (t *Table[E]) Add(dir, id string, e E, begin func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	if _, ok := t.all[dir]; ok {
		return ErrExists
	}
	if t.all == nil {
		t.all = map[string]owned[E]{}
	}
	t.all[dir] = owned[E]{id, e}
	begin()
	return nil
}

// Has reports whether the execution in a directory is one of the table's.
func (t *Table[E]) Has(dir string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.all[dir]
	return ok
}

// While calls f, which must not wait, unless the table is closed: then ErrClosed.
func (t *Table[E]) While(f func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	f()
	return nil
}

// Open is no error until the table is closed, and then ErrClosed.
func (t *Table[E]) Open() error { return t.While(func() {}) }

// Each calls f, which must not wait, with every execution.
func (t *Table[E]) Each(f func(E)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.all {
		f(o.execution)
	}
}

// Remove forgets the execution in a directory.
func (t *Table[E]) Remove(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, dir)
}

// Close lets nothing more in and gives every execution up by a call of drop, which must not wait.
func (t *Table[E]) Close(drop func(E)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, o := range t.all {
		drop(o.execution)
	}
	clear(t.all)
}
