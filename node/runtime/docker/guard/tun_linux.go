package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/node/runtime"
)

// tunPath is the device that makes others.
const tunPath = "/dev/net/tun"

// makeTUN makes the execution's interface, gives it address and MTU, and sends everything out through it. The file is
// nonblocking, as is every copy of it.
func makeTUN(r NetRequest) (*os.File, error) {
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("opening %s: %w: this machine lets only some users open it: chmod 0666 %s",
			tunPath, err, tunPath)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", tunPath, err)
	}
	// The file is not handed to Go's poller before it is a device: until then it cannot be waited for.
	ifr, err := unix.NewIfreq(runtime.OverlayDevice)
	if err == nil {
		ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err == nil {
		err = configure(r.Address, r.Bits, r.MTU)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("making %s: %w", runtime.OverlayDevice, err)
	}
	return os.NewFile(uintptr(fd), runtime.OverlayDevice), nil
}

// configure sets address and MTU, brings the interface up and makes it the way to everywhere.
func configure(addr netip.Addr, bits, mtu int) error {
	return withSocket(func(s int) error {
		if err := setMTU(s, mtu); err != nil {
			return err
		}
		ip := addr.As4()
		var mask [4]byte
		binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-bits))
		for _, set := range []struct {
			what string
			op   uint
			to   [4]byte
		}{{"address", unix.SIOCSIFADDR, ip}, {"netmask", unix.SIOCSIFNETMASK, mask}} {
			ifr, err := unix.NewIfreq(runtime.OverlayDevice)
			if err == nil {
				err = ifr.SetInet4Addr(set.to[:])
			}
			if err == nil {
				err = unix.IoctlIfreq(s, set.op, ifr)
			}
			if err != nil {
				return fmt.Errorf("setting its %s: %w", set.what, err)
			}
		}
		ifr, err := unix.NewIfreq(runtime.OverlayDevice)
		if err == nil {
			ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
			err = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, ifr)
		}
		if err != nil {
			return fmt.Errorf("bringing the device up: %w", err)
		}
		return defaultRoute(s, gateway(addr, bits))
	})
}

// changeMTU sets it on the device that is there.
func changeMTU(mtu int) error { return withSocket(func(s int) error { return setMTU(s, mtu) }) }

func setMTU(s, mtu int) error {
	ifr, err := unix.NewIfreq(runtime.OverlayDevice)
	if err == nil {
		ifr.SetUint32(uint32(mtu))
		err = unix.IoctlIfreq(s, unix.SIOCSIFMTU, ifr)
	}
	if err != nil {
		return fmt.Errorf("setting its MTU to %d: %w", mtu, err)
	}
	return nil
}

// rtentry is struct rtentry of linux/route.h.
type rtentry struct {
	_                  uintptr
	dst, gateway, mask unix.RawSockaddrInet4
	flags              uint16
	_                  int16
	_                  uintptr
	_                  unsafe.Pointer
	metric             int16
	dev                *byte
	mtu, window        uintptr
	irtt               uint16
}

// gateway returns the first address of the prefix that is not the device's own. No host needs it: a TUN device resolves
// no addresses. gVisor accepts no default route without a gateway.
func gateway(own netip.Addr, bits int) netip.Addr {
	first := netip.PrefixFrom(own, bits).Masked().Addr().Next()
	if first == own {
		return first.Next()
	}
	return first
}

func defaultRoute(s int, via netip.Addr) error {
	dev, err := unix.BytePtrFromString(runtime.OverlayDevice)
	if err != nil {
		return err
	}
	r := rtentry{flags: unix.RTF_UP | unix.RTF_GATEWAY, dev: dev}
	r.dst.Family, r.mask.Family = unix.AF_INET, unix.AF_INET
	r.gateway.Family, r.gateway.Addr = unix.AF_INET, via.As4()
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCADDRT, uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return fmt.Errorf("setting the default route: %w", errno)
	}
	return nil
}

// withSocket runs f with a socket of this network, as changes of interfaces need one.
func withSocket(f func(s int) error) error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	return f(s)
}
