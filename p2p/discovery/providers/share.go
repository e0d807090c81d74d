package providers

import (
	"container/heap"
	"net/netip"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/p2p/admit"
)

// A share is a bounded number of provider records: of one provider, of all providers at one address, of one network, or
// of all. The shares are a tree:
//
//	all → network (IPv4 /24, IPv6 /56) → address (IPv4 /32, IPv6 /64) → provider → its records
//	all → no network (loopback, relayed, unknown)                     → provider → its records
//
// When a share is full, its largest part loses a record, and within that part its largest, down to one provider, which
// loses its oldest record. Among equally large parts, the part with the new record is chosen. So a record is displaced
// by another part only if that part is smaller.
type share struct {
	parent *share
	key    any // in Store.shares: a provider or an origin
	most   int
	count  int // of records
	place  int // in parent.parts

	parts   parts     // with the largest on top; empty for a provider
	records []*record // of a provider, the oldest first; otherwise empty
}

// parts is a heap of shares, the largest first.
type parts []*share

// Len implements heap.Interface.
func (p parts) Len() int { return len(p) }

// Less implements heap.Interface: the larger one is first.
func (p parts) Less(i, j int) bool { return p[i].count > p[j].count }

// Swap implements heap.Interface.
func (p parts) Swap(i, j int) {
	p[i], p[j] = p[j], p[i]
	p[i].place, p[j].place = i, j
}

// Push implements heap.Interface.
func (p *parts) Push(x any) {
	s := x.(*share)
	s.place = len(*p)
	*p = append(*p, s)
}

// Pop implements heap.Interface.
func (p *parts) Pop() any {
	last := len(*p) - 1
	s := (*p)[last]
	(*p)[last] = nil
	*p = (*p)[:last]
	return s
}

// part adds an empty part to s.
func (s *share) part(key any, most int) *share {
	p := &share{parent: s, key: key, most: most}
	heap.Push(&s.parts, p)
	return p
}

// grow changes the number of records of s and of all shares that it is a part of. It calls gone for each empty share.
func (s *share) grow(by int, gone func(key any)) {
	for ; s != nil; s = s.parent {
		s.count += by
		switch {
		case s.parent == nil:
		case s.count == 0:
			heap.Remove(&s.parent.parts, s.place)
			gone(s.key)
		default:
			heap.Fix(&s.parent.parts, s.place)
		}
	}
}

// network returns the part of the root that s belongs to. It returns s itself if s is this peer's own.
func (s *share) network() *share {
	for s.parent != nil && s.parent.parent != nil {
		s = s.parent
	}
	return s
}

// victim returns the record that s loses for a record that was just added to newest, which is s or a part of it.
func (s *share) victim(newest *share) *record {
	for len(s.parts) > 0 {
		largest := s.parts[0]
		for p := newest; p != nil; p = p.parent {
			if p.parent == s && p.count == largest.count {
				largest = p
			}
		}
		s = largest
	}
	return s.records[0]
}

// An origin is where a provider is connected from. It is zero for a provider on loopback, a relayed provider and an
// unknown one.
type origin struct{ network, address netip.Prefix }

// originOf returns the origin of a peer that is connected from a.
func originOf(a ma.Multiaddr) origin {
	network := admit.NetworkOf(a)
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err == nil || !network.IsValid() {
		return origin{} // a relay's address is not the peer's
	}
	ip, _ := manet.ToIP(a) // it has a network
	at, _ := netip.AddrFromSlice(ip)
	at = at.Unmap()
	bits := 32
	if at.Is6() {
		bits = 64
	}
	address, _ := at.Prefix(bits) // the bits fit
	return origin{network, address}
}
