package discovery

import (
	"bytes"
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"sync"

	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
	"github.com/libp2p/go-libp2p/core/peer"
)

// maxRecords bounds this peer's copies of others' records, in bytes.
const maxRecords = 16 << 20

// held is this peer's part of the DHT's values, in memory and bounded for each kind: an attacker that can make any
// number of good values fills no stranger's memory. Values farthest from this peer by the DHT's own measure are removed
// first.
type held struct {
	datastore.Batching
	self [sha256.Size]byte
	most map[string]int64 // bytes, by kind

	mu    sync.Mutex
	kinds map[string]*distant
	bytes map[string]int64
}

// holding is one value.
type holding struct {
	key  datastore.Key
	size int64
	far  [sha256.Size]byte // distance from this peer
	at   int               // place in the heap
}

// distant is the values of one kind: a heap with the farthest on top, so that a full store costs a logarithm for each
// Put.
type distant struct {
	byKey map[datastore.Key]*holding
	order []*holding
}

// Len implements heap.Interface.
func (d *distant) Len() int { return len(d.order) }

// Less implements heap.Interface: the farther one is first.
func (d *distant) Less(i, j int) bool { return bytes.Compare(d.order[i].far[:], d.order[j].far[:]) > 0 }

// Swap implements heap.Interface.
func (d *distant) Swap(i, j int) {
	d.order[i], d.order[j] = d.order[j], d.order[i]
	d.order[i].at, d.order[j].at = i, j
}

// Push implements heap.Interface.
func (d *distant) Push(x any) {
	h := x.(*holding)
	h.at = len(d.order)
	d.order = append(d.order, h)
}

// Pop implements heap.Interface.
func (d *distant) Pop() any {
	last := len(d.order) - 1
	h := d.order[last]
	d.order[last] = nil
	d.order = d.order[:last]
	return h
}

func newHeld(self peer.ID, most map[string]int64) *held {
	return &held{
		Batching: dssync.MutexWrap(datastore.NewMapDatastore()), self: sha256.Sum256([]byte(self)), most: most,
		kinds: map[string]*distant{}, bytes: map[string]int64{},
	}
}

// Put implements datastore.Datastore. A value that is farther than all others may be dropped immediately.
func (s *held) Put(ctx context.Context, k datastore.Key, value []byte) error {
	kind, at := s.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Batching.Put(ctx, k, value); err != nil {
		return err
	}
	s.forget(kind, k)
	d := s.kinds[kind]
	if d == nil {
		d = &distant{byKey: map[datastore.Key]*holding{}}
		s.kinds[kind] = d
	}
	h := &holding{key: k, size: int64(len(value)), far: at}
	d.byKey[k] = h
	heap.Push(d, h)
	s.bytes[kind] += h.size
	for s.bytes[kind] > s.most[kind] {
		farthest := d.order[0].key
		if err := s.Batching.Delete(ctx, farthest); err != nil {
			return err
		}
		s.forget(kind, farthest)
	}
	return nil
}

// Delete implements datastore.Datastore.
func (s *held) Delete(ctx context.Context, k datastore.Key) error {
	kind, _ := s.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.Batching.Delete(ctx, k); err != nil {
		return err
	}
	s.forget(kind, k)
	return nil
}

// Batch implements datastore.Batching, through Put and Delete.
func (s *held) Batch(context.Context) (datastore.Batch, error) {
	return datastore.NewBasicBatch(s), nil
}

// forget takes a value out of the account; s.mu is held.
func (s *held) forget(kind string, k datastore.Key) {
	d := s.kinds[kind]
	if d == nil || d.byKey[k] == nil {
		return
	}
	s.bytes[kind] -= d.byKey[k].size
	heap.Remove(d, d.byKey[k].at)
	delete(d.byKey, k)
}

// of parses the key under which the DHT's library stores a value: /<kind>/<base32 of the DHT's key>. Any other key has
// no kind, and so no room.
func (s *held) of(k datastore.Key) (kind string, far [sha256.Size]byte) {
	kind, text, _ := strings.Cut(strings.TrimPrefix(k.String(), "/"), "/")
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(text)
	if err != nil {
		return "", far
	}
	far = sha256.Sum256(raw)
	for i := range far {
		far[i] ^= s.self[i]
	}
	return kind, far
}
