package turns

import (
	"sync"
	"sync/atomic"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

const (
	// maxWaiting bounds the buffers that wait for a device, in bytes; beyond it the member with the most loses its
	// oldest.
	maxWaiting = 8 << 20
	// bulkTurn and smallTurn are how many bytes of datagrams a member may have taken in its turn.
	bulkTurn, smallTurn = 64 << 10, 4 << 10
	// SmallDatagram is the largest size of a small datagram.
	SmallDatagram = 512
	// smallRun is the number of bytes of small datagrams after which a waiting train of large ones has a turn.
	smallRun = 128 << 10
)

// Inbox holds a device's received packets until WireGuard takes them. Members have turns (deficit round robin), so that
// a flooding member delays and loses only its own packets. Only the length hints at a datagram's content. A datagram
// that is not full is a heartbeat, an acknowledgement or a handshake. It overtakes bulk, also its own member's.
type Inbox[T any] struct {
	dropped *atomic.Uint64
	ready   chan struct{} // 1: new arrivals

	mu          sync.Mutex
	closed      bool
	small, bulk lane[T]
	strangers   backlog[T] // initiations, of unknown senders so far
	run         int        // bytes of small datagrams since large ones had a turn
	queued      int        // bytes of buffers
}

// lane is the non-empty backlogs, in the order of their turns.
type lane[T any] struct {
	first, last *backlog[T]
	turn        int // bytes
}

// backlog is the queue of one member in one lane.
type backlog[T any] struct {
	items   []Arrival[T]
	bytes   int // of buffers
	deficit int
	next    *backlog[T]
}

// Arrival are datagrams for a device.
type Arrival[T any] struct {
	packet.Train
	From   T             // the receiver's information about the sender
	Origin *Origin[T]    // nil: an initiation, which has its sender inside
	Taken  chan struct{} // a stream waits for it; nil for datagrams
}

// Drop releases the stream of a packet that was handled, or will not be.
func (a Arrival[T]) Drop() {
	if a.Taken != nil {
		<-a.Taken
	}
}

// Origin is a member's state in an inbox. The inbox guards it.
type Origin[T any] struct{ waiting [2]backlog[T] } // small and large

// NewInbox returns an empty inbox. Arrivals that it drops are counted in dropped.
func NewInbox[T any](dropped *atomic.Uint64) *Inbox[T] {
	return &Inbox[T]{dropped: dropped, ready: make(chan struct{}, 1),
		small: lane[T]{turn: smallTurn}, bulk: lane[T]{turn: bulkTurn}}
}

// Put queues an arrival, and holds its buffer. The caller's hold stays its own.
func (i *Inbox[T]) Put(a Arrival[T]) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		a.Drop()
		return
	}
	l, b := &i.bulk, (*backlog[T])(nil)
	small := min(a.Seg, len(a.Data)) <= SmallDatagram
	if small {
		l = &i.small
	}
	switch {
	case a.Origin == nil:
		b = &i.strangers
	case small:
		b = &a.Origin.waiting[0]
	default:
		b = &a.Origin.waiting[1]
	}
	if len(a.Data) <= packet.Small && len(a.Buf.B) > packet.Small { // do not keep a long train for a small part of it
		buf := packet.New(packet.Small)
		a.Data = buf.B[:copy(buf.B, a.Data)]
		a.Buf = buf
	} else {
		a.Buf.Hold()
	}
	if len(b.items) == 0 {
		b.deficit = l.turn
		l.push(b)
	}
	b.items = append(b.items, a)
	b.bytes += len(a.Buf.B)
	i.queued += len(a.Buf.B)
	for i.queued > maxWaiting {
		i.shed()
	}
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// Get takes the next arrival; ok is false if the inbox is empty. The caller releases its buffer.
func (i *Inbox[T]) Get() (a Arrival[T], ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := &i.small
	if l.first == nil || i.run >= smallRun && i.bulk.first != nil {
		l = &i.bulk
	}
	if l.first == nil {
		i.run = 0
		return Arrival[T]{}, false
	}
	for l.first.deficit <= 0 {
		l.first.deficit += l.turn
		l.push(l.pop())
	}
	b := l.first
	a = i.take(b)
	b.deficit -= len(a.Data)
	if i.run += len(a.Data); l == &i.bulk {
		i.run = 0
	}
	if len(b.items) == 0 {
		l.pop()
	}
	return a, true
}

// take removes the first of a backlog.
func (i *Inbox[T]) take(b *backlog[T]) Arrival[T] {
	a := b.items[0]
	b.items[0] = Arrival[T]{}
	if b.items = b.items[1:]; len(b.items) == 0 {
		b.items = nil
	}
	b.bytes -= len(a.Buf.B)
	i.queued -= len(a.Buf.B)
	return a
}

// shed drops the oldest of the largest backlog.
func (i *Inbox[T]) shed() {
	var largest *backlog[T]
	var of *lane[T]
	for _, l := range []*lane[T]{&i.bulk, &i.small} {
		for b := l.first; b != nil; b = b.next {
			if largest == nil || b.bytes > largest.bytes {
				largest, of = b, l
			}
		}
	}
	a := i.take(largest)
	a.Buf.Release()
	a.Drop()
	i.dropped.Add(1)
	if len(largest.items) == 0 {
		of.remove(largest)
	}
}

// Ready has a token if there are arrivals since the last token was taken.
func (i *Inbox[T]) Ready() <-chan struct{} { return i.ready }

// Queued returns how many bytes of buffers wait.
func (i *Inbox[T]) Queued() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.queued
}

// Close drops everything, also arrivals from now on.
func (i *Inbox[T]) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	for _, l := range []*lane[T]{&i.small, &i.bulk} {
		for b := l.pop(); b != nil; b = l.pop() {
			for len(b.items) > 0 {
				a := i.take(b)
				a.Buf.Release()
				a.Drop()
			}
		}
	}
}

func (l *lane[T]) push(b *backlog[T]) {
	b.next = nil
	if l.last == nil {
		l.first = b
	} else {
		l.last.next = b
	}
	l.last = b
}

func (l *lane[T]) pop() *backlog[T] {
	b := l.first
	if b == nil {
		return nil
	}
	if l.first = b.next; l.first == nil {
		l.last = nil
	}
	b.next = nil
	return b
}

func (l *lane[T]) remove(b *backlog[T]) {
	for n, at := 0, l.first; at != nil; n++ {
		next := at.next
		if n == 0 {
			l.first, l.last = nil, nil
		}
		if at != b {
			l.push(at)
		}
		at = next
	}
	b.next = nil
}
