package wasm

import (
	"sync/atomic"

	"github.com/tetratelabs/wazero/experimental"
)

// allocator gives the guest its linear memory. It reserves address space for the whole limit at once, and the kernel
// backs pages when they are touched, so growing never copies. It records refusals, to distinguish a lack of memory from
// other failures.
type allocator struct {
	limit   uint64 // bytes
	size    atomic.Uint64
	refused atomic.Bool
}

// errTooLittleMemory is the panic value of instantiating a module with first pages over the limit.
type errTooLittleMemory struct{ need, limit uint64 }

// Allocate reserves the module's largest possible memory.
func (a *allocator) Allocate(_, most uint64) experimental.LinearMemory {
	b, err := reserve(min(a.limit, most))
	if err != nil {
		return &memory{a: a}
	}
	return &memory{a: a, b: b}
}

// memory is the linear memory of one module. b is never moved while it lives.
type memory struct {
	a       *allocator
	b       []byte
	started bool
}

// Reallocate gives the first size bytes; nil is a refusal that the guest sees as memory.grow = -1.
func (m *memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.b)) {
		m.a.refused.Store(true)
		if !m.started {
			panic(errTooLittleMemory{size, m.a.limit})
		}
		return nil
	}
	m.started = true
	m.a.size.Store(size)
	return m.b[:size:len(m.b)]
}

// Free returns the address space.
func (m *memory) Free() {
	release(m.b)
	m.b = nil
}
