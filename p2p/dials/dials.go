// Package dials is the policy for the addresses that a host dials, so that a stranger cannot direct it at its
// neighbours. Open addresses are dialled. Closed ones (package closed: private networks, loopback, the address of a
// cloud's metadata) are dialled only
//
//   - in a private network with a pre-shared key,
//   - in a range that holds a configured address: of a bootstrap peer or a relay, or an announced one,
//   - on loopback, if this peer listens nowhere else,
//   - in the subnet of one of this machine's interfaces, except loopback,
//   - or if the user named exactly this address.
package dials

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	ma "github.com/multiformats/go-multiaddr"

	"github.com/starling-network/starling/p2p/addr"
	"github.com/starling-network/starling/p2p/closed"
)

const (
	// interfacesFresh is the maximum age of the list of this machine's networks.
	interfacesFresh = time.Minute
	// maxNamed bounds the addresses that a user named.
	maxNamed = 256
)

// Rules is one host's policy. Its methods may be called concurrently.
type Rules struct {
	all bool

	mu     sync.Mutex
	ranges []netip.Prefix // that the configuration names
	named  []netip.Addr   // by the user
	local  []netip.Prefix // of interfaces
	read   time.Time      // local is of then
}

// New returns rules that allow the closed ranges beside open addresses, or everything if all is set.
func New(all bool, ranges []netip.Prefix) *Rules {
	return &Rules{all: all, ranges: slices.Clone(ranges)}
}

// Open lets all addresses be dialled in the closed ranges in which these lie.
func (r *Rules) Open(addrs ...ma.Multiaddr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range addrs {
		ip := addr.IP(a)
		if p := closed.Range(ip); ip.IsValid() && !ip.IsUnspecified() && p.IsValid() && !slices.Contains(r.ranges, p) {
			r.ranges = append(r.ranges, p)
		}
	}
}

// Ranges returns the closed ranges that are allowed.
func (r *Rules) Ranges() []netip.Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ranges)
}

// Name allows exactly these addresses; of too many, the latest.
func (r *Rules) Name(addrs ...ma.Multiaddr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range addrs {
		ip := addr.IP(a)
		if ip.IsValid() && closed.Why(ip) != "" && !slices.Contains(r.named, ip) {
			r.named = append(r.named, ip)
		}
	}
	r.named = r.named[max(len(r.named)-maxNamed, 0):]
}

// Allow reports whether an address is dialled.
func (r *Rules) Allow(a ma.Multiaddr) bool {
	ip := addr.IP(a)
	if r.all || !ip.IsValid() || closed.Why(ip) == "" {
		return true // other addresses than IP are resolved before they are dialled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	within := func(p netip.Prefix) bool { return p.Contains(ip) }
	if slices.ContainsFunc(r.ranges, within) || slices.Contains(r.named, ip) {
		return true
	}
	if now := time.Now(); now.Sub(r.read) > interfacesFresh {
		r.local, r.read = interfaces(), now
	}
	return slices.ContainsFunc(r.local, within)
}

// interfaces returns the networks of this machine's interfaces, without loopback and link-local ones.
func interfaces() (out []netip.Prefix) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() || n.IP.IsLinkLocalUnicast() {
			continue
		}
		ip, _ := netip.AddrFromSlice(n.IP)
		ones, _ := n.Mask.Size()
		if p, err := ip.Unmap().Prefix(ones); err == nil && ones > 0 {
			out = append(out, p)
		}
	}
	return out
}
