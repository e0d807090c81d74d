package p2p

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/control"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/starling-network/starling/p2p/closed"
)

// gater refuses peers with unsound keys, and those on the block list. It dials no address with which a stranger could
// aim this machine at its neighbours.
type gater struct {
	blocked map[peer.ID]bool
	dials   *dials
}

func (c Config) gater(d *dials) gater {
	g := gater{blocked: make(map[peer.ID]bool, len(c.Block)), dials: d}
	for _, p := range c.Block {
		g.blocked[p] = true
	}
	return g
}

func (g gater) InterceptPeerDial(p peer.ID) bool {
	_, err := KeyFromPeerID(p)
	return err == nil && !g.blocked[p]
}

// InterceptAddrDial reports whether an address is dialled. That of a relayed connection is its relay's.
func (g gater) InterceptAddrDial(_ peer.ID, a ma.Multiaddr) bool { return g.dials.allowed(a) }

func (gater) InterceptAccept(network.ConnMultiaddrs) bool { return true }

func (gater) InterceptSecured(_ network.Direction, p peer.ID, _ network.ConnMultiaddrs) bool {
	_, err := KeyFromPeerID(p)
	return err == nil
}

// InterceptUpgraded refuses blocked peers this late because only here the refusal carries a code, [network.ConnGated],
// that the other side can read: it then knows that it is blocked, and not that we are gone.
func (g gater) InterceptUpgraded(c network.Conn) (bool, control.DisconnectReason) {
	return !g.blocked[c.RemotePeer()], 0
}

const (
	// interfacesFresh is how old the list of this machine's networks may be.
	interfacesFresh = time.Minute
	// maxNamed bounds the addresses that a user named.
	maxNamed = 256
)

// dials decides which addresses of others are dialled. Open ones are; closed ones (package closed: private networks,
// loopback, the address of a cloud's metadata) only
//
//   - in a private network, whose members have a key of it,
//   - in a range that holds a configured address: of a bootstrap peer, of a relay, or one that this peer announces,
//   - on loopback, if this peer listens nowhere else,
//   - in the very network of one of this machine's interfaces, loopback apart,
//   - or if the user named just this address.
type dials struct {
	all bool

	mu     sync.Mutex
	ranges []netip.Prefix // that the configuration names
	named  []netip.Addr   // by the user
	local  []netip.Prefix // of interfaces
	read   time.Time      // local is of then
}

// dials returns c's rules for dialling.
func (c Config) dials() *dials {
	d := &dials{all: c.PSK != nil, ranges: slices.Clone(c.Dials)}
	listen, announce := parse(c.Listen), parse(c.Announce)
	if !slices.ContainsFunc(listen, func(a ma.Multiaddr) bool { return !manet.IsIPLoopback(a) }) { // a testnet's peer
		d.open(listen...)
	}
	d.open(announce...)
	for _, p := range slices.Concat(c.Bootstrap, c.NAT.Relays) {
		d.open(p.Addrs...)
	}
	return d
}

// parse reads those of some multiaddrs that are good.
func parse(texts []string) (out []ma.Multiaddr) {
	for _, text := range texts {
		if a, err := ma.NewMultiaddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// ClosedDials returns the closed ranges in which addresses lie that c names, for another host of the same user
// (Config.Dials).
func (c Config) ClosedDials() []netip.Prefix { return c.dials().ranges }

// open lets all addresses be dialled in the closed ranges in which these lie.
func (d *dials) open(addrs ...ma.Multiaddr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range addrs {
		ip := ipOf(a)
		if r := closed.Range(ip); ip.IsValid() && !ip.IsUnspecified() && r.IsValid() && !slices.Contains(d.ranges, r) {
			d.ranges = append(d.ranges, r)
		}
	}
}

// name lets just these addresses be dialled, the latest ones of many.
func (d *dials) name(addrs ...ma.Multiaddr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range addrs {
		ip := ipOf(a)
		if ip.IsValid() && closed.Why(ip) != "" && !slices.Contains(d.named, ip) {
			d.named = append(d.named, ip)
		}
	}
	d.named = d.named[max(len(d.named)-maxNamed, 0):]
}

// allowed reports whether an address is dialled.
func (d *dials) allowed(a ma.Multiaddr) bool {
	ip := ipOf(a)
	if d.all || !ip.IsValid() || closed.Why(ip) == "" {
		return true // other addresses than IP are resolved before they are dialled
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	within := func(p netip.Prefix) bool { return p.Contains(ip) }
	if slices.ContainsFunc(d.ranges, within) || slices.Contains(d.named, ip) {
		return true
	}
	if now := time.Now(); now.Sub(d.read) > interfacesFresh {
		d.local, d.read = interfaces(), now
	}
	return slices.ContainsFunc(d.local, within)
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

// ipOf returns the IP address of a, invalid if it has none.
func ipOf(a ma.Multiaddr) netip.Addr {
	ip, err := manet.ToIP(a)
	if err != nil {
		return netip.Addr{}
	}
	at, _ := netip.AddrFromSlice(ip)
	return at.Unmap()
}
