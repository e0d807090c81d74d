package gossip

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// Rhythm and bounds of keeping a topic connected.
const (
	// meetPeers is the wanted number of connected peers of a topic, and the number of protected ones.
	meetPeers = degreeLow
	// meetHints is the number of peers that one round looks up: many, so that different peers do not all dial the same
	// ones.
	meetHints = 512
	// meetDials is how many of them one round dials at the most.
	meetDials = 8
	// dialTime bounds one dial, and joinTime the wait for a new neighbour's subscriptions.
	dialTime, joinTime = 10 * time.Second, 5 * time.Second
	// findTime bounds the lookup.
	findTime = 20 * time.Second
	// lookEvery is how often the peers of a topic are counted.
	lookEvery = time.Second
	// firstPause follows a round that left too few. It doubles up to mostPause: the topic may just be small.
	firstPause, mostPause = 2 * time.Second, 5 * time.Minute
	// healEvery is how often one more is dialled though there are enough, so that two halves of a topic find each
	// other.
	healEvery = 5 * time.Minute
	// shunTime is how long a peer is not dialled again that could not be, or is not in the topic.
	shunTime = 10 * time.Minute
	// maxShunned bounds how many of those are remembered.
	maxShunned = 512
	// maxHeld bounds the protected peers of all topics together: well below the size that a connection manager keeps.
	maxHeld = 48
)

// Finder returns up to most candidates for a topic. Candidates outside of the topic are discarded later.
type Finder func(ctx context.Context, most int) ([]peer.AddrInfo, error)

// Meeting keeps a peer connected to a few others of a topic. In a large network all its other neighbours may be in
// other topics, and its messages would reach no peer.
type Meeting struct {
	topic string
	tag   string // in the connection manager
	h     host.Host
	log   *slog.Logger
	peers func() []peer.ID // connected, and in the topic
	find  Finder
	held  *atomic.Int32 // peers protected for all topics
	poked chan struct{}

	// Of Run's own goroutine.
	kept []peer.ID // protected for this topic, the earliest first

	mu      sync.Mutex
	shunned map[peer.ID]time.Time // until when
	waiting chan struct{}         // closed after the next round; nil without a waiter
	over    bool                  // Run has returned
}

// Meet makes the meeting of a topic; its Run does the work.
func (t *Topic[T]) Meet(find Finder) *Meeting {
	return &Meeting{
		topic: t.name, tag: "topic:" + t.name, h: t.g.h, log: t.g.log, peers: t.Peers, find: find, held: &t.g.held,
		poked: make(chan struct{}, 1), shunned: map[peer.ID]time.Time{},
	}
}

// Run keeps the topic connected until ctx ends. While fewer than four connected peers are in it, Run looks up others,
// dials a few of them, and protects them from trimming. It returns nil.
func (m *Meeting) Run(ctx context.Context) error {
	defer m.end()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last time.Time
	due, heal, pause := time.Now(), time.Now().Add(jitter(healEvery)), firstPause
	for {
		m.refresh()
		have, now := len(m.peers()), time.Now()
		want := 0
		switch {
		case len(m.h.Network().Peers()) == 0:
			due = now // no connection at all, which does not count against the topic
		case have < meetPeers && !now.Before(due), have == 0 && m.awaited() && now.Sub(last) >= firstPause:
			want = meetPeers
		case have >= meetPeers && !now.Before(heal):
			want = have + 1
		}
		if want == 0 {
			m.answer() // a peer is connected, or the last round found none
			select {
			case <-ctx.Done():
				return nil
			case <-m.poked:
			case <-tick.C:
			}
			continue
		}
		m.round(ctx, want)
		last = time.Now()
		heal = last.Add(jitter(healEvery))
		if pause = min(2*pause, mostPause); len(m.peers()) >= meetPeers {
			pause = firstPause
		}
		due = last.Add(jitter(pause))
		m.answer()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// Wait returns the number of connected peers in the topic. If there are none, it starts a lookup, and waits for the
// first peer or the end of the lookup.
func (m *Meeting) Wait(ctx context.Context) int {
	if n := len(m.peers()); n > 0 {
		return n
	}
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		return 0
	}
	if m.waiting == nil {
		m.waiting = make(chan struct{})
	}
	done := m.waiting
	m.mu.Unlock()
	select {
	case m.poked <- struct{}{}:
	default:
	}
	select {
	case <-ctx.Done():
	case <-done:
	}
	return len(m.peers())
}

// round looks up peers of the topic and dials some until want are connected.
func (m *Meeting) round(ctx context.Context, want int) {
	fctx, cancel := context.WithTimeout(ctx, findTime)
	hints, err := m.find(fctx, meetHints)
	cancel()
	if err != nil {
		m.log.Debug("lookup of peers of a topic interrupted", "topic", m.topic, "err", err)
	}
	left := m.strangers(hints)
	left = left[:min(len(left), meetDials)]
	dials := len(left)
	for len(left) > 0 && ctx.Err() == nil {
		missing := min(max(want-len(m.peers()), 0), len(left))
		if missing == 0 {
			break
		}
		came := make([]bool, missing)
		var g sync.WaitGroup
		for i, p := range left[:missing] {
			g.Go(func() {
				if came[i] = m.meet(ctx, p); came[i] {
					m.answer()
				}
			})
		}
		g.Wait()
		for i, ok := range came {
			if ok {
				m.keep(left[i].ID)
			}
		}
		left = left[missing:]
	}
	if dials -= len(left); dials > 0 {
		m.log.Debug("looked up peers of a topic", "topic", m.topic, "hints", len(hints), "dialled", dials, "there",
			len(m.peers()))
	}
}

// strangers are the hints that are worth a dial, each once, in random order.
func (m *Meeting) strangers(hints []peer.AddrInfo) []peer.AddrInfo {
	now, seen := time.Now(), map[peer.ID]bool{m.h.ID(): true}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []peer.AddrInfo
	for _, p := range hints[:min(len(hints), meetHints)] {
		if seen[p.ID] || len(p.Addrs) == 0 || now.Before(m.shunned[p.ID]) ||
			m.h.Network().Connectedness(p.ID) == network.Connected {
			continue
		}
		seen[p.ID] = true
		out = append(out, p)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// meet dials a peer and reports whether it is in the topic.
func (m *Meeting) meet(ctx context.Context, p peer.AddrInfo) bool {
	dctx, cancel := context.WithTimeout(ctx, dialTime)
	err := m.h.Connect(dctx, p)
	cancel()
	if err == nil {
		jctx, cancel := context.WithTimeout(ctx, joinTime)
		err = waitFor(jctx, func() bool { return slices.Contains(m.peers(), p.ID) })
		cancel()
	}
	if err != nil && ctx.Err() == nil {
		m.log.Debug("a peer is not met in a topic", "topic", m.topic, "peer", p.ID, "err", err)
		m.shun(p.ID)
	}
	return err == nil
}

// shun remembers not to dial a peer for a while.
func (m *Meeting) shun(id peer.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); len(m.shunned) >= maxShunned {
		for p, until := range m.shunned { // expired ones first; then any, in Go's random order
			if !now.Before(until) || len(m.shunned) >= maxShunned {
				delete(m.shunned, p)
			}
		}
	}
	m.shunned[id] = time.Now().Add(shunTime)
}

// keep protects a peer for the topic, in the place of an earlier one when there are enough of them.
func (m *Meeting) keep(id peer.ID) {
	if slices.Contains(m.kept, id) {
		return
	}
	if len(m.kept) >= meetPeers {
		m.drop(rand.IntN(len(m.kept)))
	}
	if m.held.Add(1) > maxHeld {
		m.held.Add(-1)
		return
	}
	m.h.ConnManager().Protect(id, m.tag)
	m.kept = append(m.kept, id)
}

// drop removes the protection of a peer. Its connection stays while other protocols use it.
func (m *Meeting) drop(i int) {
	m.h.ConnManager().Unprotect(m.kept[i], m.tag)
	m.kept = slices.Delete(m.kept, i, i+1)
	m.held.Add(-1)
}

// refresh drops the peers that left the topic.
func (m *Meeting) refresh() {
	if len(m.kept) == 0 {
		return
	}
	there := m.peers()
	for i := len(m.kept) - 1; i >= 0; i-- {
		if !slices.Contains(there, m.kept[i]) {
			m.drop(i)
		}
	}
}

// awaited reports whether a caller waits for a peer.
func (m *Meeting) awaited() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting != nil
}

// answer wakes the waiting callers.
func (m *Meeting) answer() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waiting != nil {
		close(m.waiting)
		m.waiting = nil
	}
}

func (m *Meeting) end() {
	m.mu.Lock()
	if m.waiting != nil {
		close(m.waiting)
	}
	m.waiting, m.over = nil, true
	m.mu.Unlock()
	for len(m.kept) > 0 {
		m.drop(0)
	}
}

// jitter spreads d by a fifth, so that peers started together do not look together.
func jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5) }
