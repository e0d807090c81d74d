package relay

import (
	"context"
	"net/netip"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/admit"
)

// Keys are free, addresses are not: the total of all clients is bounded for each network they come from too.

// shares counts by network.
type shares map[netip.Prefix]int

// full reports whether a network has its share already.
func (s shares) full(p netip.Prefix, most int) bool { return p.IsValid() && s[p] >= most }

func (s shares) add(p netip.Prefix, n int) {
	if s[p] += n; s[p] == 0 {
		delete(s, p)
	}
}

// places holds the reservations of each network to its share. The part of the relay that keeps reservations bounds them
// by address only, and an IPv6 customer has many addresses.
type places struct {
	most, all int
	connected func(peer.ID) bool
	kept      func(peer.ID) bool

	mu sync.Mutex
	of map[netip.Prefix]map[peer.ID]struct{}
}

func newPlaces(l Limits, connected, kept func(peer.ID) bool) *places {
	return &places{most: l.sharePlaces(), all: l.Reservations, connected: connected, kept: kept,
		of: map[netip.Prefix]map[peer.ID]struct{}{}}
}

// allow reports whether p, connected from a, may reserve a place or renew its own, and counts it until p has left.
// Peers that have places of their own are not counted.
func (s *places) allow(p peer.ID, a ma.Multiaddr) bool {
	at := admit.NetworkOf(a)
	if !at.IsValid() || s.kept(p) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) > 2*s.all {
		for other := range s.of {
			s.sweep(other)
		}
	}
	if _, again := s.of[at][p]; again {
		return true
	}
	if len(s.of[at]) >= s.most {
		s.sweep(at)
	}
	if s.count() >= s.all {
		for other := range s.of {
			s.sweep(other)
		}
	}
	if len(s.of[at]) >= s.most || s.count() >= s.all {
		return false
	}
	if s.of[at] == nil {
		s.of[at] = map[peer.ID]struct{}{}
	}
	s.of[at][p] = struct{}{}
	return true
}

// count is how many places are counted; s.mu is held.
func (s *places) count() (n int) {
	for _, of := range s.of {
		n += len(of)
	}
	return n
}

// sweep forgets disconnected peers. s.mu is held.
func (s *places) sweep(at netip.Prefix) {
	for p := range s.of[at] {
		if !s.connected(p) {
			delete(s.of[at], p)
		}
	}
	if len(s.of[at]) == 0 {
		delete(s.of, at)
	}
}

// The lookup of an unknown target is a walk through the DHT.
const (
	// maxFinding bounds such walks at a time; requests beyond it wait.
	maxFinding = 32
	// maxFindingPerPeer bounds those of one client.
	maxFindingPerPeer = 4
	// maxFindingPerNetwork bounds those of the clients of one network.
	maxFindingPerNetwork = 8
)

// turns lets a bounded number of walks go on at a time.
type turns struct {
	mu       sync.Mutex
	all      int
	clients  map[peer.ID]int
	networks shares
	freed    chan struct{} // closed when one has ended
}

func newTurns() *turns {
	return &turns{clients: map[peer.ID]int{}, networks: shares{}, freed: make(chan struct{})}
}

// take waits for the turn of a client. The caller calls done afterwards. The error is the context's.
func (t *turns) take(ctx context.Context, client peer.ID, at netip.Prefix) (done func(), err error) {
	for {
		t.mu.Lock()
		if t.all < maxFinding && t.clients[client] < maxFindingPerPeer && !t.networks.full(at, maxFindingPerNetwork) {
			t.all++
			t.clients[client]++
			t.networks.add(at, 1)
			t.mu.Unlock()
			return func() { t.free(client, at) }, nil
		}
		freed := t.freed
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-freed:
		}
	}
}

func (t *turns) free(client peer.ID, at netip.Prefix) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.clients[client]--; t.clients[client] == 0 {
		delete(t.clients, client)
	}
	t.networks.add(at, -1)
	close(t.freed)
	t.freed = make(chan struct{})
}
