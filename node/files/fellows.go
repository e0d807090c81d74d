package files

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/node/workload"
	"github.com/starling-network/starling/p2p/blob"
)

// fellows are the providers of the other ranks of jobs that run here. For as long as a job needs it, they may read its
// files that its buyer's peer brought here, or brings now.
type fellows struct {
	places chan struct{} // to send at a time
	sent   atomic.Uint64 // parts of files

	mu   sync.Mutex
	may  map[grant]map[string]int // uses of a right, by the buyer's holder
	uses map[string]int           // of all rights to a file
	lost map[peer.ID]time.Time    // when they were not reached, or no help, last
}

// lostFor is how long a fellow that was not reached, or was no help with a file, is not asked again.
const lostFor = time.Minute

var _ blob.Fellows = (*fellows)(nil)

func newFellows(places int) *fellows {
	return &fellows{places: make(chan struct{}, max(places, 0)), may: map[grant]map[string]int{},
		uses: map[string]int{}, lost: map[peer.ID]time.Time{}}
}

// Join lets the fellows of a buyer's execution read its files here, until leave is called. They get none that the buyer
// did not bring here: its word is no right to a file of another.
func (f *Files) Join(buyer peer.ID, peers []peer.ID, all []cid.Cid) (leave func()) {
	x, holder := f.fellows, workload.Holder(buyer)
	x.mu.Lock()
	defer x.mu.Unlock()
	var given []grant
	for _, p := range peers {
		for _, c := range all {
			g := grant{p, c.KeyString()}
			if x.may[g] == nil {
				x.may[g] = map[string]int{}
			}
			x.may[g][holder]++
			x.uses[g.cid]++
			given = append(given, g)
		}
	}
	return sync.OnceFunc(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, g := range given {
			if x.uses[g.cid]--; x.uses[g.cid] == 0 {
				delete(x.uses, g.cid)
			}
			if x.may[g][holder]--; x.may[g][holder] == 0 {
				delete(x.may[g], holder)
			}
			if len(x.may[g]) == 0 {
				delete(x.may, g)
			}
		}
	})
}

// Of implements blob.Fellows.
func (f *fellows) Of(p peer.ID, c cid.Cid) (holders []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.may[grant{p, c.KeyString()}] {
		holders = append(holders, h)
	}
	return holders
}

// need reports whether a peer may read a blob.
func (f *fellows) need(c cid.Cid) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.uses[c.KeyString()] > 0
}

// lose notes that a peer cannot be reached, or is no help.
func (f *fellows) lose(p peer.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.lost, func(_ peer.ID, at time.Time) bool { return time.Since(at) > lostFor })
	f.lost[p] = time.Now()
}

// isLost reports whether lose was called for a peer a short time ago.
func (f *fellows) isLost(p peer.ID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, lost := f.lost[p]
	return lost && time.Since(at) <= lostFor
}

// Enter implements blob.Fellows.
func (f *fellows) Enter() (leave func(), ok bool) {
	select {
	case f.places <- struct{}{}:
		f.sent.Add(1)
		return sync.OnceFunc(func() { <-f.places }), true
	default:
		return nil, false
	}
}
