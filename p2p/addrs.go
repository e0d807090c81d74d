package p2p

import (
	"cmp"
	"fmt"
	"slices"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	// MaxAddrs is the number of addresses that a host announces: the best of each kind. Offers, orders and records
	// carry them all.
	MaxAddrs = 8
	// maxAddrText bounds one of them as text.
	maxAddrText = 250
	// maxCircuits is how many of them lead through relays when there are others.
	maxCircuits = 4
)

// Class is how an address reaches its peer.
type Class string

const (
	ClassPublic   Class = "public"   // from anywhere
	ClassPrivate  Class = "private"  // from the same local network
	ClassLoopback Class = "loopback" // from the same machine
	ClassRelayed  Class = "relayed"  // through a relay
)

// ClassOf is the class of an address.
func ClassOf(a ma.Multiaddr) Class {
	switch {
	case has(a, ma.P_CIRCUIT):
		return ClassRelayed
	case manet.IsIPLoopback(a):
		return ClassLoopback
	case manet.IsPublicAddr(a):
		return ClassPublic
	}
	return ClassPrivate
}

// announcer returns the function that selects the announced addresses.
func announcer(announce []string) (func([]ma.Multiaddr) []ma.Multiaddr, error) {
	fixed := make([]ma.Multiaddr, 0, len(announce))
	for _, s := range announce {
		a, err := ma.NewMultiaddr(s)
		if err != nil {
			return nil, fmt.Errorf("%w: announced address %q: %w", ErrConfig, s, err)
		}
		fixed = append(fixed, a)
	}
	return func(addrs []ma.Multiaddr) []ma.Multiaddr {
		if len(fixed) > 0 {
			return fixed
		}
		return choose(addrs)
	}, nil
}

// choose keeps the best [MaxAddrs] addresses: public ones, then relays, of which there are never more than half while
// there are others, then private ones. Loopback is of use to others only when it is all there is, as on a testnet.
func choose(addrs []ma.Multiaddr) []ma.Multiaddr {
	byClass := make(map[Class][]ma.Multiaddr)
	for _, a := range addrs {
		if len(a.String()) <= maxAddrText && !manet.IsIP6LinkLocal(a) {
			byClass[ClassOf(a)] = append(byClass[ClassOf(a)], a)
		}
	}
	direct := slices.Concat(byClass[ClassPublic], byClass[ClassPrivate])
	relays := byClass[ClassRelayed]
	if len(direct)+len(relays) == 0 {
		return cut(byClass[ClassLoopback], MaxAddrs)
	}
	slices.SortStableFunc(relays, func(a, b ma.Multiaddr) int { return cmp.Compare(cost(a), cost(b)) })
	relays = spread(relays, max(maxCircuits, MaxAddrs-len(direct)))
	return slices.Concat(cut(direct, MaxAddrs-len(relays)), relays)
}

// cost orders addresses of one relay: most peers can dial TCP over IPv4.
func cost(a ma.Multiaddr) int {
	n := 0
	if !has(a, ma.P_TCP) {
		n++
	}
	if !has(a, ma.P_IP4) {
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
