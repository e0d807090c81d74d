package entries

import (
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"
)

// candidate is an entry that may be tried.
type candidate struct {
	known
	peer   peer.AddrInfo
	busy   bool      // being tried, or entered
	in     bool      // entered, and of this network
	began  time.Time // when it was tried last
	retry  time.Duration
	after  time.Time // not to be tried before
	reason string    // of its last failure
	peers  int       // its estimate of the network's peers; 0: unknown
	pace   *pace     // of calls to the chain through it; made with the first
}

// give adds entries that the user named.
func (k *Keeper) give(peers []peer.AddrInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range peers {
		c := k.all[p.ID]
		if c == nil {
			c = &candidate{}
			k.all[p.ID] = c
		}
		c.merge(p)
		c.Given = true
	}
}

// merge puts an address that is new first.
func (c *candidate) merge(p peer.AddrInfo) {
	for _, a := range c.peer.Addrs {
		if len(p.Addrs) < maxEntryAddrs && !slices.ContainsFunc(p.Addrs, a.Equal) {
			p.Addrs = append(slices.Clip(p.Addrs), a)
		}
	}
	c.peer = p
	c.ID, c.Addrs = p.ID.String(), knownOf(p).Addrs
}

// learn adds entries that another entry named. They are tried last, and forgotten first.
func (k *Keeper) learn(from peer.ID, peers []peer.AddrInfo) {
	k.mu.Lock()
	defer k.mu.Unlock()
	by := from.String()
	if c := k.all[from]; c != nil {
		by = c.source()
	}
	for _, p := range peers {
		if p.ID == k.host.ID() {
			continue
		}
		if c := k.all[p.ID]; c != nil {
			if !c.Given && !c.Shown {
				c.merge(p)
			}
			continue
		}
		if len(k.all) >= maxEntries {
			continue
		}
		c := &candidate{known: known{By: by}}
		c.merge(p)
		k.all[p.ID] = c
	}
}

// source returns the origin of an entry: itself if the user gave it, else By. Entries without a recorded origin share
// one.
func (c *candidate) source() string {
	if c.Given {
		return c.ID
	}
	return c.By
}

// apart reports whether two entries are independent: neither named the other, no third one named both, and they share
// no public network.
func (k *Keeper) apart(a, b *candidate) bool {
	if a == nil || b == nil || a == b || a.source() == b.source() {
		return false
	}
	of := k.networks(a)
	return !slices.ContainsFunc(k.networks(b), func(p netip.Prefix) bool { return slices.Contains(of, p) })
}

// networks are the public IPv4 /16 and IPv6 /32 of an entry's addresses: the range that one customer of a cloud gets.
func (k *Keeper) networks(c *candidate) (out []netip.Prefix) {
	addrs := slices.Clone(c.peer.Addrs)
	for _, conn := range k.host.Network().ConnsToPeer(c.peer.ID) {
		addrs = append(addrs, conn.RemoteMultiaddr())
	}
	for _, a := range addrs {
		ip, err := manet.ToIP(a)
		at, ok := netip.AddrFromSlice(ip)
		if err != nil || !ok || !manet.IsPublicAddr(a) {
			continue
		}
		bits := 16
		if at = at.Unmap(); at.Is6() {
			bits = 32
		}
		p, _ := at.Prefix(bits) // the bits fit
		out = append(out, p)
	}
	return out
}

// second is the entry with the answers that are compared with the first one's; live has two at least.
func (k *Keeper) second(live []peer.ID) peer.ID {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range live[1:] {
		if k.apart(k.all[live[0]], k.all[id]) {
			return id
		}
	}
	return live[1]
}

// apartLocked reports whether an entry is independent of the one in use, which is the first.
func (k *Keeper) apartLocked(live []peer.ID) bool {
	return len(live) > 0 && slices.ContainsFunc(live, func(id peer.ID) bool {
		return k.apart(k.all[live[0]], k.all[id])
	})
}

// next chooses the candidates to try now and marks them. It prefers candidates that are independent of the entry in
// use, then the user's, then candidates with the right genesis, then the most recently seen. If the connected entries
// depend on each other, it chooses an independent one.
func (k *Keeper) next(now time.Time) []*candidate {
	k.mu.Lock()
	defer k.mu.Unlock()
	live := k.entriesLocked()
	missing, only := wantEntries-len(live), false
	if missing <= 0 {
		if k.apartLocked(live) || len(live) >= maxConnected {
			return nil
		}
		missing, only = maxConnected-len(live), true
	}
	apart := func(c *candidate) bool { return len(live) > 0 && k.apart(k.all[live[0]], c) }
	var free []*candidate
	for _, c := range k.all {
		if c.busy {
			if !slices.Contains(live, c.peer.ID) && now.Sub(c.began) < tryTime {
				missing--
			}
		} else if !now.Before(c.after) && len(c.peer.Addrs) > 0 && (!only || apart(c)) {
			free = append(free, c)
		}
	}
	slices.SortFunc(free, func(a, b *candidate) int {
		for _, by := range []func(*candidate) bool{
			apart, func(c *candidate) bool { return c.Given }, func(c *candidate) bool { return c.Shown },
		} {
			if x, y := by(a), by(b); x != y {
				return map[bool]int{true: -1, false: 1}[x]
			}
		}
		if d := b.Seen - a.Seen; d != 0 {
			return map[bool]int{true: 1, false: -1}[d > 0]
		}
		return slices.Compare([]byte(a.peer.ID), []byte(b.peer.ID))
	})
	free = free[:max(min(len(free), missing), 0)]
	for _, c := range free {
		c.busy, c.began = true, now
	}
	return free
}
