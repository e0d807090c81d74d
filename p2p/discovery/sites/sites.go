// Package sites divides places among networks: keys are free, addresses are not. A place that is divided among networks
// gives each an equal part, and a few at least, so that the many keys of one machine take no place of others.
package sites

import (
	"net/netip"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/closed"
	"github.com/starling-network/starling/p2p/conns"
)

// A Site is a peer's place in terms of the cost of addresses: its IPv4 /24 or IPv6 /56, and the IPv4 /16 or IPv6 /32
// around it. A peer behind a relay counts at the relay, separately from the peers of the relay's own site. The site is
// zero for an unknown peer, and on loopback or in a private network, where addresses are as free as keys.
type Site struct {
	near, wide netip.Prefix
	relayed    bool
}

// Of returns the site of an address.
func Of(a ma.Multiaddr) Site {
	near := admit.NetworkOf(a)
	if !near.IsValid() || closed.Why(near.Addr()) != "" {
		return Site{}
	}
	bits := 16
	if near.Addr().Is6() {
		bits = 32
	}
	wide, _ := near.Addr().Prefix(bits) // the bits fit
	return Site{near, wide, addr.Circuit(a)}
}

// Address returns where a connected peer is: its direct connection's site, before that of a relayed one.
func Address(h host.Host, p peer.ID) (at ma.Multiaddr) {
	for _, c := range h.Network().ConnsToPeer(p) {
		if at = c.RemoteMultiaddr(); !conns.Relayed(c) {
			return at
		}
	}
	return at
}

// Claimed returns the site of a peer by the addresses that others say it has, the zero site if none of them counts.
func Claimed(p peer.AddrInfo) (at Site) {
	for _, a := range p.Addrs {
		if s := Of(a); s != (Site{}) && (at == (Site{}) || at.relayed && !s.relayed) {
			at = s
		}
	}
	return at
}

// Each network has an equal share of the places, but at least these. So a small deployment in few networks remains open
// to its peers, and in a large one an attacker's network gets little.
const (
	LeastNear = 2 // places of an IPv4 /24 or IPv6 /56
	LeastWide = 4 // places of an IPv4 /16 or IPv6 /32
)

// A Division of places among sites. Peers without a site have no limit.
type Division struct {
	nears, wides int // places of each
	near, wide   map[Site]int
}

// Divide divides places among sites, which may be named several times.
func Divide(places int, sites []Site) *Division {
	d := &Division{near: map[Site]int{}, wide: map[Site]int{}}
	for _, s := range sites {
		if s != (Site{}) {
			near, wide := s.keys()
			d.near[near], d.wide[wide] = 0, 0
		}
	}
	each := func(n int) int { return (places + n - 1) / max(n, 1) }
	d.nears, d.wides = max(each(len(d.near)), LeastNear), max(each(len(d.wide)), LeastWide)
	return d
}

func (s Site) keys() (near, wide Site) {
	return Site{near: s.near, relayed: s.relayed}, Site{wide: s.wide, relayed: s.relayed}
}

// Take takes a place for a site. It reports whether there was one.
func (d *Division) Take(s Site) bool {
	if s == (Site{}) {
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

// Free gives a place back.
func (d *Division) Free(s Site) {
	if s != (Site{}) {
		near, wide := s.keys()
		lower(d.near, near)
		lower(d.wide, wide)
	}
}

func lower(counts map[Site]int, s Site) {
	if counts[s]--; counts[s] == 0 {
		delete(counts, s)
	}
}
