package discovery

import (
	"net/netip"
	"sync"

	"github.com/libp2p/go-libp2p-kbucket/peerdiversity"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/closed"
)

// A site is a peer's place in terms of the cost of addresses: its IPv4 /24 or IPv6 /56, and the IPv4 /16 or IPv6 /32
// around it. A peer behind a relay counts at the relay, apart from those that are at home there. The zero site is that
// of a peer on loopback or in a private network, where addresses are as free as keys, and of an unknown one.
type site struct {
	near, wide netip.Prefix
	relayed    bool
}

// siteOf returns the site of an address.
func siteOf(a ma.Multiaddr) site {
	near := admit.NetworkOf(a)
	if !near.IsValid() || closed.Why(near.Addr()) != "" {
		return site{}
	}
	bits := 16
	if near.Addr().Is6() {
		bits = 32
	}
	wide, _ := near.Addr().Prefix(bits) // the bits fit
	_, err := a.ValueForProtocol(ma.P_CIRCUIT)
	return site{near, wide, err == nil}
}

// connectedFrom returns where a connected peer is: its direct connection's site, before that of a relayed one.
func connectedFrom(h host.Host, p peer.ID) (at ma.Multiaddr) {
	for _, c := range h.Network().ConnsToPeer(p) {
		if at = c.RemoteMultiaddr(); !isRelayed(c) {
			return at
		}
	}
	return at
}

func isRelayed(c network.Conn) bool {
	_, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_CIRCUIT)
	return err == nil
}

// claimed returns the site of a peer by the addresses that others say it has, the zero site if none of them counts.
func claimed(p peer.AddrInfo) (at site) {
	for _, a := range p.Addrs {
		if s := siteOf(a); s != (site{}) && (at == (site{}) || at.relayed && !s.relayed) {
			at = s
		}
	}
	return at
}

// Of a number of places each network has an equal share, and at least these: a network of few networks is open to its
// peers, and one that is spread over many gives an attacker's little.
const (
	leastNear = 2 // places of an IPv4 /24 or IPv6 /56
	leastWide = 4 // places of an IPv4 /16 or IPv6 /32
)

// A division of places among sites. Peers without a site have no limit.
type division struct {
	nears, wides int // places of each
	near, wide   map[site]int
}

// divide divides places among sites, which may be named several times.
func divide(places int, sites []site) *division {
	d := &division{near: map[site]int{}, wide: map[site]int{}}
	for _, s := range sites {
		if s != (site{}) {
			near, wide := s.keys()
			d.near[near], d.wide[wide] = 0, 0
		}
	}
	each := func(n int) int { return (places + n - 1) / max(n, 1) }
	d.nears, d.wides = max(each(len(d.near)), leastNear), max(each(len(d.wide)), leastWide)
	return d
}

func (s site) keys() (near, wide site) {
	return site{near: s.near, relayed: s.relayed}, site{wide: s.wide, relayed: s.relayed}
}

// take takes a place for a site. It reports whether there was one.
func (d *division) take(s site) bool {
	if s == (site{}) {
		return true
	}
	near, wide := s.keys()
	more := 1
	if s.relayed { // many peers reach others through few relays
		more = 2
	}
	if d.near[near] >= more*d.nears || d.wide[wide] >= more*d.wides {
		return false
	}
	d.near[near]++
	d.wide[wide]++
	return true
}

// free gives a place back.
func (d *division) free(s site) {
	if s != (site{}) {
		near, wide := s.keys()
		lower(d.near, near)
		lower(d.wide, wide)
	}
}

func lower(counts map[site]int, s site) {
	if counts[s]--; counts[s] == 0 {
		delete(counts, s)
	}
}

// Of the 20 places in a bucket of the DHT's routing table one network has these at most.
const (
	bucketNear = 4 // of an IPv4 /24 or IPv6 /56
	bucketWide = 8 // of an IPv4 /16 or IPv6 /32
)

// bucketFilter keeps the buckets of the DHT's routing table from being one network's. It is a
// [peerdiversity.PeerIPGroupFilter] that counts sites instead of the library's groups.
type bucketFilter struct {
	h host.Host

	mu      sync.Mutex
	buckets map[int]*division // by how many bits their peers' IDs have in common with this one's
	peers   map[peer.ID]site  // that are counted
}

func newBucketFilter(h host.Host) *bucketFilter {
	return &bucketFilter{h: h, buckets: map[int]*division{}, peers: map[peer.ID]site{}}
}

// PeerAddresses returns the one address by which p counts.
func (f *bucketFilter) PeerAddresses(p peer.ID) []ma.Multiaddr {
	at := connectedFrom(f.h, p)
	if at == nil {
		return nil
	}
	if _, err := manet.ToIP(at); err != nil {
		return nil
	}
	return []ma.Multiaddr{at}
}

// Allow reports whether there is room for one more peer of a network in its bucket.
func (f *bucketFilter) Allow(g peerdiversity.PeerGroupInfo) bool {
	at := siteOf(connectedFrom(f.h, g.Id))
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.bucket(g.Cpl)
	if !b.take(at) {
		return false
	}
	b.free(at)
	return true
}

// Increment counts a peer that was added.
func (f *bucketFilter) Increment(g peerdiversity.PeerGroupInfo) {
	at := siteOf(connectedFrom(f.h, g.Id))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bucket(g.Cpl).take(at) { // otherwise it has another connection since Allow, and is not counted
		f.peers[g.Id] = at
	}
}

// Decrement counts a peer no more.
func (f *bucketFilter) Decrement(g peerdiversity.PeerGroupInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.peers[g.Id]
	if !ok {
		return
	}
	delete(f.peers, g.Id)
	f.bucket(g.Cpl).free(at)
}

// bucket returns one bucket's division; f.mu is held.
func (f *bucketFilter) bucket(cpl int) *division {
	b := f.buckets[cpl]
	if b == nil {
		b = &division{nears: bucketNear, wides: bucketWide, near: map[site]int{}, wide: map[site]int{}}
		f.buckets[cpl] = b
	}
	return b
}
