package discovery

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/admit"
	"github.com/starling-network/starling/p2p/discovery/sites"
)

const (
	// fetchers is the number of concurrent record requests of one Find.
	fetchers = 32
	// maxNamed is how many publishers one peer of the DHT names under a key, at most: no liar names more than others
	// do.
	maxNamed = 64
	// asksEach and asksLeast bound the peers that one Find requests records from, per wanted result and at least.
	asksEach  = 4
	asksLeast = 64
	// maxVoters and maxPlaces bound the peers noted for naming one publisher, and its noted addresses.
	maxVoters = 4
	maxPlaces = 64
	// maxHints bounds how many publishers are considered, the best.
	maxHints = 4096
	// maxUnnamed is the maximum number of registered peers, named by no source, that one Find requests records from.
	maxUnnamed = 8
)

// hint is a peer that is reported to publish a topic.
type hint struct {
	peer.AddrInfo
	turn       int   // how many others that one had named before, of several the least
	voters     []any // networks that it was named from, or peers without one; maxVoters at most
	addrs      []voted
	registered bool
	standing   admit.Standing
}

// voted is an address of a hint, and the peers that name it: as hint.voters.
type voted struct {
	ma.Multiaddr
	by []any
}

// hear adds one source's report of h. By is the source's network, or the source itself if it has none.
func (h *hint) hear(by any, turn int, addrs []ma.Multiaddr) {
	h.turn = min(h.turn, turn)
	if len(h.voters) < maxVoters && !slices.Contains(h.voters, by) {
		h.voters = append(h.voters, by)
	}
	for _, a := range addrs[:min(len(addrs), addr.Max)] {
		if i := slices.IndexFunc(h.addrs, func(v voted) bool { return v.Equal(a) }); i >= 0 {
			if !slices.Contains(h.addrs[i].by, by) && len(h.addrs[i].by) < maxVoters {
				h.addrs[i].by = append(h.addrs[i].by, by)
			}
		} else if len(h.addrs) < maxPlaces {
			h.addrs = append(h.addrs, voted{a, []any{by}})
		}
	}
}

// settle takes the addresses that most name.
func (h *hint) settle() {
	slices.SortStableFunc(h.addrs, func(a, b voted) int { return cmp.Compare(len(b.by), len(a.by)) })
	for _, a := range h.addrs[:min(len(h.addrs), addr.Max)] {
		h.Addrs = append(h.Addrs, a.Multiaddr)
	}
	h.addrs = nil
}

// hints looks up the reported publishers of a topic, best first: registered peers, then by their standing here. Among
// equals, publishers named by several networks are first, as all holders of a record name them. Then sources take
// turns, so that a source of thousands of names cannot hide others. A few registered peers are added that no source
// named. If ctx ends, hints returns the result so far.
func (d *Discovery) hints(ctx context.Context, t Topic) []hint {
	var (
		mu    sync.Mutex
		named = map[peer.ID]*hint{}
		all   sync.WaitGroup
	)
	hear := func(from peer.ID, peers []*peer.AddrInfo) {
		var by any = from
		if at := sites.Of(sites.Address(d.h, from)); at != (sites.Site{}) {
			by = at
		}
		mu.Lock()
		defer mu.Unlock()
		for turn, p := range peers[:min(len(peers), maxNamed)] {
			if p.ID == d.h.ID() {
				continue
			}
			h := named[p.ID]
			if h == nil {
				h = &hint{AddrInfo: peer.AddrInfo{ID: p.ID}, turn: turn}
				named[p.ID] = h
			}
			h.hear(by, turn, p.Addrs)
		}
	}
	for _, key := range d.findKeys(t, time.Now()) {
		all.Go(func() { d.look(ctx, key, hear) })
	}
	registered := map[peer.ID]bool{}
	if d.cfg.Registered != nil {
		all.Go(func() {
			peers, err := d.cfg.Registered(ctx)
			if err != nil {
				d.log.Debug("registered peers not listed", "err", err)
			}
			for _, p := range peers {
				registered[p] = p != d.h.ID()
			}
		})
	}
	all.Wait()
	out := make([]hint, 0, len(named)+maxUnnamed)
	for id, h := range named {
		h.settle()
		h.registered = registered[id]
		out = append(out, *h)
	}
	unnamed := 0
	for id := range registered { // in Go's random order
		if named[id] == nil && registered[id] && unnamed < maxUnnamed {
			unnamed++
			out = append(out, hint{AddrInfo: d.h.Peerstore().PeerInfo(id), turn: maxNamed, registered: true})
		}
	}
	standing := d.standing()
	for i := range out {
		out[i].standing = standing(out[i].ID)
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	slices.SortStableFunc(out, func(a, b hint) int {
		return cmp.Or(cmp.Compare(b.rank(), a.rank()), cmp.Compare(b.heard(), a.heard()), cmp.Compare(a.turn, b.turn))
	})
	return out[:min(len(out), maxHints)]
}

// rank orders the hints; greater ones are better.
func (h hint) rank() int {
	if h.registered {
		return 1 + int(admit.Counterparty)
	}
	return int(h.standing)
}

// heard is the logarithm of the number of sources, coarse enough that no publisher is preferred for long.
func (h hint) heard() int { return bits.Len(uint(len(h.voters))) }

// proven reports whether more than a key and an address stands behind a peer.
func (h hint) proven() bool { return h.registered || h.standing == admit.Counterparty }

// standing returns the function that returns peers' standings here.
func (d *Discovery) standing() func(peer.ID) admit.Standing {
	return admit.StandingOn(d.h, admit.Stranger)
}

// look requests the publishers under a topic's key from the nearest peers and this one, and calls hear with each
// answer.
func (d *Discovery) look(ctx context.Context, key cid.Cid, hear func(peer.ID, []*peer.AddrInfo)) {
	own, err := d.dht.ProviderStore().GetProviders(ctx, key.Hash())
	if err != nil {
		d.log.Debug("own records not read", "err", err)
	}
	heard := make([]*peer.AddrInfo, len(own))
	for i := range own {
		heard[i] = &own[i]
	}
	hear(d.h.ID(), heard)
	d.walkTo(ctx, key.Hash(), func(ctx context.Context, p peer.ID) ([]*peer.AddrInfo, error) {
		named, near, err := d.messages.GetProviders(ctx, p, key.Hash())
		if err == nil {
			hear(p, named)
		}
		return near, err
	})
}

// Find returns up to max publishers of the topic other than this peer, best first: registered peers, then by their
// standing here. Half of the places are reserved for registered peers. One network gets its share of the places for
// strangers, or 2 for an IPv4 /24 or IPv6 /56 and 4 for a /16 or /32, whichever is more. Find returns when the search
// is complete. If ctx ends first, it returns the results so far with ctx's error.
func (d *Discovery) Find(ctx context.Context, t Topic, max int) ([]Found, error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("finding peers: %w", err)
	}
	looking, cancel := context.WithCancel(ctx)
	if end, ok := ctx.Deadline(); ok { // a part of the time is for requests to the peers found
		looking, cancel = context.WithDeadline(ctx, time.Now().Add(time.Until(end)/2))
	}
	hints := d.hints(looking, t)
	cancel()
	f := finder{d: d, topic: t, max: max, shares: sites.Divide(max, sitesOf(hints))}
	return f.find(ctx, hints)
}

func sitesOf(hints []hint) (out []sites.Site) {
	for _, h := range hints {
		out = append(out, sites.Claimed(h.AddrInfo))
	}
	return out
}

// A finder requests the records of the named peers.
type finder struct {
	d     *Discovery
	topic Topic
	max   int

	mu sync.Mutex
	// of unproven peers; of peers with a pending request, by their reported addresses
	shares *sites.Division
	gone   int // unproven peers without an answer
}

// find requests records from registered and other peers in parallel, so that dead peers of one kind do not delay the
// other.
func (f *finder) find(ctx context.Context, hints []hint) ([]Found, error) {
	split := slices.IndexFunc(hints, func(h hint) bool { return !h.registered })
	if split < 0 {
		split = len(hints)
	}
	var first, others []Found
	var rest []hint
	var all sync.WaitGroup
	all.Go(func() { first, _ = f.gather(ctx, hints[:split], f.max) })
	all.Go(func() { others, rest = f.gather(ctx, hints[split:], f.max-min(f.max/2, split)) })
	all.Wait()
	if lack := f.max - len(first) - len(others); lack > 0 {
		more, _ := f.gather(ctx, rest, lack)
		others = append(others, more...)
	}
	out := append(first[:min(len(first), max(f.max/2, f.max-len(others)))], others...)
	out = out[:min(len(out), f.max)]
	if err := ctx.Err(); err != nil && len(out) < f.max {
		return out, fmt.Errorf("finding peers: %w", err)
	}
	return out, nil
}

// gather requests records from hints in their order until it has most records. It returns the records in that order,
// live ones first, and the remaining hints.
func (f *finder) gather(ctx context.Context, hints []hint, most int) (out []Found, rest []hint) {
	type answer struct {
		at    int
		found *Found
	}
	answers := make(chan answer)
	var got []answer
	waits := make([]int, len(hints)) // the remaining hints
	for i := range hints {
		waits[i] = i
	}
	for open, asked := 0, 0; ; {
		// A peer that waits for its network's share is tried after another peer of the network fails.
		waits = slices.DeleteFunc(waits, func(i int) bool {
			if open >= fetchers || len(got)+open >= most || asked >= max(asksEach*most, asksLeast) || ctx.Err() != nil {
				return false
			}
			at := sites.Claimed(hints[i].AddrInfo)
			if !hints[i].proven() && !f.take(at) {
				return false
			}
			asked, open = asked+1, open+1
			go func() { answers <- answer{i, f.ask(ctx, hints[i], at)} }()
			return true
		})
		if open == 0 {
			break
		}
		a := <-answers
		if open--; a.found != nil {
			got = append(got, a)
		}
	}
	slices.SortFunc(got, func(a, b answer) int {
		switch {
		case a.found.Live && !b.found.Live:
			return -1
		case b.found.Live && !a.found.Live:
			return 1
		}
		return cmp.Compare(a.at, b.at)
	})
	for _, a := range got {
		out = append(out, *a.found)
	}
	for _, i := range waits {
		rest = append(rest, hints[i])
	}
	return out, rest
}

// ask requests a peer's record, which takes a place at the site that others named. It returns nil if there is no such
// record, or no place at the peer's real site.
func (f *finder) ask(ctx context.Context, h hint, at sites.Site) *Found {
	found, err := f.d.fetch(ctx, h.AddrInfo)
	ok := err == nil && found.Record.matches(f.topic)
	if !ok {
		f.d.log.Debug("record not believed", "peer", h.ID, "err", err)
	}
	switch {
	case h.proven():
	case !ok:
		f.free(at)
	case found.Live:
		f.free(at)
		ok = f.take(sites.Of(sites.Address(f.d.h, h.ID)))
	default: // its address is unknown
		f.free(at)
		ok = f.takeGone()
	}
	if !ok {
		return nil
	}
	return &found
}

// takeGone takes a place for a peer that is not proven and did not answer: a copy of its record in the DHT costs a key
// alone.
func (f *finder) takeGone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone++
	return f.gone <= max(f.max/4, 1)
}

func (f *finder) take(s sites.Site) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shares.Take(s)
}

func (f *finder) free(s sites.Site) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shares.Free(s)
}

// Hints returns up to most reported publishers of the topic other than this peer, with addresses, ordered and bounded
// as in Find. The reports are not verified, and only the DHT's own peers are dialled. Dialling a hint verifies it.
func (d *Discovery) Hints(ctx context.Context, t Topic, most int) ([]peer.AddrInfo, error) {
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("finding hints: %w", err)
	}
	hints := d.hints(ctx, t)
	shares := sites.Divide(most, sitesOf(hints))
	var out []peer.AddrInfo
	for _, h := range hints {
		if len(h.Addrs) > 0 && len(out) < most && (h.proven() || shares.Take(sites.Claimed(h.AddrInfo))) {
			out = append(out, h.AddrInfo)
		}
	}
	return out, ctx.Err()
}
