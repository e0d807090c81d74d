package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/starling-network/starling/p2p/closed"
)

// ErrRefused means that an address may not be dialled for a container.
var ErrRefused = errors.New("refused by the egress policy")

// verdict reports whether a container may reach an address, and if not, why.
func (s *Stack) verdict(tcp bool, to netip.AddrPort) (why Reason, open bool) {
	p := &s.cfg.Policy
	switch a := to.Addr(); {
	case closed.Why(a) != "" || to.Port() == 0:
		return ReasonClosed, false
	case s.hosts.have(a):
		return ReasonHost, false
	case p.Mode == ModeNone:
		return ReasonMode, false
	case tcp && mail(to.Port()):
		return ReasonMail, false
	case p.Mode == ModeInternet:
		return 0, true
	}
	for i := range p.Allow {
		if r := &p.Allow[i]; r.prefix.IsValid() && r.prefix.Contains(to.Addr()) && r.opens(to.Port()) {
			return 0, true
		}
	}
	for _, i := range s.dns.opened.rules(to.Addr(), time.Now()) {
		if p.Allow[i].opens(to.Port()) {
			return 0, true
		}
	}
	return ReasonList, false
}

// dial is the default Dial. It checks again the address that the socket is about to connect to.
func (s *Stack) dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTime, ControlContext: s.control}
	return d.DialContext(ctx, network, to.String())
}

func (s *Stack) control(ctx context.Context, network, address string, c syscall.RawConn) error {
	if err := s.again(network, address); err != nil {
		return err
	}
	return bound(ctx, c)
}

// again checks the address that a socket is about to connect to.
func (s *Stack) again(network, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %.80q is no address", ErrRefused, address)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if why, open := s.verdict(network[:3] == "tcp", to); !open {
		return fmt.Errorf("%w: %v: %s", ErrRefused, to, why)
	}
	return nil
}

// hostAddrs holds the host's own addresses: of its interfaces, which may change, and the configured ones.
type hostAddrs struct {
	own   func() []netip.Addr
	mu    sync.Mutex
	read  time.Time
	addrs map[netip.Addr]struct{} // nil: never read
}

const hostEvery = 5 * time.Second

// have reports whether an address is the host's. If a host's own addresses are unknown, every address counts as its
// own.
func (h *hostAddrs) have(a netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); h.addrs == nil || now.Sub(h.read) > hostEvery {
		if ifaces, err := net.InterfaceAddrs(); err == nil { // else those of the last time
			h.addrs, h.read = make(map[netip.Addr]struct{}, len(ifaces)), now
			for _, i := range ifaces {
				if p, err := netip.ParsePrefix(i.String()); err == nil {
					h.addrs[p.Addr().Unmap()] = struct{}{}
				}
			}
			if h.own != nil {
				for _, o := range h.own() {
					h.addrs[o.Unmap()] = struct{}{}
				}
			}
		}
	}
	_, found := h.addrs[a]
	return found || h.addrs == nil
}
