package discovery

import (
	"fmt"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

// seenMax bounds how many peers' sequences are remembered.
const seenMax = 16384

// sequences remembers the newest record seen of each peer, so that an older one is not believed again.
type sequences struct {
	mu   sync.Mutex
	seen map[peer.ID]mark
}

// mark is the highest sequence seen of a peer, and until when a record with it can be believed.
type mark struct {
	seq     uint64
	expires time.Time
}

// pass notes the sequence of a record. It returns ErrReplayed if a higher one was seen before.
func (s *sequences) pass(p peer.ID, seq uint64, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, ok := s.seen[p]; ok && seq < m.seq {
		return fmt.Errorf("%w: sequence %d after %d", ErrReplayed, seq, m.seq)
	}
	if s.seen == nil {
		s.seen = make(map[peer.ID]mark)
	}
	if len(s.seen) >= seenMax {
		for id, m := range s.seen { // expired ones first; then any, in Go's random order
			if !now.Before(m.expires) || len(s.seen) >= seenMax {
				delete(s.seen, id)
			}
		}
	}
	// An older record can be believed until MaxValidity after its own signing, which is before this one's.
	s.seen[p] = mark{seq, time.UnixMilli(int64(seq)).Add(MaxValidity)}
	return nil
}
