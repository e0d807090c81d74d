// Package admit divides a peer's scarce resources: connections, handshakes, streams, their memory, and concurrent
// calls. Keys are free, so a limit for each key is no bound. Each peer has a standing instead, which has a cost, and
// each standing has a ceiling:
//
//	standing       requirement                                            ceiling
//	Stranger       a key                                                  40 %
//	Answered       this peer dialled it directly, and it answered         60 %
//	Funded         an order that it can pay for, lately                   80 %
//	Counterparty   a lease, or a cluster, with this peer                  100 %
//
// A request is admitted while the total in use is below the ceiling of the peer's standing: strangers together never
// take the upper 60 %. The strangers of one network, an IPv4 /24 or IPv6 /56, have a quarter of the strangers' share.
package admit

import (
	"net/netip"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Standing is a peer's relation to this one. A higher standing may use more.
type Standing uint8

// The standings.
const (
	Stranger Standing = iota
	Answered
	Funded
	Counterparty
)

// ceilings are in percent.
var ceilings = [...]int{Stranger: 40, Answered: 60, Funded: 80, Counterparty: 100}

var names = [...]string{Stranger: "stranger", Answered: "answered", Funded: "funded", Counterparty: "counterparty"}

func (s Standing) String() string { return names[s] }

// Share returns this standing's ceiling of total, at least one: a peer is admitted while less is in use.
func (s Standing) Share(total int) int { return max(total*ceilings[s]/100, 1) }

// priority is the ceiling as libp2p's resource manager counts it: (1 + priority)/256 of a scope's memory.
func (s Standing) priority() uint8 {
	switch s {
	case Stranger:
		return network.ReservationPriorityLow // 40 %
	case Answered:
		return network.ReservationPriorityMedium // 60 %
	case Funded:
		return network.ReservationPriorityHigh // 80 %
	}
	return network.ReservationPriorityAlways
}

// NetworkOf returns the IPv4 /24 or IPv6 /56 of an address: keys are free, these are not. It returns the zero prefix
// for loopback and for an address without IP, which totals alone bound.
func NetworkOf(a ma.Multiaddr) netip.Prefix {
	if a == nil {
		return netip.Prefix{}
	}
	ip, err := manet.ToIP(a)
	at, ok := netip.AddrFromSlice(ip)
	if at = at.Unmap(); err != nil || !ok || at.IsLoopback() {
		return netip.Prefix{}
	}
	bits := 24
	if at.Is6() {
		bits = 56
	}
	p, _ := at.Prefix(bits) // the bits fit
	return p
}

// NetworkOfPeer returns the network of an address at which this host is connected to p; a peer behind a relay has the
// relay's. It returns the zero prefix where no connection has one.
func NetworkOfPeer(n network.Network, p peer.ID) netip.Prefix {
	for _, c := range n.ConnsToPeer(p) {
		if at := NetworkOf(c.RemoteMultiaddr()); at.IsValid() {
			return at
		}
	}
	return netip.Prefix{}
}

// Places are a number of equal places, given by standing. They are safe for concurrent use.
type Places struct {
	total int

	mu      sync.Mutex
	used    int
	from    map[netip.Prefix]int  // of those used, strangers' by network
	by      [len(ceilings)]int    // those used, by the standing with which they were taken
	refused [len(ceilings)]uint64 // requests for one
}

// NewPlaces makes total places.
func NewPlaces(total int) *Places { return &Places{total: total, from: map[netip.Prefix]int{}} }

// Take takes a place for a peer with a standing in a network. It returns an idempotent function that frees the place,
// or nil if there is no place for such a peer.
func (p *Places) Take(s Standing, at netip.Prefix) (free func()) {
	counted := s == Stranger && at.IsValid()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used >= s.Share(p.total) || counted && p.from[at] >= p.networkShare() {
		p.refused[s]++
		return nil
	}
	p.used++
	p.by[s]++
	if counted {
		p.from[at]++
	}
	freed := false
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if freed {
			return
		}
		freed = true
		p.used--
		p.by[s]--
		if !counted {
			return
		}
		if p.from[at]--; p.from[at] == 0 {
			delete(p.from, at)
		}
	}
}

// networkShare is how many places strangers of one network may have.
func (p *Places) networkShare() int { return max(Stranger.Share(p.total)/4, 1) }

// full reports whether the strangers of a network have all the places that they may have.
func (p *Places) full(at netip.Prefix) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return at.IsValid() && p.from[at] >= p.networkShare()
}
