// Package packet is IPv4 packets as a TUN gives them, cut into segments that fit a path, and the memory in which they
// are passed on.
package packet

import (
	"sync"
	"sync/atomic"
)

const (
	// Small holds one datagram, Large a train of them as the kernel's offloads make it, or one virtio
	// packet.
	Small = 2 << 10
	Large = 64<<10 + 64
)

// Buffer is memory for packets, given back when its last user has released it.
type Buffer struct {
	B    []byte
	N    int // used bytes, where no slice has them
	refs atomic.Int32
}

var (
	smallBuffers = sync.Pool{New: func() any { return &Buffer{B: make([]byte, Small)} }}
	largeBuffers = sync.Pool{New: func() any { return &Buffer{B: make([]byte, Large)} }}
)

// New is one of at least n bytes, held once. Its content is whatever it was.
func New(n int) *Buffer {
	pool := &largeBuffers
	if n <= Small {
		pool = &smallBuffers
	}
	b := pool.Get().(*Buffer)
	b.refs.Store(1)
	return b
}

// Hold keeps the memory until one more Release.
func (b *Buffer) Hold() { b.refs.Add(1) }

// Held returns how many hold the memory.
func (b *Buffer) Held() int { return int(b.refs.Load()) }

// Release drops a reference, and frees the memory with the last one.
func (b *Buffer) Release() {
	switch b.refs.Add(-1) {
	case 0:
		if len(b.B) == Small {
			smallBuffers.Put(b)
		} else {
			largeBuffers.Put(b)
		}
	case -1:
		panic("overlay: buffer released twice")
	}
}

// Train are datagrams back to back in a buffer, all of seg bytes but the last, which may be shorter.
type Train struct {
	Buf  *Buffer
	Data []byte
	Seg  int
}

// Pop takes the first datagram.
func (t *Train) Pop() []byte {
	n := min(t.Seg, len(t.Data))
	p := t.Data[:n:n]
	t.Data = t.Data[n:]
	return p
}
