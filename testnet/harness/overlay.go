package harness

import (
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/cluster"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/provider"
)

// Overlays are the overlays of a simulated network. They carry no data, and record the admitted peers of each member.
type Overlays struct {
	mu      sync.Mutex
	members map[market.OverlayKey]*Member
}

// Member is one execution's membership.
type Member struct {
	Peer    peer.ID
	Joining provider.Joining
	others  []provider.Peer
	of      *Overlays
}

// at returns the joiner for the executions of one peer.
func (o *Overlays) at(id peer.ID) provider.Networks { return memberships{o, id} }

type memberships struct {
	of   *Overlays
	peer peer.ID
}

func (m memberships) Join(j provider.Joining) (provider.Network, error) {
	o := m.of
	o.mu.Lock()
	defer o.mu.Unlock()
	n := &Member{Peer: m.peer, Joining: j, of: o}
	if j.Cluster == "" { // no members to admit
		return n, nil
	}
	if o.members == nil {
		o.members = map[market.OverlayKey]*Member{}
	}
	o.members[j.Key.Public()] = n
	return n, nil
}

// SetMembers replaces the admitted members.
func (m *Member) SetMembers(others []provider.Peer) error {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.others = slices.Clone(others)
	return nil
}

// Links reports a member as reached if it admits this member.
func (m *Member) Links() (out []provider.Link) {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	for _, p := range m.others {
		l := provider.Link{Address: p.Address}
		if m.of.reach(m.Joining.Key.Public(), p.Key) {
			l.Path, l.RTT, l.MTU = nodepb.LinkPath_LINK_PATH_DIRECT, time.Millisecond, m.Joining.MTU
		}
		out = append(out, l)
	}
	return out
}

// Close leaves the overlay.
func (m *Member) Close() error {
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if k := m.Joining.Key.Public(); m.of.members[k] == m {
		delete(m.of.members, k)
	}
	return m.Joining.Tun.Close()
}

// lets reports whether the member with a key admits another one, by its peer and address.
func (o *Overlays) lets(key, other market.OverlayKey) bool {
	m, n := o.members[key], o.members[other]
	return m != nil && n != nil && slices.ContainsFunc(m.others, func(p provider.Peer) bool {
		return p.Key == other && p.Peer == n.Peer && p.Address == n.Joining.Address
	})
}

func (o *Overlays) reach(a, b market.OverlayKey) bool { return o.lets(a, b) && o.lets(b, a) }

// Ranks returns the present members of all clusters, by rank.
func (o *Overlays) Ranks() map[uint32][]market.OverlayKey {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[uint32][]market.OverlayKey{}
	for k, m := range o.members {
		if r, ok := cluster.RankOf(m.Joining.Address); ok {
			out[r] = append(out[r], k)
		}
	}
	return out
}

// clusters returns the present members by cluster.
func (o *Overlays) clusters() map[string][]market.OverlayKey {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := map[string][]market.OverlayKey{}
	for k, m := range o.members {
		out[m.Joining.Cluster] = append(out[m.Joining.Cluster], k)
	}
	return out
}

// Reach reports whether two members reach each other: each admits the other.
func (o *Overlays) Reach(a, b market.OverlayKey) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.reach(a, b)
}
