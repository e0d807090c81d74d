package admit

import (
	"cmp"
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// When strangers have reached their limit of connections, a newcomer evicts another stranger's connection, as in
// Bitcoin Core (src/node/eviction.cpp). The victim is in the network with the most connections, so that many keys from
// one place displace each other. In that network these are protected:
//
//   - the fastest handshakes, which distant peers cannot achieve,
//   - the latest to open a stream, which an idle peer does not,
//   - and the older half of the rest.
//
// The youngest of the others is closed.
const (
	keptFast   = 4
	keptActive = 4
)

// guests are the strangers that are connected, by network. They are safe for concurrent use.
type guests struct {
	seed maphash.Seed // secret: chooses among networks with equally many connections

	mu sync.Mutex
	of map[netip.Prefix]map[*guest]struct{}
	by map[peer.ID]*guest // the latest of each peer
}

// guest is one connection that a stranger opened.
type guest struct {
	p      peer.ID
	at     netip.Prefix
	shook  time.Duration // for how long
	since  time.Time
	active time.Time // when it opened its latest stream
	leave  func()    // gives its place back
}

func newGuests() *guests {
	return &guests{seed: maphash.MakeSeed(), of: map[netip.Prefix]map[*guest]struct{}{}, by: map[peer.ID]*guest{}}
}

// enter notes a guest until the returned function is called, which gives its place back with free.
func (g *guests) enter(who *guest, free func()) (leave func()) {
	who.leave = sync.OnceFunc(func() {
		g.remove(who)
		free()
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of[who.at] == nil {
		g.of[who.at] = map[*guest]struct{}{}
	}
	g.of[who.at][who] = struct{}{}
	g.by[who.p] = who
	return who.leave
}

func (g *guests) remove(who *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.of[who.at], who); len(g.of[who.at]) == 0 {
		delete(g.of, who.at)
	}
	if g.by[who.p] == who {
		delete(g.by, who.p)
	}
}

// opened notes that a peer opened a stream.
func (g *guests) opened(p peer.ID, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if who := g.by[p]; who != nil {
		who.active = now
	}
}

// victim returns the guest to close for a newcomer: one of the network at or, if at is invalid, of the network with the
// most. It returns nil if there is none. Peers above strangers are kept.
func (g *guests) victim(at netip.Prefix, stranger func(peer.ID) bool) *guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at.IsValid() {
		return g.choose(at, stranger)
	}
	networks := slices.SortedFunc(maps.Keys(g.of), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(len(g.of[b]), len(g.of[a])),
			cmp.Compare(maphash.Comparable(g.seed, a), maphash.Comparable(g.seed, b)))
	})
	for _, at := range networks {
		if who := g.choose(at, stranger); who != nil {
			return who
		}
	}
	return nil
}

// choose returns the guest of a network that goes; g.mu is held.
func (g *guests) choose(at netip.Prefix, stranger func(peer.ID) bool) *guest {
	var all []*guest
	for who := range g.of[at] {
		if stranger(who.p) {
			all = append(all, who)
		}
	}
	keep := func(n int, better func(a, b *guest) int) {
		slices.SortFunc(all, better)
		all = all[min(n, len(all)):]
	}
	few := len(all) / 8 // of few connections few are kept for their activity
	keep(min(keptFast, few), func(a, b *guest) int { return cmp.Compare(a.shook, b.shook) })
	keep(min(keptActive, few), func(a, b *guest) int { return b.active.Compare(a.active) })
	keep(len(all)/2, func(a, b *guest) int { return a.since.Compare(b.since) })
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}
