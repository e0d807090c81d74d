package room

import (
	"context"
	"sync"
	"time"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/registry"
	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/admit"
)

// stakesFresh is how old the list of registrations may be. Later stakes count when it is read again.
const stakesFresh = time.Minute

// stakes holds the peers with a stake.
type stakes struct {
	host *p2p.Host
	list *registry.Registry // nil on a network without registrations

	mu   sync.Mutex
	keys map[sign.Key]bool
}

func newStakes(h *p2p.Host, list *registry.Registry) *stakes { return &stakes{host: h, list: list} }

// staked reports whether a key has a stake. known is false on a network without registrations.
func (s *stakes) staked(k sign.Key) (staked, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[k], s.list != nil
}

// standing returns the standing of a peer that a proof is about: a stake is worth as much as a lease with this peer.
func (s *stakes) standing(k sign.Key) admit.Standing {
	if staked, _ := s.staked(k); staked {
		return admit.Counterparty
	}
	id, err := p2p.PeerIDFromKey(k)
	if err != nil {
		return admit.Stranger
	}
	return s.host.Standing(id)
}

// set takes a new list and reports whether a key has something at stake now that had not.
func (s *stakes) set(now map[sign.Key]bool) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range now {
		more = more || !s.keys[k]
	}
	s.keys = now
	return more
}

// follow polls the list until ctx ends, and calls more when a new peer has a stake, because proofs about it matter now.
// While the chain is unreachable, the last list counts.
func (s *stakes) follow(ctx context.Context, more func()) error {
	if s.list == nil {
		return nil
	}
	for ctx.Err() == nil {
		all, err := s.list.Providers(ctx)
		if err == nil && s.set(registry.Staked(all)) {
			more()
		}
		select {
		case <-ctx.Done():
		case <-time.After(stakesFresh):
		}
	}
	return nil
}
