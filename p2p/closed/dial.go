package closed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// ErrClosed means that a connection would lead to a closed address, or to an address of this machine.
var ErrClosed = errors.New("the address is closed")

// Control is the Control of a net.Dialer for addresses that strangers choose. It runs after name resolution, for each
// address. It returns ErrClosed for a closed address and for addresses of this machine's interfaces.
func Control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if why := Why(at.Addr()); why != "" {
		return fmt.Errorf("%w: %v: %s", ErrClosed, at, why)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("%w: %v: this machine's own are not known: %w", ErrClosed, at, err)
	}
	for _, o := range own {
		if p, err := netip.ParsePrefix(o.String()); err != nil || p.Addr().Unmap() == at.Addr().Unmap() {
			return fmt.Errorf("%w: %v: this machine's own", ErrClosed, at)
		}
	}
	return nil
}
