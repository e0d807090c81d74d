package admit

import (
	"net/netip"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// maxAnswered is how many peers of one network may be [Answered] at a time: others choose whom this peer hears of, and so dials.
const maxAnswered = 4

// Standings knows the standing of every peer. It is safe for concurrent use.
type Standings struct {
	mu       sync.Mutex
	deals    map[peer.ID]map[string]struct{} // what makes a peer a counterparty
	answered map[peer.ID]*seen
	keys     map[netip.Prefix]int // of those answered, by network
	at       map[peer.ID]*seen    // connected peers
}

// seen is where a peer is connected from, and by how many connections.
type seen struct {
	at    netip.Prefix
	conns int
}

// NewStandings knows nobody.
func NewStandings() *Standings {
	return &Standings{deals: map[peer.ID]map[string]struct{}{}, answered: map[peer.ID]*seen{}, keys: map[netip.Prefix]int{}, at: map[peer.ID]*seen{}}
}

// Of returns the standing of p.
func (s *Standings) Of(p peer.ID) Standing {
	st, _ := s.of(p)
	return st
}

func (s *Standings) of(p peer.ID) (Standing, netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var at netip.Prefix
	if c := s.at[p]; c != nil {
		at = c.at
	}
	switch {
	case len(s.deals[p]) > 0:
		return Counterparty, at
	case s.answered[p] != nil:
		return Answered, at
	}
	return Stranger, at
}

// Deal makes p a counterparty until every tag is taken back by [Standings.NoDeal].
func (s *Standings) Deal(p peer.ID, tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deals[p] == nil {
		s.deals[p] = map[string]struct{}{}
	}
	s.deals[p][tag] = struct{}{}
}

// NoDeal takes one tag back.
func (s *Standings) NoDeal(p peer.ID, tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.deals[p], tag); len(s.deals[p]) == 0 {
		delete(s.deals, p)
	}
}

// Watch notes which peers answer when n dials them. A connection through a relay says nothing of its peer's address.
func (s *Standings) Watch(n network.Network) {
	n.Notify(&network.NotifyBundle{
		ConnectedF: func(_ network.Network, c network.Conn) {
			if dialled(c) {
				s.answers(c.RemotePeer(), NetworkOf(c.RemoteMultiaddr()))
			}
		},
		DisconnectedF: func(_ network.Network, c network.Conn) {
			if dialled(c) {
				s.leaves(c.RemotePeer())
			}
		},
	})
}

func dialled(c network.Conn) bool {
	_, err := c.RemoteMultiaddr().ValueForProtocol(ma.P_CIRCUIT)
	return c.Stat().Direction == network.DirOutbound && err != nil
}

func (s *Standings) answers(p peer.ID, at netip.Prefix) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.answered[p]; a != nil {
		a.conns++
		return
	}
	if at.IsValid() {
		if s.keys[at] >= maxAnswered {
			return
		}
		s.keys[at]++
	}
	s.answered[p] = &seen{at, 1}
}

func (s *Standings) leaves(p peer.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.answered[p]
	if a == nil {
		return
	}
	if a.conns--; a.conns > 0 {
		return
	}
	delete(s.answered, p)
	if !a.at.IsValid() {
		return
	}
	if s.keys[a.at]--; s.keys[a.at] == 0 {
		delete(s.keys, a.at)
	}
}

// connected notes the network that p is connected from, the latest of several, until the returned function is called.
func (s *Standings) connected(p peer.ID, at netip.Prefix) (gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.at[p]
	if c == nil {
		c = &seen{}
		s.at[p] = c
	}
	c.at = at
	c.conns++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.conns--; c.conns == 0 {
			delete(s.at, p)
		}
	})
}
