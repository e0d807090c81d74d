// Package addr classifies addresses by their reachability, and selects the ones that a host announces.
package addr

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// Max is the number of addresses that a host announces: the best of each kind. Offers, orders and records carry
	// them all.
	Max = 8
	// maxText bounds one of them as text.
	maxText = 250
	// maxCircuits is how many of them lead through relays when there are others.
	maxCircuits = 4
)

// Class is how an address reaches its peer.
type Class string

const (
	Public   Class = "public"   // from anywhere
	Private  Class = "private"  // from the same local network
	Loopback Class = "loopback" // from the same machine
	Relayed  Class = "relayed"  // through a relay
)

// ClassOf is the class of an address.
func ClassOf(a ma.Multiaddr) Class {
	switch {
	case Circuit(a):
		return Relayed
	case manet.IsIPLoopback(a):
		return Loopback
	case manet.IsPublicAddr(a):
		return Public
	}
	return Private
}

// Circuit reports whether an address leads through a relay.
func Circuit(a ma.Multiaddr) bool { return Has(a, ma.P_CIRCUIT) }

// Relay returns the relay that a circuit's address leads through, or "".
func Relay(a ma.Multiaddr) peer.ID {
	if !Circuit(a) {
		return ""
	}
	text, err := a.ValueForProtocol(ma.P_P2P) // the first one
	if err != nil {
		return ""
	}
	id, err := peer.Decode(text)
	if err != nil {
		return ""
	}
	return id
}

// Has reports whether an address has a component of a protocol.
func Has(a ma.Multiaddr, protocol int) bool {
	_, err := a.ValueForProtocol(protocol)
	return err == nil
}

// IP returns the IP address of a, invalid if it has none.
func IP(a ma.Multiaddr) netip.Addr {
	ip, err := manet.ToIP(a)
	if err != nil {
		return netip.Addr{}
	}
	at, _ := netip.AddrFromSlice(ip)
	return at.Unmap()
}

// Choose keeps the best [Max] addresses: public ones, then relays, at most half if there are others, then private ones.
// It keeps loopback only if there are no others, as on a testnet.
func Choose(addrs []ma.Multiaddr) []ma.Multiaddr {
	byClass := make(map[Class][]ma.Multiaddr)
	for _, a := range addrs {
		if len(a.String()) <= maxText && !manet.IsIP6LinkLocal(a) {
			byClass[ClassOf(a)] = append(byClass[ClassOf(a)], a)
		}
	}
	direct := slices.Concat(byClass[Public], byClass[Private])
	relays := byClass[Relayed]
	if len(direct)+len(relays) == 0 {
		return cut(byClass[Loopback], Max)
	}
	slices.SortStableFunc(relays, func(a, b ma.Multiaddr) int { return cmp.Compare(cost(a), cost(b)) })
	relays = spread(relays, max(maxCircuits, Max-len(direct)))
	return slices.Concat(cut(direct, Max-len(relays)), relays)
}

// cost orders addresses of one relay: most peers can dial TCP over IPv4.
func cost(a ma.Multiaddr) int {
	n := 0
	if !Has(a, ma.P_TCP) {
		n++
	}
	if !Has(a, ma.P_IP4) {
		n += 2
	}
	return n
}

// spread takes n of the addresses so that every relay has its first one before any has a second.
func spread(addrs []ma.Multiaddr, n int) []ma.Multiaddr {
	turn := make(map[string]int)
	type ranked struct {
		a    ma.Multiaddr
		turn int
	}
	var all []ranked
	for _, a := range addrs {
		via, _ := a.ValueForProtocol(ma.P_P2P)
		all = append(all, ranked{a, turn[via]})
		turn[via]++
	}
	slices.SortStableFunc(all, func(a, b ranked) int { return cmp.Compare(a.turn, b.turn) })
	var out []ma.Multiaddr
	for _, r := range all[:min(n, len(all))] {
		out = append(out, r.a)
	}
	return out
}

func cut(addrs []ma.Multiaddr, n int) []ma.Multiaddr { return addrs[:min(n, len(addrs))] }
