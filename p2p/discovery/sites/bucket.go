package sites

import (
	"sync"

	"github.com/libp2p/go-libp2p-kbucket/peerdiversity"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// Of the 20 places in a bucket of the DHT's routing table one network has these at most.
const (
	bucketNear = 4 // of an IPv4 /24 or IPv6 /56
	bucketWide = 8 // of an IPv4 /16 or IPv6 /32
)

// BucketFilter keeps the buckets of the DHT's routing table from being one network's. It is a
// [peerdiversity.PeerIPGroupFilter] that counts sites instead of the library's groups.
type BucketFilter struct {
	h host.Host

	mu      sync.Mutex
	buckets map[int]*Division // by how many bits their peers' IDs have in common with this one's
	peers   map[peer.ID]Site  // that are counted
}

// NewBucketFilter returns the filter of a host's routing table.
func NewBucketFilter(h host.Host) *BucketFilter {
	return &BucketFilter{h: h, buckets: map[int]*Division{}, peers: map[peer.ID]Site{}}
}

// PeerAddresses returns the one address by which p counts.
func (f *BucketFilter) PeerAddresses(p peer.ID) []ma.Multiaddr {
	at := Address(f.h, p)
	if at == nil {
		return nil
	}
	if _, err := manet.ToIP(at); err != nil {
		return nil
	}
	return []ma.Multiaddr{at}
}

// Allow reports whether there is room for one more peer of a network in its bucket.
func (f *BucketFilter) Allow(g peerdiversity.PeerGroupInfo) bool {
	at := Of(Address(f.h, g.Id))
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.bucket(g.Cpl)
	if !b.Take(at) {
		return false
	}
	b.Free(at)
	return true
}

// Increment counts a peer that was added.
func (f *BucketFilter) Increment(g peerdiversity.PeerGroupInfo) {
	at := Of(Address(f.h, g.Id))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bucket(g.Cpl).Take(at) { // otherwise it has another connection since Allow, and is not counted
		f.peers[g.Id] = at
	}
}

// Decrement counts a peer no more.
func (f *BucketFilter) Decrement(g peerdiversity.PeerGroupInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.peers[g.Id]
	if !ok {
		return
	}
	delete(f.peers, g.Id)
	f.bucket(g.Cpl).Free(at)
}

// bucket returns one bucket's division; f.mu is held.
func (f *BucketFilter) bucket(cpl int) *Division {
	b := f.buckets[cpl]
	if b == nil {
		b = &Division{nears: bucketNear, wides: bucketWide, near: map[Site]int{}, wide: map[Site]int{}}
		f.buckets[cpl] = b
	}
	return b
}
