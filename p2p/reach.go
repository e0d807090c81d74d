package p2p

import (
	"fmt"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/addr"
)

// ReachState is whether a host can be dialled from outside.
type ReachState string

const (
	ReachPublic  ReachState = "public"  // other peers have dialled it
	ReachPrivate ReachState = "private" // other peers tried and did not get through
	ReachUnknown ReachState = "unknown" // not tried yet
	ReachLocal   ReachState = "local"   // from this machine or its local network only
	ReachRelayed ReachState = "relayed" // through a relay
)

// Reach is a host's own view of how it can be reached.
type Reach struct {
	State  ReachState
	Text   string // a sentence for the operator
	Addrs  []ReachAddr
	Relays []peer.ID // where a place is reserved
}

// ReachAddr is one address of a host. Not all of them are announced.
type ReachAddr struct {
	Addr   ma.Multiaddr
	Class  addr.Class
	State  ReachState
	Mapped bool // the router forwards it to us
}

// Reach returns how this host can be reached.
func (h *Host) Reach() Reach {
	var r Reach
	states := make(map[string]ReachState)
	if c, ok := h.Host.(interface {
		ConfirmedAddrs() (reachable, unreachable, unknown []ma.Multiaddr)
	}); ok && h.guided {
		reachable, unreachable, _ := c.ConfirmedAddrs()
		for _, a := range reachable {
			states[a.String()] = ReachPublic
		}
		for _, a := range unreachable {
			states[a.String()] = ReachPrivate
		}
	}
	mapped := h.mapped.Addrs(h.Network().ListenAddresses())
	all := h.Addrs()
	if b, ok := h.Host.(interface{ AllAddrs() []ma.Multiaddr }); ok {
		all = ma.Unique(append(b.AllAddrs(), all...))
	}
	found := make(map[ReachState]int)
	for _, a := range all {
		e := ReachAddr{Addr: a, Class: addr.ClassOf(a), Mapped: mapped[a.String()]}
		switch e.Class {
		case addr.Relayed:
			e.State = ReachRelayed
		case addr.Loopback, addr.Private:
			e.State = ReachLocal
		default:
			if e.State = states[a.String()]; e.State == "" {
				e.State = ReachUnknown
			}
		}
		found[e.State]++
		r.Addrs = append(r.Addrs, e)
	}
	r.Relays = h.Relays()
	r.State, r.Text = verdict(found, len(r.Relays), h.cfg.NAT.DialOutOnly)
	return r
}

// verdict sums up how many addresses of each state there are.
func verdict(found map[ReachState]int, relays int, dialOut bool) (ReachState, string) {
	switch {
	case found[ReachPublic] > 0:
		return ReachPublic, "other peers can dial this one"
	case found[ReachRelayed] > 0 && found[ReachUnknown] > 0:
		return ReachRelayed, fmt.Sprintf("it is not known yet whether other peers can dial this one; "+
			"%d relays reach it meanwhile", relays)
	case found[ReachRelayed] > 0:
		return ReachRelayed, fmt.Sprintf("other peers cannot dial this one; %d relays reach it, "+
			"and direct paths are opened where the NATs let them", relays)
	case found[ReachUnknown] > 0:
		return ReachUnknown, "it is not known yet whether other peers can dial this one"
	case found[ReachPrivate] > 0 || dialOut:
		return ReachPrivate, "other peers cannot dial this one, and no relay has a place for it: " +
			"only peers that it connected to itself reach it"
	}
	return ReachLocal, "only peers on this machine or its local network can dial this one"
}

// Relays are the relays at which this peer can be reached now.
func (h *Host) Relays() []peer.ID {
	var out []peer.ID
	for _, a := range h.Addrs() {
		if id := addr.Relay(a); id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}
