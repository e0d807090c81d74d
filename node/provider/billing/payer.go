package billing

import (
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
)

// payer is the peer that co-signs the lease's receipts and pays.
func (s *Meter) payer() peer.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buyer
}

// handTo has another peer co-sign and pay from now on.
func (s *Meter) handTo(to peer.ID) {
	s.mu.Lock()
	was := s.buyer
	s.buyer = to
	running := s.running
	s.mu.Unlock()
	if was == to {
		return
	}
	if running {
		s.p.cfg.Host.Protect(to, tagOf(s.rec.Lease))
		s.p.cfg.Host.Unprotect(was, tagOf(s.rec.Lease))
	}
	wake(s.poke) // it may have waited for the old one
}

// tagOf is the tag under which the connection to a lease's payer is protected.
func tagOf(l market.LeaseID) string { return "lease/" + l.Short() }
