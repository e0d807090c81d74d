package gossip

import (
	"encoding/binary"
	"sync"

	"github.com/libp2p/go-libp2p/core/peer"
)

// pubsub remembers a message for two minutes; after that, it could be replayed. The author also signs a sequence
// number. It starts at the author's start time in nanoseconds and grows by one with each message. So a window per
// author, as in IPsec (RFC 4303, section 3.4.3), prevents replays permanently: each number within the window is
// accepted once, in any order, and numbers before it are rejected.
const (
	// window is how far apart two messages of one author may overtake each other.
	window = 1024
	// maxAuthors bounds the authors remembered; beyond it a random one is forgotten.
	maxAuthors = 16384
)

// replays remembers the sequence numbers of authors.
type replays struct {
	mu      sync.Mutex
	authors map[peer.ID]*span
}

// span is the highest sequence number of an author and which of the window before it were seen, as bits
// at the number modulo window.
type span struct {
	top  uint64
	seen [window / 64]uint64
}

func newReplays() *replays { return &replays{authors: make(map[peer.ID]*span)} }

// fresh reports whether the message with the sequence number seqno, 8 bytes big-endian, is new, and
// remembers it.
func (r *replays) fresh(author peer.ID, seqno []byte) bool {
	if len(seqno) != 8 {
		return false
	}
	n := binary.BigEndian.Uint64(seqno)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.authors[author]
	if s == nil {
		if len(r.authors) >= maxAuthors {
			for any := range r.authors {
				delete(r.authors, any)
				break
			}
		}
		s = &span{top: n}
		r.authors[author] = s
		s.mark(n)
		return true
	}
	return s.fresh(n)
}

func (s *span) fresh(n uint64) bool {
	switch {
	case n > s.top:
		if n-s.top >= window {
			clear(s.seen[:])
		} else {
			for i := s.top + 1; i < n; i++ {
				s.seen[i%window/64] &^= 1 << (i % 64)
			}
		}
		s.top = n
	case s.top-n >= window || s.seen[n%window/64]&(1<<(n%64)) != 0:
		return false
	}
	s.mark(n)
	return true
}

func (s *span) mark(n uint64) { s.seen[n%window/64] |= 1 << (n % 64) }
