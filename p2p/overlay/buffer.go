package overlay

import (
	"sync"
	"sync/atomic"
)

const (
	// smallBuffer holds one datagram, largeBuffer a train of them as the kernel's offloads make it, or one virtio
	// packet.
	smallBuffer = 2 << 10
	largeBuffer = 64<<10 + 64
)

// buffer is memory for packets, given back when its last user has released it.
type buffer struct {
	b    []byte
	n    int // used, where there is no slice that says so
	refs atomic.Int32
}

var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, smallBuffer)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, largeBuffer)} }}
)

// newBuffer is one of at least n bytes, held once. Its content is whatever it was.
func newBuffer(n int) *buffer {
	pool := &largeBuffers
	if n <= smallBuffer {
		pool = &smallBuffers
	}
	b := pool.Get().(*buffer)
	b.refs.Store(1)
	return b
}

func (b *buffer) hold() { b.refs.Add(1) }

func (b *buffer) release() {
	switch b.refs.Add(-1) {
	case 0:
		if len(b.b) == smallBuffer {
			smallBuffers.Put(b)
		} else {
			largeBuffers.Put(b)
		}
	case -1:
		panic("overlay: buffer released twice")
	}
}

// train are datagrams back to back in a buffer, all of seg bytes but the last, which may be shorter.
type train struct {
	buf  *buffer
	data []byte
	seg  int
}

// pop takes the first datagram.
func (t *train) pop() []byte {
	n := min(t.seg, len(t.data))
	p := t.data[:n:n]
	t.data = t.data[n:]
	return p
}
