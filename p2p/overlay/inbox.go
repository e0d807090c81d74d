package overlay

import (
	"sync"
)

const (
	// maxWaiting bounds the buffers that wait for a device, in bytes; beyond it the member with the most loses its
	// oldest.
	maxWaiting = 8 << 20
	// bulkTurn and smallTurn are how many bytes of datagrams a member may have taken in its turn.
	bulkTurn, smallTurn = 64 << 10, 4 << 10
	// smallDatagram is the largest size of a small datagram.
	smallDatagram = 512
	// smallRun is after how many bytes of small datagrams a train of large ones that waits has its turn too.
	smallRun = 128 << 10
)

// inbox holds a device's received packets until WireGuard takes them. Members have turns (deficit round robin), so that
// one that floods makes itself wait, and loses its own. Only the length hints at a datagram's content: one that is not
// full is a heartbeat, an acknowledgement or a handshake, and overtakes bulk, its own member's too.
type inbox struct {
	stats *Stats
	ready chan struct{} // 1: something has come

	mu          sync.Mutex
	closed      bool
	small, bulk lane
	strangers   backlog // initiations, of unknown senders so far
	run         int     // bytes of small datagrams since large ones had a turn
	queued      int     // bytes of buffers
}

// lane are the backlogs in which something waits, in the order of their turns.
type lane struct {
	first, last *backlog
	turn        int // bytes
}

// backlog is the queue of one member in one lane.
type backlog struct {
	items   []arrival
	bytes   int // of buffers
	deficit int
	next    *backlog
}

func newInbox(stats *Stats) *inbox {
	return &inbox{stats: stats, ready: make(chan struct{}, 1), small: lane{turn: smallTurn}, bulk: lane{turn: bulkTurn}}
}

// put queues an arrival, and holds its buffer. The caller's hold stays its own.
func (i *inbox) put(a arrival) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		a.drop()
		return
	}
	l, b := &i.bulk, (*backlog)(nil)
	small := min(a.seg, len(a.data)) <= smallDatagram
	if small {
		l = &i.small
	}
	switch {
	case a.member == nil:
		b = &i.strangers
	case small:
		b = &a.member.waiting[0]
	default:
		b = &a.member.waiting[1]
	}
	if len(a.data) <= smallBuffer && len(a.buf.b) > smallBuffer { // do not keep a long train for a small part of it
		buf := newBuffer(smallBuffer)
		a.data = buf.b[:copy(buf.b, a.data)]
		a.buf = buf
	} else {
		a.buf.hold()
	}
	if len(b.items) == 0 {
		b.deficit = l.turn
		l.push(b)
	}
	b.items = append(b.items, a)
	b.bytes += len(a.buf.b)
	i.queued += len(a.buf.b)
	for i.queued > maxWaiting {
		i.shed()
	}
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// get takes the next arrival; !ok if nothing waits. The caller releases its buffer.
func (i *inbox) get() (a arrival, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	l := &i.small
	if l.first == nil || i.run >= smallRun && i.bulk.first != nil {
		l = &i.bulk
	}
	if l.first == nil {
		i.run = 0
		return arrival{}, false
	}
	for l.first.deficit <= 0 {
		l.first.deficit += l.turn
		l.push(l.pop())
	}
	b := l.first
	a = i.take(b)
	b.deficit -= len(a.data)
	if i.run += len(a.data); l == &i.bulk {
		i.run = 0
	}
	if len(b.items) == 0 {
		l.pop()
	}
	return a, true
}

// take removes the first of a backlog.
func (i *inbox) take(b *backlog) arrival {
	a := b.items[0]
	b.items[0] = arrival{}
	if b.items = b.items[1:]; len(b.items) == 0 {
		b.items = nil
	}
	b.bytes -= len(a.buf.b)
	i.queued -= len(a.buf.b)
	return a
}

// shed drops the oldest of the largest backlog.
func (i *inbox) shed() {
	var largest *backlog
	var of *lane
	for _, l := range []*lane{&i.bulk, &i.small} {
		for b := l.first; b != nil; b = b.next {
			if largest == nil || b.bytes > largest.bytes {
				largest, of = b, l
			}
		}
	}
	a := i.take(largest)
	a.buf.release()
	a.drop()
	i.stats.dropped[dropBusy].Add(1)
	if len(largest.items) == 0 {
		of.remove(largest)
	}
}

func (i *inbox) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = true
	for _, l := range []*lane{&i.small, &i.bulk} {
		for b := l.pop(); b != nil; b = l.pop() {
			for len(b.items) > 0 {
				a := i.take(b)
				a.buf.release()
				a.drop()
			}
		}
	}
}

func (l *lane) push(b *backlog) {
	b.next = nil
	if l.last == nil {
		l.first = b
	} else {
		l.last.next = b
	}
	l.last = b
}

func (l *lane) pop() *backlog {
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

func (l *lane) remove(b *backlog) {
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
