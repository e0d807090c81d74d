package replies

import (
	"net/netip"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
)

// party is a sharer of the quotes for an order: a neighbour, or all strangers of one network.
type party struct {
	peer peer.ID
	at   netip.Prefix
}

// tally counts the quotes for one order.
type tally struct {
	until time.Time
	all   int
	of    map[party]int
}

// add counts one more of a party. A party gets at most half of the room that the others left of most, so every new
// party gets some.
func (t *tally) add(p party, most int) bool {
	if others := t.all - t.of[p]; 2*t.of[p] >= most-others {
		return false
	}
	t.of[p]++
	t.all++
	return true
}

// count reports whether one more quote for an order may be passed on that a neighbour brought, and counts it.
func (r *Router) count(from peer.ID, o market.OrderID, w Way, now time.Time) bool {
	p := party{peer: from}
	if at := r.strangers(from); at.IsValid() {
		p = party{at: at}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallies[o]
	if t == nil {
		if now.Sub(r.swept) >= Fresh/4 || len(r.tallies) >= maxTallies {
			r.sweep(now)
		}
		if len(r.tallies) >= maxTallies {
			return false
		}
		t = &tally{until: now.Add(Fresh), of: map[party]int{}}
		r.tallies[o] = t
	}
	return t.add(p, Most(w.Leases))
}

// sweep forgets orders with quotes that are no longer passed on, a quarter of a second after the last time at the
// earliest; r.mu is held.
func (r *Router) sweep(now time.Time) {
	if now.Sub(r.swept) < time.Second/4 {
		return
	}
	r.swept = now
	for o, t := range r.tallies {
		if now.After(t.until) {
			delete(r.tallies, o)
		}
	}
}
