package overlay

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

const (
	// probeTick is the interval of checks for due probes.
	probeTick = 250 * time.Millisecond
	// probeIdle and probeBusy are the pauses between pings on a direct path that works, without and with traffic. They
	// keep the mappings of NATs alive too.
	probeIdle = 5 * time.Second
	probeBusy = 2 * time.Second
	// probeAgain is the pause between probes of a suspected path.
	probeAgain = 500 * time.Millisecond
	// searchMost is the longest pause between searches for a direct path, searchBusy with traffic.
	searchMost = 30 * time.Second
	searchBusy = 5 * time.Second
	// streamEvery is the pause between pings over the stream while there is no direct path; without an answer for
	// relayedLife the member counts as lost.
	streamEvery = 5 * time.Second
	relayedLife = 3 * streamEvery
	// mtuRounds is how often each size is tried, mtuEvery after how long all are tried again.
	mtuRounds = 3
	mtuEvery  = 10 * time.Minute
	// maxPings bounds the pings that may still be answered.
	maxPings = 256
	pingLife = 5 * time.Second
	// probeQueue is how many probes wait for a device; more are dropped.
	probeQueue = 256
	// answerRate bounds the pongs a second for one member, since a recorded ping can be replayed.
	answerRate = 64
)

// mtuLadder are the sizes that are tried, the largest first.
var mtuLadder = []int{1420, 1400, 1380, 1360, 1320, wire.DefaultMTU}

// probe is a received probe.
type probe struct {
	b    []byte
	m    *member
	from route // its port is nil for one over the stream
}

// probing is the state of the paths to a member.
type probing struct {
	mu    sync.Mutex
	pings map[uint64]ping
	extra map[netip.AddrPort]bool // addresses that pings of the member came from
	told  []netip.AddrPort        // its claimed addresses

	unproven *rate.Limiter // pings to unproven addresses

	rtt      time.Duration // of the direct path
	missed   int           // pings since the last pong on it
	missing  time.Time     // when the first of them was sent
	ponged   time.Time     // when the last pong on it came
	last     time.Time     // when the last ping on it was sent
	tries    int           // searches for a direct path since the last one was lost
	search   time.Time     // when the next is due
	burst    int           // how often all addresses are still to be tried
	calledAt time.Time     // when the member last called
	answers  int           // pongs in this second
	answered time.Time     // when it began

	round   round     // the comparison that is on
	turns   uint64    // that there were
	compare time.Time // when the next is due
	rival   route     // the path that won the last wins rounds
	wins    int

	rounds   int // how often all sizes were tried on this path
	resize   time.Time
	verified bool // DefaultMTU was answered

	streamRTT  time.Duration
	streamPong time.Time
	streamPing time.Time

	seenAt atomic.Pointer[netip.AddrPort] // where the member sees us; nil: not known
	used   atomic.Int64                   // when WireGuard last sent something, in nanoseconds
	heard  atomic.Int64                   // when a packet of the member last came out of it
	doubt  atomic.Bool                    // a packet could not be sent
}

type ping struct {
	at    time.Time
	route route // its port is nil for the stream
	mtu   int   // that an answer shows; 0: it was small
	round uint64
}

// heard queues a probe. It does not retain p.
func (d *Device) heard(p []byte, m *member, from route) {
	select {
	case d.probes <- probe{bytes.Clone(p), m, from}:
	default:
		d.n.stats.dropped[dropBusy].Add(1)
	}
}

// probe searches paths until the device is closed.
func (d *Device) probe() {
	t := time.NewTicker(probeTick)
	defer t.Stop()
	for {
		select {
		case <-d.ctx.Done():
			return
		case p := <-d.probes:
			d.handle(p)
		case <-t.C:
			d.tend()
		case <-d.poke:
			d.tend()
		}
	}
}

// tend does the due work for every member.
func (d *Device) tend() {
	now := time.Now()
	for _, m := range *d.byAddr.Load() {
		if !m.here {
			m.tend(now)
		}
	}
}

// wake notes that there is traffic.
func (m *member) wake() { m.probing.used.Store(time.Now().UnixNano()) }

// suspect records that the path may have failed.
func (m *member) suspect() { m.probing.doubt.Store(true) }

// hurry restarts the search for a direct path, or for a better one.
func (m *member) hurry() {
	m.probing.mu.Lock()
	m.probing.tries, m.probing.search = 0, time.Time{}
	if soon := time.Now().Add(roundTime); m.probing.compare.After(soon) {
		m.probing.compare = soon
	}
	m.probing.mu.Unlock()
	select {
	case m.d.poke <- struct{}{}:
	default:
	}
}

// largest is the largest packet that the member's path takes.
func (m *member) largest() int {
	if m.here || m.direct.Load() == nil {
		return wire.MaxMTU
	}
	return int(m.mtu.Load())
}

func (m *member) state() (Path, time.Duration, int) {
	if m.here {
		return PathDirect, 0, wire.MaxMTU
	}
	p := &m.probing
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.direct.Load() != nil:
		return PathDirect, p.rtt, int(m.mtu.Load())
	case time.Since(p.streamPong) < relayedLife:
		return PathRelayed, p.streamRTT, wire.MaxMTU
	}
	return PathNone, 0, wire.DefaultMTU
}

func (m *member) tend(now time.Time) {
	p := &m.probing
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, sent := range p.pings {
		if now.Sub(sent.at) > pingLife {
			delete(p.pings, id)
		}
	}
	busy := now.UnixNano()-p.used.Load() < int64(2*time.Second)
	if r := m.direct.Load(); r != nil {
		m.keep(*r, now, busy)
		return
	}
	m.seek(now, busy)
}

// seek probes the stream's path, and searches a direct one. The caller holds the lock.
func (m *member) seek(now time.Time, busy bool) {
	p := &m.probing
	if now.Sub(p.streamPing) >= streamEvery {
		p.streamPing = now
		m.ping(route{}, 0, now)
	}
	if !now.Before(p.search) {
		pause := min(searchMost, probeTick<<min(p.tries, 10))
		if busy {
			pause = min(pause, searchBusy)
		}
		p.tries++
		p.search = now.Add(pause)
		m.call(route{})
		m.tryAll(now)
	} else if p.burst > 0 {
		p.burst--
		m.tryAll(now)
	}
}

// ping sends one, over the stream when the route has no port. The caller holds the lock.
func (m *member) ping(r route, mtu int, now time.Time) {
	p := &m.probing
	if p.pings == nil {
		p.pings = make(map[uint64]ping)
	}
	if len(p.pings) >= maxPings {
		return
	}
	var b [8]byte
	rand.Read(b[:])
	id := binary.BigEndian.Uint64(b[:])
	size := 0
	if mtu > 0 {
		size = wire.DatagramOf(mtu)
	}
	p.pings[id] = ping{at: now, route: r, mtu: mtu, round: p.round.id}
	m.d.n.stats.probes.sent.Add(1)
	m.send(r, m.keys.Seal(wire.Ping, id, size, nil, size))
}

// send sends a probe.
func (m *member) send(r route, b []byte) {
	if r.port == nil {
		m.out.queue([][]byte{b})
		return
	}
	if err := r.port.Send([][]byte{b}, r.to); err != nil {
		m.d.log.Debug("sending a probe", "member", m.Address, "addr", r.to, "bytes", len(b), "err", err)
	}
}

// handle answers a probe.
func (d *Device) handle(in probe) {
	m := in.m
	kind, id, told, more, ok := m.keys.Open(in.b)
	if !ok {
		d.n.stats.dropped[dropForged].Add(1)
		return
	}
	now := time.Now()
	p := &m.probing
	switch kind {
	case wire.Ping:
		p.mu.Lock()
		defer p.mu.Unlock()
		if now.Sub(p.answered) > time.Second {
			p.answered, p.answers = now, 0
		}
		if p.answers++; p.answers > answerRate {
			return
		}
		var at []byte
		if in.from.port != nil {
			at = wire.AppendAddr(nil, in.from.to)
		}
		m.send(in.from, m.keys.Seal(wire.Pong, id, told, at, 0))
		if m.direct.Load() != nil {
			return
		}
		// The member searches a path now: its packets open its side's NAT, ours must open this side's.
		if in.from.port != nil && !p.extra[in.from.to] && in.from.port.Fits(in.from.to.Addr()) {
			if p.extra == nil || len(p.extra) >= maxCandidates {
				p.extra = make(map[netip.AddrPort]bool)
			}
			p.extra[in.from.to] = true
			m.ping(in.from, 0, now)
		}
	case wire.Pong:
		p.mu.Lock()
		defer p.mu.Unlock()
		sent, mine := p.pings[id]
		if !mine || sent.route != in.from {
			return
		}
		delete(p.pings, id)
		d.n.stats.probes.answered.Add(1)
		rtt := now.Sub(sent.at)
		if in.from.port == nil {
			p.streamRTT, p.streamPong = rtt, now
			return
		}
		if at, ok := wire.ReadAddr(more); ok {
			p.seenAt.Store(&at)
		}
		m.pong(sent, rtt, now)
	case wire.Call, wire.Called:
		p.mu.Lock()
		defer p.mu.Unlock()
		m.called(kind, wire.ReadCall(more), in.from, now)
	}
}
