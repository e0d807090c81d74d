package files

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
)

// maxGrants bounds the remembered grants. Work in progress uses its grant within minutes, and the owner of a volume
// with a file within a day; the least recently used are forgotten first.
const maxGrants = 1 << 16

// grants are the blobs that each peer may read: blobs for its work, and results of work for it.
type grants struct {
	mu sync.Mutex
	m  map[grant]time.Time // when it was given or used last
}

type grant struct {
	to  peer.ID
	cid string
}

func newGrants() *grants { return &grants{m: map[grant]time.Time{}} }

func (g *grants) add(to peer.ID, c cid.Cid) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.m[grant{to, c.KeyString()}] = time.Now()
	if len(g.m) <= maxGrants {
		return
	}
	times := slices.SortedFunc(maps.Values(g.m), time.Time.Compare)
	median := times[len(times)/2]
	maps.DeleteFunc(g.m, func(_ grant, at time.Time) bool { return at.Before(median) })
}

func (g *grants) allowed(to peer.ID, c cid.Cid) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := grant{to, c.KeyString()}
	_, ok := g.m[of]
	if ok {
		g.m[of] = time.Now()
	}
	return ok
}
