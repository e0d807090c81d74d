package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/discovery/sites"
)

// The DHT's library walks towards a key along one path and accepts the nearest peers unconditionally: twenty IDs on one
// machine, generated for a key, can fill its view. A walk here differs in two ways:
//
//   - The nearest are chosen with a share for each network (sites.Division), so that one network has a few of their
//     places.
//   - It takes several paths that share no peer (S/Kademlia, Baumgart and Mies 2007): peers that a liar names
//     are queried on the liar's path.
const (
	walkPaths = 3
	// walkAtOnce is the number of concurrent requests on one path.
	walkAtOnce = 4
	// walkAsks bounds the requests on one path: up to a few tens in a network of thousands.
	walkAsks = 48
	// walkNames is how many peers of an answer are used: the number in an honest answer.
	walkNames = 20
	// nearest is the number of peers that hold a value of a key.
	nearest = 20
	// walkTimeout bounds one request, with its dial, and walkMost a whole walk. So it bounds the cost of silent peers.
	walkTimeout = 2 * time.Second
	walkMost    = 5 * time.Second
	// walkTries is the number of requests to a peer with different reported addresses.
	walkTries = 3
)

// A walk queries the peers nearest to a key.
type walk struct {
	d      *Discovery
	target [sha256.Size]byte
	// ask queries one connected peer for the peers nearest to the key.
	ask func(context.Context, peer.ID) ([]*peer.AddrInfo, error)

	mu    sync.Mutex
	heard map[peer.ID]*named // on any path
	done  []*step            // that have answered, each peer once
}

// named is the information of others about a peer.
type named struct {
	tries    [][]ma.Multiaddr // the tried addresses
	answered bool
}

// A step is a peer on the way to the key.
type step struct {
	peer.AddrInfo
	far   [sha256.Size]byte
	at    sites.Site // as reported, until it has answered
	state stepState
}

type stepState uint8

const (
	stepHeard stepState = iota
	stepAsked
	stepAnswered
	stepFailed
)

// walkTo walks to a key and returns the nearest peers that answered, nearest first. If ctx ends, it returns the peers
// that have answered so far.
func (d *Discovery) walkTo(
	ctx context.Context, key []byte, ask func(context.Context, peer.ID) ([]*peer.AddrInfo, error),
) []peer.ID {
	ctx, cancel := context.WithTimeout(ctx, walkMost)
	defer cancel()
	w := &walk{d: d, target: sha256.Sum256(key), ask: ask, heard: map[peer.ID]*named{d.h.ID(): {answered: true}}}
	var paths [walkPaths][]*step
	for i, p := range d.dht.RoutingTable().NearestPeers(w.target[:], walkPaths*walkNames) {
		info := d.h.Peerstore().PeerInfo(p)
		w.heard[p] = &named{tries: [][]ma.Multiaddr{info.Addrs}}
		paths[i%walkPaths] = append(paths[i%walkPaths], w.step(info))
	}
	var all sync.WaitGroup
	for _, steps := range paths {
		if len(steps) > 0 {
			all.Go(func() { w.path(ctx, steps) })
		}
	}
	all.Wait()
	var out []peer.ID
	for _, s := range choose(w.done, nearest) {
		out = append(out, s.ID)
	}
	return out
}

func (w *walk) step(p peer.AddrInfo) *step {
	s := &step{AddrInfo: p, far: sha256.Sum256([]byte(p.ID)), at: sites.Claimed(p)}
	if at := sites.Address(w.d.h, p.ID); at != nil {
		s.at = sites.Of(at)
	}
	for i := range s.far {
		s.far[i] ^= w.target[i]
	}
	return s
}

// choose returns the n nearest of the steps that have not failed, with a share of the n for each network.
func choose(steps []*step, n int) (out []*step) {
	var all []sites.Site
	for _, s := range steps {
		if s.state != stepFailed {
			all = append(all, s.at)
		}
	}
	slices.SortFunc(steps, func(a, b *step) int { return bytes.Compare(a.far[:], b.far[:]) })
	shares := sites.Divide(n, all)
	for _, s := range steps {
		if len(out) < n && s.state != stepFailed && shares.Take(s.at) {
			out = append(out, s)
		}
	}
	return out
}

// path walks along one path until the nearest peers on it have all answered.
func (w *walk) path(ctx context.Context, steps []*step) {
	type answer struct {
		from *step
		near []*peer.AddrInfo
		err  error
	}
	answers := make(chan answer)
	asked, open := 0, 0
	for {
		for _, s := range choose(steps, nearest) {
			if s.state == stepHeard && open < walkAtOnce && asked < walkAsks && ctx.Err() == nil {
				s.state = stepAsked
				asked, open = asked+1, open+1
				go func() {
					near, err := w.put(ctx, s.AddrInfo)
					answers <- answer{s, near, err}
				}()
			}
		}
		if open == 0 {
			return
		}
		a := <-answers
		open--
		if a.err != nil {
			a.from.state = stepFailed
			continue
		}
		a.from.state, a.from.at = stepAnswered, sites.Of(sites.Address(w.d.h, a.from.ID))
		steps = append(steps, w.hear(a.from, a.near)...)
	}
}

// put puts the question to one peer.
func (w *walk) put(ctx context.Context, p peer.AddrInfo) ([]*peer.AddrInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, walkTimeout)
	defer cancel()
	w.d.h.Peerstore().AddAddrs(p.ID, p.Addrs, peerstore.TempAddrTTL)
	if err := w.d.h.Connect(ctx, peer.AddrInfo{ID: p.ID}); err != nil {
		return nil, err
	}
	return w.ask(ctx, p.ID)
}

// hear records an answer. It returns steps for the peers in it that no path has tried, or not at these addresses: so
// wrong addresses from a liar do not hide a peer.
func (w *walk) hear(from *step, near []*peer.AddrInfo) (out []*step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.heard[from.ID]; !n.answered {
		n.answered = true
		w.done = append(w.done, from)
	}
	for _, p := range near[:min(len(near), walkNames)] {
		addrs := p.Addrs[:min(len(p.Addrs), addr.Max)]
		n := w.heard[p.ID]
		if n == nil {
			n = &named{}
			w.heard[p.ID] = n
		}
		tried := func(t []ma.Multiaddr) bool {
			return !slices.ContainsFunc(addrs, func(a ma.Multiaddr) bool { return !ma.Contains(t, a) })
		}
		if n.answered || len(addrs) == 0 || len(n.tries) == walkTries || slices.ContainsFunc(n.tries, tried) {
			continue
		}
		n.tries = append(n.tries, addrs)
		out = append(out, w.step(peer.AddrInfo{ID: p.ID, Addrs: addrs}))
	}
	return out
}

// provide stores here and with the peers nearest to a key that this peer is found under it.
func (d *Discovery) provide(ctx context.Context, k cid.Cid) error {
	key := k.Hash()
	if err := d.dht.Provide(ctx, k, false); err != nil {
		return err
	}
	near := d.walkTo(ctx, key, func(ctx context.Context, p peer.ID) ([]*peer.AddrInfo, error) {
		return d.messages.GetClosestPeers(ctx, p, peer.ID(key))
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(near) == 0 {
		return ErrNoPeers
	}
	self := peer.AddrInfo{ID: d.h.ID(), Addrs: d.h.Addrs()}
	var puts sync.WaitGroup
	for _, p := range near {
		puts.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, walkTimeout)
			defer cancel()
			if err := d.messages.PutProviderAddrs(ctx, p, key, self); err != nil {
				d.log.Debug("topic not stored with a peer", "peer", p, "err", err)
			}
		})
	}
	puts.Wait()
	return ctx.Err()
}
