// Package turns shares a device fairly among the packets of many flows and members. It has the queue of outgoing
// packets, the inbox of incoming ones, and the passage between an inbox and the TUN. A flooding flow delays and loses
// only its own packets. Small packets overtake bulk.
package turns

import (
	"hash/maphash"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

const (
	// flows is how many queues there are; flows that share one share its turn.
	flows = 1024
	// quantum is how many bytes a flow may send in its turn: one virtio packet, so that trains stay whole.
	quantum = 64 << 10
	// maxQueued bounds the memory of all flows together; beyond it the longest loses its oldest packet.
	maxQueued = 8 << 20
	// stuck is the time after which packets that did not leave count as lost: WireGuard drops packets if the handshake
	// fails.
	stuck = 100 * time.Millisecond
)

// Queue is between the TUN and WireGuard, with one queue for each inner flow, served in turn (deficit round robin as in
// FQ-CoDel, RFC 8290, without its dropping by age: flows wait for themselves only). A flow with an empty queue is
// served before flows with a backlog: heartbeats pass bulk.
type Queue struct {
	dropped *atomic.Uint64
	seed    maphash.Seed
	ready   chan struct{} // 1: look again

	mu     sync.Mutex
	closed bool
	flows  [flows]flow
	sparse flowList // flows that began to send
	bulky  flowList // flows that used their turn up
	queued int      // bytes of buffers
}

// Outlet is the outgoing side of one member. Its queue guards it.
type Outlet struct {
	inflight int       // packets between the queue and the kernel
	pace     pace      // how many there may be
	lastSent time.Time // when some last left
}

// item is a packet that waits.
type item struct {
	*packet.Packet
	to *Outlet
}

type flow struct {
	items   []item
	deficit int
	bytes   int // of buffers
	active  bool
	next    *flow
}

type flowList struct{ first, last *flow }

func (l *flowList) push(f *flow) {
	f.next = nil
	if l.last == nil {
		l.first = f
	} else {
		l.last.next = f
	}
	l.last = f
}

func (l *flowList) pop() *flow {
	f := l.first
	if f == nil {
		return nil
	}
	if l.first = f.next; l.first == nil {
		l.last = nil
	}
	f.next = nil
	return f
}

// NewQueue returns an empty queue. Packets that it drops are counted in dropped.
func NewQueue(dropped *atomic.Uint64) *Queue {
	return &Queue{dropped: dropped, seed: maphash.MakeSeed(), ready: make(chan struct{}, 1)}
}

// flowOf is the queue of a packet: by protocol, addresses and ports.
func (q *Queue) flowOf(p []byte) *flow {
	var key [13]byte
	key[0] = p[9]
	copy(key[1:9], p[12:20])
	head := int(p[0]&15) * 4
	if (key[0] == packet.TCP || key[0] == packet.UDP) && len(p) >= head+4 && p[6]&0x3f|p[7] == 0 {
		copy(key[9:], p[head:head+4])
	}
	return &q.flows[maphash.Bytes(q.seed, key[:])%flows]
}

// Put queues a packet and takes it over.
func (q *Queue) Put(to *Outlet, p *packet.Packet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		p.Release()
		return
	}
	f := q.flowOf(p.Data)
	size := len(p.Buf.B)
	f.items = append(f.items, item{p, to})
	f.bytes += size
	q.queued += size
	if !f.active {
		f.active, f.deficit = true, quantum
		q.sparse.push(f)
	}
	for q.queued > maxQueued {
		q.shed()
	}
	q.wake()
}

// shed drops the oldest packet of the longest flow.
func (q *Queue) shed() {
	var longest *flow
	for i := range q.flows {
		if f := &q.flows[i]; longest == nil || f.bytes > longest.bytes {
			longest = f
		}
	}
	q.dropped.Add(1)
	q.done(longest)
}

// done removes the first packet of a flow.
func (q *Queue) done(f *flow) {
	p := f.items[0]
	f.items[0] = item{}
	if f.items = f.items[1:]; len(f.items) == 0 {
		f.items = nil
	}
	f.bytes -= len(p.Buf.B)
	q.queued -= len(p.Buf.B)
	p.Release()
}

func (q *Queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// Get fills bufs from offset on with the next packets, and waits until there is one.
func (q *Queue) Get(bufs [][]byte, sizes []int, offset int) (int, error) {
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return 0, os.ErrClosed
		}
		n := q.fill(bufs, sizes, offset)
		held := n == 0 && q.queued > 0
		q.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		if !held {
			<-q.ready
			continue
		}
		t := time.NewTimer(stuck)
		select {
		case <-q.ready:
		case <-t.C:
		}
		t.Stop()
	}
}

// fill serves flows until there is no room, or none may send.
func (q *Queue) fill(bufs [][]byte, sizes []int, offset int) int {
	n := 0
	var held flowList // flows of members at their limit of packets under way
	now := time.Now()
	for n < len(bufs) {
		f, fresh := q.sparse.pop(), true
		if f == nil {
			f, fresh = q.bulky.pop(), false
		}
		if f == nil {
			break
		}
		n = q.serve(f, bufs, sizes, offset, n, now)
		switch {
		case len(f.items) == 0 && fresh && f.deficit < quantum:
			// Once more through the other list, so that a flow does not pass for a new one by pausing (RFC 8290, 4.2).
			q.bulky.push(f)
		case len(f.items) == 0:
			f.active = false
		case f.deficit <= 0:
			f.deficit += quantum
			q.bulky.push(f)
		case n == len(bufs):
			// Its turn continues with the next call.
			if fresh {
				f.next = q.sparse.first
				if q.sparse.first = f; q.sparse.last == nil {
					q.sparse.last = f
				}
			} else {
				f.next = q.bulky.first
				if q.bulky.first = f; q.bulky.last == nil {
					q.bulky.last = f
				}
			}
		default:
			held.push(f)
		}
	}
	for f := held.pop(); f != nil; f = held.pop() {
		q.bulky.push(f)
	}
	return n
}

// serve takes packets of one flow as long as its turn lasts, and returns the number of full bufs.
func (q *Queue) serve(f *flow, bufs [][]byte, sizes []int, offset, n int, now time.Time) int {
	for n < len(bufs) && len(f.items) > 0 && f.deficit > 0 {
		p := f.items[0]
		m := p.to
		if m.inflight >= m.pace.most() {
			if now.Sub(m.lastSent) < stuck {
				return n
			}
			m.inflight, m.lastSent = 0, now
		}
		size := p.Next(bufs[n][offset:])
		if size > 0 {
			sizes[n] = size
			n++
			f.deficit -= size
			if m.inflight == 0 {
				m.lastSent = now
			}
			m.inflight++
		}
		if p.Empty() {
			q.done(f)
		}
	}
	return n
}

// Sent notes that the kernel has taken packets for a member.
func (q *Queue) Sent(m *Outlet, n int) {
	if n == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	was := m.inflight >= m.pace.most()
	m.inflight, m.lastSent = max(0, m.inflight-n), time.Now()
	m.pace.done(n, m.lastSent)
	if was && m.inflight < m.pace.most() && q.queued > 0 {
		q.wake()
	}
}

// Forget drops the packets for a member.
func (q *Queue) Forget(m *Outlet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.flows {
		f := &q.flows[i]
		for n := len(f.items); n > 0; n-- {
			p := f.items[0]
			if p.to == m {
				q.done(f)
				continue
			}
			f.items = append(f.items[1:], p)
		}
	}
}

// Close drops everything, and ends Get.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for i := range q.flows {
		for f := &q.flows[i]; len(f.items) > 0; {
			q.done(f)
		}
	}
	q.wake()
}
