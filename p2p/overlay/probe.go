package overlay

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/curve25519"
	"golang.zx2c4.com/wireguard/device"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// probeTick is how often it is looked who is to be probed.
	probeTick = 250 * time.Millisecond
	// probeIdle and probeBusy are the pauses between pings on a direct path that works, without and with traffic. They keep
	// the mappings of NATs alive too.
	probeIdle = 5 * time.Second
	probeBusy = 2 * time.Second
	// probeAgain is after how long a ping counts as missed, and the next is sent.
	probeAgain = 500 * time.Millisecond
	// maxMissed pings in a row give a path up.
	maxMissed = 5
	// searchMost is the longest pause between searches for a direct path, searchBusy with traffic.
	searchMost = 30 * time.Second
	searchBusy = 5 * time.Second
	// streamEvery is the pause between pings over the stream while there is no direct path; without an answer for relayedLife the
	// member counts as lost.
	streamEvery = 5 * time.Second
	relayedLife = 3 * streamEvery
	// mtuRounds is how often each size is tried, mtuEvery after how long all are tried again.
	mtuRounds = 3
	mtuEvery  = 10 * time.Minute
	// maxCandidates bounds the addresses that are tried for one member, maxPings the pings that may still be answered.
	maxCandidates = 16
	maxPings      = 128
	pingLife      = 5 * time.Second
	// probeQueue is how many probes wait for a device; more are dropped.
	probeQueue = 256
	// answerRate bounds the pongs a second for one member: a recorded ping can be sent again by anybody.
	answerRate = 64
)

// mtuLadder are the sizes that are tried, the largest first.
var mtuLadder = []int{1420, 1400, 1380, 1360, 1320, DefaultMTU}

const (
	kindPing = 1
	kindPong = 2

	probeHead = 4 + 8 + chacha20poly1305.NonceSizeX
	probeBody = 1 + 8 + 2
	minProbe  = probeHead + probeBody + chacha20poly1305.Overhead
)

// tag names a pair of members and a direction.
type tag [8]byte

func tagOf(p []byte) tag { return tag(p[4:12]) }

// probe is one that has come.
type probe struct {
	b    []byte
	m    *member
	from route // its port is nil for one over the stream
}

// probing is what is known of the paths to a member.
type probing struct {
	mu    sync.Mutex
	pings map[uint64]ping
	extra map[netip.AddrPort]bool // addresses that pings of the member came from

	rtt      time.Duration // of the direct path
	missed   int           // pings since the last pong on it
	last     time.Time     // when the last ping on it was sent
	tries    int           // searches for a direct path since the last one was lost
	search   time.Time     // when the next is due
	answers  int           // pongs in this second
	answered time.Time     // when it began

	rounds   int // how often all sizes were tried on this path
	resize   time.Time
	verified bool // DefaultMTU was answered

	streamRTT  time.Duration
	streamPong time.Time
	streamPing time.Time

	used  atomic.Int64 // when WireGuard last sent something, in nanoseconds
	doubt atomic.Bool  // a packet could not be sent
}

type ping struct {
	at    time.Time
	route route // its port is nil for the stream
	mtu   int   // that an answer shows; 0: it was small
}

// deriveProbeKeys makes what the probes of two members are known and sealed by.
func (m *member) deriveProbeKeys(key PrivateKey, own PublicKey) error {
	shared, err := curve25519.X25519(key[:], m.Key[:])
	if err != nil {
		return err
	}
	b, err := hkdf.Key(sha256.New, shared, nil, "starling/overlay/probe/v1", chacha20poly1305.KeySize+16)
	if err != nil {
		return err
	}
	if m.seal, err = chacha20poly1305.NewX(b[:chacha20poly1305.KeySize]); err != nil {
		return err
	}
	m.mine, m.theirs = tag(b[chacha20poly1305.KeySize:][:8]), tag(b[chacha20poly1305.KeySize+8:])
	if bytes.Compare(own[:], m.Key[:]) > 0 {
		m.mine, m.theirs = m.theirs, m.mine
	}
	return nil
}

// sealProbe makes a probe of size bytes, or the smallest.
func (m *member) sealProbe(kind byte, id uint64, told, size int) []byte {
	b := make([]byte, probeHead, max(size, minProbe))
	b[0] = kindProbe
	copy(b[4:], m.mine[:])
	rand.Read(b[12:])
	body := make([]byte, max(probeBody, size-probeHead-chacha20poly1305.Overhead))
	body[0] = kind
	binary.BigEndian.PutUint64(body[1:], id)
	binary.BigEndian.PutUint16(body[9:], uint16(told))
	return m.seal.Seal(b, b[12:probeHead], body, b[:12])
}

// openProbe reads a probe of the member.
func (m *member) openProbe(b []byte) (kind byte, id uint64, told int, ok bool) {
	if kindOf(b) != kindProbe || tagOf(b) != m.theirs {
		return 0, 0, 0, false
	}
	body, err := m.seal.Open(nil, b[12:probeHead], b[probeHead:], b[:12])
	if err != nil || len(body) < probeBody {
		return 0, 0, 0, false
	}
	return body[0], binary.BigEndian.Uint64(body[1:]), int(binary.BigEndian.Uint16(body[9:])), true
}

// datagramOf is how long the datagram is in which WireGuard carries a packet.
func datagramOf(mtu int) int {
	const pad = device.PaddingMultiple
	return device.MessageTransportSize + min((mtu+pad-1)/pad*pad, MaxMTU)
}

// heard queues a probe; it does not keep p.
func (d *Device) heard(p []byte, m *member, from route) {
	select {
	case d.probes <- probe{bytes.Clone(p), m, from}:
	default:
		d.n.stats.dropped[dropBusy].Add(1)
	}
}

// probe looks for paths until the device is closed.
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

// tend does for every member what is due.
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

// suspect notes that the path may be gone.
func (m *member) suspect() { m.probing.doubt.Store(true) }

// hurry looks for a direct path again, as if none had been looked for.
func (m *member) hurry() {
	m.probing.mu.Lock()
	m.probing.tries, m.probing.search = 0, time.Time{}
	m.probing.mu.Unlock()
	select {
	case m.d.poke <- struct{}{}:
	default:
	}
}

// largest is the largest packet that the member's path takes.
func (m *member) largest() int {
	if m.here || m.direct.Load() == nil {
		return MaxMTU
	}
	return int(m.mtu.Load())
}

func (m *member) state() (Path, time.Duration, int) {
	if m.here {
		return PathDirect, 0, MaxMTU
	}
	p := &m.probing
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.direct.Load() != nil:
		return PathDirect, p.rtt, int(m.mtu.Load())
	case time.Since(p.streamPong) < relayedLife:
		return PathRelayed, p.streamRTT, MaxMTU
	}
	return PathNone, 0, DefaultMTU
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
	if now.Sub(p.streamPing) >= streamEvery {
		p.streamPing = now
		m.ping(route{}, 0, now)
	}
	if now.Before(p.search) {
		return
	}
	pause := min(searchMost, probeTick<<min(p.tries, 10))
	if busy {
		pause = min(pause, searchBusy)
	}
	p.tries++
	p.search = now.Add(pause)
	for _, r := range m.candidates() {
		m.ping(r, 0, now)
	}
}

// keep pings on the direct path, and tries sizes on it. The caller holds the lock.
func (m *member) keep(r route, now time.Time, busy bool) {
	p := &m.probing
	pause := probeIdle
	if busy {
		pause = probeBusy
	}
	if p.doubt.Swap(false) || p.missed > 0 {
		pause = probeAgain
	}
	if now.Sub(p.last) >= pause {
		if p.missed >= maxMissed {
			m.direct.Store(nil)
			m.d.n.stats.paths.down.Add(1)
			m.d.log.Debug("direct path lost", "member", m.Address, "addr", r.to)
			p.tries, p.search, p.streamPing = 0, time.Time{}, time.Time{}
			return
		}
		if p.missed == maxMissed-2 && m.mtu.Load() > MinMTU {
			// Perhaps only large packets are lost.
			m.mtu.Store(MinMTU)
			p.rounds, p.resize, p.verified = 0, now.Add(probeAgain), false
		}
		p.last = now
		p.missed++
		m.ping(r, int(m.mtu.Load()), now)
	}
	if now.Before(p.resize) {
		return
	}
	if p.rounds == mtuRounds {
		p.rounds = 0
		p.resize = now.Add(mtuEvery)
		if !p.verified && m.mtu.Load() == DefaultMTU {
			m.mtu.Store(MinMTU)
		}
		return
	}
	p.rounds++
	p.resize = now.Add(probeAgain + 2*p.rtt)
	for _, size := range mtuLadder {
		if size > int(m.mtu.Load()) || size == DefaultMTU && !p.verified {
			m.ping(r, size, now)
		}
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
		size = datagramOf(mtu)
	}
	p.pings[id] = ping{at: now, route: r, mtu: mtu}
	m.d.n.stats.probes.sent.Add(1)
	m.send(r, m.sealProbe(kindPing, id, size, size))
}

// send sends a probe.
func (m *member) send(r route, b []byte) {
	if r.port == nil {
		m.out.queue([][]byte{b})
		return
	}
	if err := r.port.send([][]byte{b}, r.to); err != nil {
		m.d.log.Debug("sending a probe", "member", m.Address, "addr", r.to, "bytes", len(b), "err", err)
	}
}

// handle does what a probe asks.
func (d *Device) handle(in probe) {
	m := in.m
	kind, id, told, ok := m.openProbe(in.b)
	if !ok {
		d.n.stats.dropped[dropForged].Add(1)
		return
	}
	now := time.Now()
	p := &m.probing
	switch kind {
	case kindPing:
		p.mu.Lock()
		defer p.mu.Unlock()
		if now.Sub(p.answered) > time.Second {
			p.answered, p.answers = now, 0
		}
		if p.answers++; p.answers > answerRate {
			return
		}
		m.send(in.from, m.sealProbe(kindPong, id, told, 0))
		if m.direct.Load() != nil {
			return
		}
		// The member looks for a path now: its packets open its side, ours must open this one.
		if in.from.port != nil && !p.extra[in.from.to] && in.from.port.fits(in.from.to.Addr()) {
			if p.extra == nil || len(p.extra) >= maxCandidates {
				p.extra = make(map[netip.AddrPort]bool)
			}
			p.extra[in.from.to] = true
			m.ping(in.from, 0, now)
		} else if in.from.port == nil && p.tries > 4 {
			p.tries, p.search = 2, now
		}
	case kindPong:
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
		m.pong(sent, rtt, now)
	}
}

// pong is news of a UDP path. The caller holds the lock.
func (m *member) pong(sent ping, rtt time.Duration, now time.Time) {
	p := &m.probing
	switch r := m.direct.Load(); {
	case r == nil:
		p.rtt, p.missed, p.last = rtt, 0, now
		p.rounds, p.resize, p.verified = 0, now, false
		m.mtu.Store(DefaultMTU)
		m.direct.Store(&sent.route)
		m.d.n.stats.paths.up.Add(1)
		m.d.log.Debug("direct path found", "member", m.Address, "addr", sent.route.to, "rtt", rtt)
		m.out.divert(sent.route)
		m.keep(sent.route, now, true)
	case *r == sent.route:
		p.missed = 0
		if p.rtt = (7*p.rtt + rtt) / 8; p.rtt > rtt {
			p.rtt = rtt // queues empty quickly
		}
		if sent.mtu >= DefaultMTU {
			p.verified = true
		}
		if sent.mtu > int(m.mtu.Load()) {
			m.mtu.Store(int32(sent.mtu))
		}
	}
}

// candidates are the UDP paths on which the member may be: where libp2p is connected to it, where it says it is, where its
// pings came from. The caller holds the lock.
func (m *member) candidates() []route {
	h := m.d.n.host()
	if h == nil {
		return nil
	}
	var out []route
	seen := make(map[netip.AddrPort]bool)
	add := func(to netip.AddrPort) {
		to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
		if len(out) >= maxCandidates || seen[to] || to.Port() == 0 || !to.Addr().IsValid() || to.Addr().IsMulticast() || to.Addr().IsUnspecified() {
			return
		}
		seen[to] = true
		if port := m.d.n.portFor(to.Addr()); port != nil {
			out = append(out, route{port, to})
		}
	}
	for _, c := range h.Network().ConnsToPeer(m.Peer) {
		if to, ok := udpOf(c.RemoteMultiaddr()); ok {
			add(to)
		}
	}
	for to := range m.probing.extra {
		add(to)
	}
	for _, a := range h.Peerstore().Addrs(m.Peer) {
		if to, ok := udpOf(a); ok {
			add(to)
		}
	}
	return out
}

// udpOf is the UDP address under a multiaddress of QUIC that is not relayed.
func udpOf(a ma.Multiaddr) (netip.AddrPort, bool) {
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err == nil {
		return netip.AddrPort{}, false
	}
	if _, err := a.ValueForProtocol(ma.P_QUIC_V1); err != nil {
		return netip.AddrPort{}, false
	}
	transport, _ := ma.SplitFunc(a, func(c ma.Component) bool { return c.Protocol().Code == ma.P_QUIC_V1 })
	if transport == nil {
		return netip.AddrPort{}, false
	}
	to, err := manet.ToNetAddr(transport)
	if err != nil {
		return netip.AddrPort{}, false
	}
	ap, err := netip.ParseAddrPort(to.String())
	return ap, err == nil
}

// connected looks for direct paths to the members on a peer, to which there is a new connection.
func (n *Network) connected(_ network.Network, c network.Conn) {
	list := *n.list.Load()
	if len(list) == 0 {
		return
	}
	n.poke(list, c.RemotePeer())
}

func (n *Network) poke(list []*Device, p peer.ID) {
	for _, d := range list {
		for _, m := range *d.byAddr.Load() {
			if m.Peer == p && !m.here && m.direct.Load() == nil {
				m.hurry()
			}
		}
	}
}
