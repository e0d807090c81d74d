package tun

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	wgtun "golang.zx2c4.com/wireguard/tun"
)

// Open takes a TUN over; f is closed in any case.
func Open(f *os.File) (*TUN, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	ifr, err := unix.NewIfreq("")
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNotTUN, err), unix.Close(fd))
	}
	const want, not = unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR, unix.IFF_TAP
	if flags := ifr.Uint16(); flags&want != want || flags&not != 0 {
		return nil, errors.Join(fmt.Errorf("%w: not made with IFF_TUN, IFF_NO_PI and IFF_VNET_HDR: flags %#x",
			ErrNotTUN, flags), unix.Close(fd))
	}
	native, _, err := wgtun.CreateUnmonitoredTUNFromFD(fd)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &TUN{Native: native, File: native.File()}, nil
}
