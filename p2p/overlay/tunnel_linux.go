package overlay

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/tun"
)

// openTunnel takes a TUN over, whichever namespace it is of; f is closed in any case.
func openTunnel(f *os.File) (*tunnel, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	ifr, err := unix.NewIfreq("")
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: no TUN: %w", ErrConfig, err), unix.Close(fd))
	}
	const want, not = unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR, unix.IFF_TAP
	if flags := ifr.Uint16(); flags&want != want || flags&not != 0 {
		return nil, errors.Join(fmt.Errorf("%w: the TUN was not made with IFF_TUN, IFF_NO_PI and IFF_VNET_HDR",
			ErrConfig), unix.Close(fd))
	}
	native, _, err := tun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &tunnel{native: native, file: native.File(), errors: rate.NewLimiter(errorRate, errorBurst)}, nil
}
