package blob

import (
	"slices"
	"sync"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob/chunks"
)

// arrivals are the blobs that come in chunks.
type arrivals struct {
	mu  sync.Mutex
	all map[cid.Cid]*arrival
}

// announce lets fellows read what came of a blob, until the caller calls back.
func (s *arrivals) announce(c cid.Cid, a *arrival) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[cid.Cid]*arrival{}
	}
	s.all[c] = a
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.all, c)
	}
}

// of returns a blob that comes for a holder, or nil.
func (s *arrivals) of(c cid.Cid, holder string) *arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.all[c]; a != nil && slices.Contains(a.holders, holder) {
		return a
	}
	return nil
}

// arrival is a blob that comes in chunks. Fellows of its holders may read the chunks that came.
type arrival struct {
	size    int64
	holders []string

	mu   sync.Mutex
	have chunks.Set
}

// arrived is the verified part of a blob at one time.
type arrived struct {
	size int64
	have chunks.Set
}

func (a *arrival) add(i int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.have.Add(i)
}

func (a *arrival) now() *arrived {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &arrived{a.size, a.have.Clone()}
}
