package overlay

import (
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"golang.org/x/time/rate"

	"github.com/starling-network/starling/p2p/overlay/wire"
)

const (
	// maxCandidates bounds the addresses that are tried for one member.
	maxCandidates = 24
	// callEvery is the shortest pause between the answers to a member's calls.
	callEvery = time.Second
	// burst is how often all addresses of a member are tried after a call, once a probeTick: so each side's NAT is open
	// before the other side's next ping arrives.
	burst = 2

	// unproven pings go to addresses that a member claims but has not sent from: a burst of eight searches, then
	// unprovenPerSecond. A call has 280 bytes, a ping 81: without a bound, a member could direct 20 KB a second at any
	// address.
	unprovenBurst     = 8 * wire.MaxTold
	unprovenPerSecond = 4
)

// called records the member's claimed addresses, and pings them. The caller holds the lock.
func (m *member) called(kind byte, told []netip.AddrPort, from route, now time.Time) {
	p := &m.probing
	if now.Sub(p.calledAt) < callEvery/2 {
		return
	}
	p.calledAt = now
	fresh := slices.ContainsFunc(told, func(a netip.AddrPort) bool { return !slices.Contains(p.told, a) })
	p.told = told
	if kind == wire.Call {
		m.send(from, m.keys.SealCall(wire.Called, 0, m.d.n.own()))
	}
	switch {
	case m.direct.Load() == nil:
		p.burst = burst
		m.tryAll(now)
	case fresh && p.compare.Sub(now) > roundTime:
		p.compare = now.Add(roundTime)
	}
}

// call sends the member this host's possible addresses, so that both send to each other at once. The caller holds the
// lock.
func (m *member) call(r route) {
	m.send(r, m.keys.SealCall(wire.Call, 0, m.d.n.own()))
}

// tryAll pings all possible addresses of the member. The caller holds the lock.
func (m *member) tryAll(now time.Time) {
	for _, r := range m.allowed(now) {
		m.ping(r, 0, now)
	}
}

// allowed are the candidates to which a ping may go now. The caller holds the lock.
func (m *member) allowed(now time.Time) (out []route) {
	for _, c := range m.candidates() {
		if c.proven || m.probing.mayTry(now) {
			out = append(out, c.route)
		}
	}
	return out
}

// mayTry reports whether one more ping may go to an unproven address, and counts it. The caller holds the lock.
func (p *probing) mayTry(now time.Time) bool {
	if p.unproven == nil {
		p.unproven = rate.NewLimiter(unprovenPerSecond, unprovenBurst)
	}
	return p.unproven.AllowN(now, 1)
}

// candidate is a possible path to the member. It is proven if the member has sent from it.
type candidate struct {
	route
	proven bool
}

// own returns this host's possible addresses: as observed by members, as observed by others, and its listening
// addresses.
func (n *Network) own() []netip.AddrPort {
	var out []netip.AddrPort
	add := func(a netip.AddrPort) {
		if a = netip.AddrPortFrom(a.Addr().Unmap(), a.Port()); len(out) < wire.MaxTold && a.Port() != 0 &&
			!slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	members := 0
	for _, d := range *n.list.Load() {
		for _, m := range *d.byAddr.Load() {
			if at := m.probing.seenAt.Load(); at != nil && members < wire.MaxTold/3 {
				add(*at)
				members++
			}
		}
	}
	n.mu.Lock()
	h, seen := n.h, n.seen
	n.mu.Unlock()
	if seen != nil {
		for _, a := range seen() {
			if to, ok := udpOf(a); ok {
				add(to)
			}
		}
	}
	if h == nil {
		return out
	}
	listening, err := h.Network().InterfaceListenAddresses()
	if err != nil {
		return out
	}
	var local []netip.AddrPort
	for _, a := range listening {
		if to, ok := udpOf(a); ok {
			if to.Addr().IsLoopback() {
				local = append(local, to)
			} else if to.Addr().Zone() == "" {
				add(to)
			}
		}
	}
	if len(out) == 0 { // all on this machine
		for _, to := range local {
			add(to)
		}
	}
	return out
}

// candidates returns the possible UDP paths to the member: from libp2p's connections, the sources of its pings, its
// claimed addresses, and the peerstore. The caller holds the lock.
func (m *member) candidates() []candidate {
	h := m.d.n.host()
	if h == nil {
		return nil
	}
	var out []candidate
	seen := make(map[netip.AddrPort]bool)
	add := func(to netip.AddrPort, told, proven bool) {
		to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
		if len(out) >= maxCandidates || seen[to] || to.Port() == 0 || !to.Addr().IsValid() || to.Addr().IsMulticast() ||
			to.Addr().IsUnspecified() {
			return
		}
		seen[to] = true
		port := m.d.n.portFor(to.Addr())
		if port == nil || told && to.Addr().IsLoopback() && !port.Local().Addr().IsLoopback() {
			return // another machine is not on our loopback
		}
		out = append(out, candidate{route{port, to}, proven})
	}
	for _, c := range h.Network().ConnsToPeer(m.Peer) {
		if to, ok := udpOf(c.RemoteMultiaddr()); ok {
			add(to, false, true)
		}
	}
	for to := range m.probing.extra {
		add(to, false, true)
	}
	for _, to := range m.probing.told {
		add(to, true, false)
	}
	for _, a := range h.Peerstore().Addrs(m.Peer) {
		if to, ok := udpOf(a); ok {
			add(to, false, false)
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

// connected starts the search for direct paths to the members on a newly connected peer.
func (n *Network) connected(_ network.Network, c network.Conn) {
	for _, d := range *n.list.Load() {
		for _, m := range *d.byAddr.Load() {
			if m.Peer == c.RemotePeer() && !m.here {
				m.hurry()
			}
		}
	}
}
