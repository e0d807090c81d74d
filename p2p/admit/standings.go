package admit

import (
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// maxAnswered is how many peers of one network may be [Answered] at a time: other peers influence the addresses that
// this peer receives and dials.
const maxAnswered = 4

const (
	// fundedFor is how long a peer is [Funded], and maxFunded how many are at a time.
	fundedFor = time.Minute
	maxFunded = 1024
)

// Standings holds the standing of every peer. It is safe for concurrent use.
type Standings struct {
	mu       sync.Mutex
	deals    map[peer.ID]map[string]struct{} // the deals of each counterparty
	answered map[peer.ID]*seen
	funded   map[peer.ID]time.Time // until when
	keys     map[netip.Prefix]int  // of those answered, by network
	at       map[peer.ID]*seen     // connected peers
	homes    homes
	network  network.Network // of these connections
}

// seen is where a peer is connected from, and by how many connections.
type seen struct {
	at    netip.Prefix
	addr  netip.Addr
	conns int
}

// NewStandings returns Standings in which every peer is a Stranger.
func NewStandings() *Standings {
	return &Standings{deals: map[peer.ID]map[string]struct{}{}, answered: map[peer.ID]*seen{},
		funded: map[peer.ID]time.Time{}, keys: map[netip.Prefix]int{}, at: map[peer.ID]*seen{}, homes: newHomes()}
}

// StandingOn returns the function that returns a host's standings. On a host without standings every peer has the other
// one.
func StandingOn(h any, other Standing) func(peer.ID) Standing {
	if h, ok := h.(interface{ Standing(peer.ID) Standing }); ok {
		return h.Standing
	}
	return func(peer.ID) Standing { return other }
}

// Of returns the standing of p.
func (s *Standings) Of(p peer.ID) Standing {
	st, _ := s.of(p)
	return st
}

// Seen returns the standing of p, and the network that it is connected from.
func (s *Standings) Seen(p peer.ID) (Standing, netip.Prefix) { return s.of(p) }

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
	case time.Now().Before(s.funded[p]):
		return Funded, at
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
	if c := s.at[p]; c != nil {
		s.homes.set(p, c.addr)
	}
}

// NoDeal takes one tag back.
func (s *Standings) NoDeal(p peer.ID, tag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, had := s.deals[p][tag]; !had {
		return
	}
	if delete(s.deals[p], tag); len(s.deals[p]) == 0 {
		delete(s.deals, p)
		s.homes.remember(p, s.hasDeal)
	}
}

// Fund makes p [Funded] for a while, after an order that it can pay for. If there are too many, the oldest becomes a
// stranger again.
func (s *Standings) Fund(p peer.ID) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, again := s.funded[p]; !again && len(s.funded) >= maxFunded {
		var first peer.ID
		for old, until := range s.funded {
			if first == "" || until.Before(s.funded[first]) {
				first = old
			}
		}
		delete(s.funded, first)
	}
	s.funded[p] = now.Add(fundedFor)
	if c := s.at[p]; c != nil {
		s.homes.set(p, c.addr)
		s.homes.remember(p, s.hasDeal)
	}
}

// hasDeal reports whether p is a counterparty; s.mu is held.
func (s *Standings) hasDeal(p peer.ID) bool { return len(s.deals[p]) > 0 }

// Remember notes an address of a peer that answered before this process started.
func (s *Standings) Remember(p peer.ID, at ma.Multiaddr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.homes.set(p, addrOf(at))
	s.homes.remember(p, s.hasDeal)
}

// known returns the highest standing of the peers that have, or lately had, the address a, as far as they were more
// than strangers.
func (s *Standings) known(a ma.Multiaddr) Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	best, now := Stranger, time.Now()
	for p := range s.homes.at[addrOf(a)] {
		switch {
		case s.hasDeal(p):
			return Counterparty
		case now.Before(s.funded[p]):
			best = Funded
		default:
			best = max(best, Answered)
		}
	}
	return best
}

// disconnect ends the connections that p opened.
func (s *Standings) disconnect(p peer.ID) {
	s.mu.Lock()
	n := s.network
	s.mu.Unlock()
	if n == nil {
		return
	}
	for _, c := range n.ConnsToPeer(p) {
		if c.Stat().Direction == network.DirInbound {
			_ = c.CloseWithError(network.ConnResourceLimitExceeded)
		}
	}
}

// Watch records the peers that answer when n dials them. Relayed connections do not count, since they do not prove the
// peer's address.
func (s *Standings) Watch(n network.Network) {
	s.mu.Lock()
	s.network = n
	s.mu.Unlock()
	n.Notify(&network.NotifyBundle{
		ConnectedF: func(_ network.Network, c network.Conn) {
			if dialled(c) {
				s.answers(c.RemotePeer(), c.RemoteMultiaddr())
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

func (s *Standings) answers(p peer.ID, from ma.Multiaddr) {
	at := NetworkOf(from)
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
	s.answered[p] = &seen{at: at, conns: 1}
	s.homes.set(p, addrOf(from))
	s.homes.remember(p, s.hasDeal)
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

// connected notes where p is connected from, the latest of several, until the returned function is called.
func (s *Standings) connected(p peer.ID, from ma.Multiaddr) (gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.at[p]
	if c == nil {
		c = &seen{}
		s.at[p] = c
	}
	c.at, c.addr = NetworkOf(from), addrOf(from)
	if s.hasDeal(p) {
		s.homes.set(p, c.addr)
	}
	c.conns++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.conns--; c.conns == 0 {
			delete(s.at, p)
		}
	})
}
