package provider

import (
	"errors"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/lease"
	"github.com/starling-network/starling/market/sign"
)

// holds is the provider's side of measuring paths: link.Holds.
type holds struct{ p *Provider }

// Measures is nil while a hold is not active yet, named an overlay key, and is commanded by a peer.
func (h holds) Measures(id market.HoldID, by sign.Key) error {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	r, ok := h.p.book.Hold(id)
	switch {
	case !ok || r.Peer() != by:
		return errors.New("no such hold of yours here")
	case !r.Overlay:
		return errors.New("this hold is no member's of a cluster")
	case r.State != lease.Held && r.State != lease.Signed:
		return errors.New("this hold is " + r.State.String() + ": paths are measured before a lease is active")
	}
	return nil
}

// Serves reports whether a live hold or lease of a cluster is commanded by a peer.
func (h holds) Serves(by sign.Key) bool {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	for r := range h.p.book.Records() {
		if r.Overlay && r.State.Live() && r.Peer() == by {
			return true
		}
	}
	return false
}
