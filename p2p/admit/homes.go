package admit

import (
	"net/netip"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// maxRecent is how many peers that were more than strangers are remembered by their addresses.
const maxRecent = 1024

// homes are the IP addresses of counterparties, and of the last peers that were one, funded, or answered. During a
// flood of handshakes, which come before any key is known, some places are kept for these addresses.
type homes struct {
	of     map[peer.ID]netip.Addr
	at     map[netip.Addr]map[peer.ID]struct{}
	recent []peer.ID // of those without a deal, the first one first
}

func newHomes() homes {
	return homes{of: map[peer.ID]netip.Addr{}, at: map[netip.Addr]map[peer.ID]struct{}{}}
}

// set notes where p is, if anything is known of that.
func (h *homes) set(p peer.ID, at netip.Addr) {
	if !at.IsValid() {
		return
	}
	h.drop(p)
	h.of[p] = at
	if h.at[at] == nil {
		h.at[at] = map[peer.ID]struct{}{}
	}
	h.at[at][p] = struct{}{}
}

func (h *homes) drop(p peer.ID) {
	at, ok := h.of[p]
	if !ok {
		return
	}
	delete(h.of, p)
	if delete(h.at[at], p); len(h.at[at]) == 0 {
		delete(h.at, at)
	}
}

// remember keeps p for a while, until others were remembered after it. deal reports whether a peer is kept anyway.
func (h *homes) remember(p peer.ID, deal func(peer.ID) bool) {
	if _, ok := h.of[p]; !ok {
		return
	}
	h.recent = append(h.recent, p)
	for len(h.recent) > maxRecent {
		first := h.recent[0]
		h.recent = h.recent[1:]
		if !deal(first) {
			h.drop(first)
		}
	}
}

// addrOf returns the IP address of a direct connection, and none for loopback and for a relay's.
func addrOf(a ma.Multiaddr) netip.Addr {
	if !NetworkOf(a).IsValid() {
		return netip.Addr{}
	}
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err == nil {
		return netip.Addr{}
	}
	ip, _ := manet.ToIP(a) // it has a network
	at, _ := netip.AddrFromSlice(ip)
	return at.Unmap()
}
