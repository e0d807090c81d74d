package admit

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// Limits of a [Manager].
type Limits struct {
	Handshakes int // inbound connections without identity so far
	// more of these: a third each from addresses of counterparties, of funded peers, and of others that are or were no
	// strangers
	Known   int
	Conns   int // connections from others
	Streams int // streams that others opened
	// PerPeer is how many of the streams one peer may have, by its standing.
	PerPeer [len(ceilings)]int
}

// Manager is libp2p's resource manager with ceilings by standing. Outbound streams and connections have the inner
// manager's limits alone.
type Manager struct {
	network.ResourceManager
	standings  *Standings
	handshakes *Places
	known      map[Standing]*Places // more handshakes, from addresses of peers of a standing
	conns      *Places
	streams    *Places
	perPeer    [len(ceilings)]int
	guests     *guests
	evictions  sync.WaitGroup // connections that are being closed for newcomers

	mu      sync.Mutex
	opened  map[peer.ID]int // streams, by the peer that opened them
	evicted uint64
}

// NewManager puts the limits l before inner.
func NewManager(inner network.ResourceManager, standings *Standings, l Limits) *Manager {
	return &Manager{
		ResourceManager: inner, standings: standings, perPeer: l.PerPeer,
		// A peer has no standing before the handshake.
		handshakes: NewPlaces(l.Handshakes * 100 / ceilings[Stranger]),
		conns:      NewPlaces(l.Conns), streams: NewPlaces(l.Streams),
		// A quarter of those for known addresses are for one network, whichever peers share it.
		known: map[Standing]*Places{
			Answered:     NewPlaces(l.Known / 3 * 100 / ceilings[Stranger]),
			Funded:       NewPlaces(l.Known / 3 * 100 / ceilings[Stranger]),
			Counterparty: NewPlaces(l.Known / 3 * 100 / ceilings[Stranger]),
		},
		guests: newGuests(), opened: map[peer.ID]int{},
	}
}

// Close waits for connections that are being closed, and closes the inner manager.
func (m *Manager) Close() error {
	m.evictions.Wait()
	return m.ResourceManager.Close()
}

// errFull wraps libp2p's own error, by which transports know that a limit was reached.
func errFull(of string) error {
	return fmt.Errorf("no place among %s: %w", of, network.ErrResourceLimitExceeded)
}

// OpenConnection admits a connection, which [conn.SetPeer] admits again when its peer is known.
func (m *Manager) OpenConnection(d network.Direction, fd bool, a ma.Multiaddr) (network.ConnManagementScope, error) {
	at, shaking := NetworkOf(a), func() {}
	if d == network.DirInbound {
		if shaking = m.handshakes.Take(Stranger, at); shaking == nil {
			if kept := m.known[m.standings.known(a)]; kept != nil {
				shaking = kept.Take(Stranger, at)
			}
		}
		if shaking == nil {
			return nil, errFull("handshakes")
		}
	}
	inner, err := m.ResourceManager.OpenConnection(d, fd, a)
	if err != nil {
		shaking()
		return nil, err
	}
	return &conn{ConnManagementScope: inner, m: m, d: d, a: a, at: at, since: time.Now(), free: []func(){shaking}}, nil
}

// OpenStream admits a stream that p opened; a refused one is reset, and its connection lives.
func (m *Manager) OpenStream(p peer.ID, d network.Direction) (network.StreamManagementScope, error) {
	free := func() {}
	if d == network.DirInbound {
		if free = m.takeStream(p); free == nil {
			return nil, errFull("streams")
		}
		m.guests.opened(p, time.Now())
	}
	inner, err := m.ResourceManager.OpenStream(p, d)
	if err != nil {
		free()
		return nil, err
	}
	return &streamScope{StreamManagementScope: inner, of: memory{m.standings, p}, free: free}, nil
}

func (m *Manager) takeStream(p peer.ID) func() {
	s, at := m.standings.of(p)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.opened[p] >= m.perPeer[s] {
		return nil
	}
	free := m.streams.Take(s, at)
	if free == nil {
		return nil
	}
	m.opened[p]++
	return sync.OnceFunc(func() {
		free()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.opened[p]--; m.opened[p] == 0 {
			delete(m.opened, p)
		}
	})
}

// takeConn takes a place for a connection that p opened, another stranger's if there is none.
func (m *Manager) takeConn(p peer.ID, at netip.Prefix, began time.Time) (free func()) {
	s := m.standings.Of(p)
	taken := m.conns.Take(s, at)
	if s != Stranger {
		return taken
	}
	if taken == nil {
		m.evict(at)
		if taken = m.conns.Take(s, at); taken == nil {
			return nil
		}
	}
	now := time.Now()
	return m.guests.enter(&guest{p: p, at: at, shook: now.Sub(began), since: now}, taken)
}

// evict ends a stranger's connections, and gives back the place of one, for another from a network.
func (m *Manager) evict(at netip.Prefix) {
	if !m.conns.full(at) {
		at = netip.Prefix{} // all have no more places, not this network
	}
	who := m.guests.victim(at, func(p peer.ID) bool { return m.standings.Of(p) == Stranger })
	if who == nil {
		return
	}
	who.leave()
	m.mu.Lock()
	m.evicted++
	m.mu.Unlock()
	m.evictions.Go(func() { m.standings.disconnect(who.p) })
}

// conn is the scope of one connection.
type conn struct {
	network.ConnManagementScope
	m  *Manager
	d  network.Direction
	a  ma.Multiaddr
	at netip.Prefix
	// since is when its handshake began.
	since time.Time

	mu   sync.Mutex
	p    peer.ID
	done bool
	free []func() // places that the connection has
}

// SetPeer ends the handshake: from here the connection counts by its peer's standing.
func (c *conn) SetPeer(p peer.ID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return network.ErrResourceScopeClosed
	}
	if c.d == network.DirInbound {
		taken := c.m.takeConn(p, c.at, c.since)
		if taken == nil {
			return errFull("connections")
		}
		c.free = append(c.free, taken)
	}
	if err := c.ConnManagementScope.SetPeer(p); err != nil {
		return err
	}
	c.free[0]() // of the handshake
	c.p = p
	c.free = append(c.free, c.m.standings.connected(p, c.a))
	return nil
}

// Done gives everything back.
func (c *conn) Done() {
	c.mu.Lock()
	c.done = true
	free := c.free
	c.free = nil
	c.mu.Unlock()
	for _, f := range free {
		f()
	}
	c.ConnManagementScope.Done()
}

func (c *conn) of() memory {
	c.mu.Lock()
	defer c.mu.Unlock()
	return memory{c.m.standings, c.p}
}

func (c *conn) ReserveMemory(size int, prio uint8) error {
	return c.ConnManagementScope.ReserveMemory(size, c.of().bound(prio))
}

func (c *conn) BeginSpan() (network.ResourceScopeSpan, error) {
	return c.of().span(c.ConnManagementScope.BeginSpan())
}

func (c *conn) PeerScope() network.PeerScope {
	inner := c.ConnManagementScope.PeerScope()
	if inner == nil {
		return nil
	}
	return &peerScope{inner, c.of()}
}

// memory bounds a peer's reserved memory by its standing at that time.
type memory struct {
	standings *Standings
	p         peer.ID
}

func (b memory) bound(prio uint8) uint8 { return min(prio, b.standings.Of(b.p).priority()) }

func (b memory) span(inner network.ResourceScopeSpan, err error) (network.ResourceScopeSpan, error) {
	if err != nil {
		return nil, err
	}
	return &span{inner, b}, nil
}

type span struct {
	network.ResourceScopeSpan
	of memory
}

func (s *span) ReserveMemory(size int, prio uint8) error {
	return s.ResourceScopeSpan.ReserveMemory(size, s.of.bound(prio))
}

func (s *span) BeginSpan() (network.ResourceScopeSpan, error) {
	return s.of.span(s.ResourceScopeSpan.BeginSpan())
}

type peerScope struct {
	network.PeerScope
	of memory
}

func (s *peerScope) ReserveMemory(size int, prio uint8) error {
	return s.PeerScope.ReserveMemory(size, s.of.bound(prio))
}

func (s *peerScope) BeginSpan() (network.ResourceScopeSpan, error) {
	return s.of.span(s.PeerScope.BeginSpan())
}

type streamScope struct {
	network.StreamManagementScope
	of   memory
	free func()
}

func (s *streamScope) ReserveMemory(size int, prio uint8) error {
	return s.StreamManagementScope.ReserveMemory(size, s.of.bound(prio))
}

func (s *streamScope) BeginSpan() (network.ResourceScopeSpan, error) {
	return s.of.span(s.StreamManagementScope.BeginSpan())
}

func (s *streamScope) Done() {
	s.free()
	s.StreamManagementScope.Done()
}
