package port

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

const (
	// oobSize is the room for the kernel's data beside a datagram; it is the size that quic-go reads.
	oobSize = 128
	// trains are read at once where the kernel makes them, singles where it does not.
	trainsAtOnce  = 16
	singlesAtOnce = 64
)

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

// receiver reads a socket for all its users.
type receiver struct {
	s     *Socket
	bufs  []*packet.Buffer
	hdrs  []mmsghdr
	iovs  []unix.Iovec
	names []unix.RawSockaddrAny
	oobs  [][oobSize]byte
	size  int // of a buffer

	got  int // set by read
	err  error
	read func(fd uintptr) bool

	lastAddr netip.AddrPort // the address that last was written as a UDPAddr, which is then shared
	lastUDP  *net.UDPAddr
	zones    map[uint32]string
}

func newReceiver(s *Socket, gro bool) *receiver {
	n, size := singlesAtOnce, packet.Small
	if gro {
		n, size = trainsAtOnce, packet.Large
	}
	r := &receiver{s: s, size: size, bufs: make([]*packet.Buffer, n), hdrs: make([]mmsghdr, n),
		iovs:  make([]unix.Iovec, n),
		names: make([]unix.RawSockaddrAny, n), oobs: make([][oobSize]byte, n), zones: make(map[uint32]string)}
	r.read = func(fd uintptr) bool {
		for {
			var got uintptr
			var errno unix.Errno
			if s.plain.Load() {
				var n uintptr
				if n, _, errno = unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.hdrs[0].hdr)),
					unix.MSG_DONTWAIT); errno == 0 {
					got, r.hdrs[0].n = 1, uint32(n)
				}
			} else {
				got, _,
					errno = unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&r.hdrs[0])),
					uintptr(len(r.hdrs)), unix.MSG_DONTWAIT, 0, 0)
			}
			if errno != 0 && !s.plain.Load() && refused(errno) {
				s.plain.Store(true)
				continue
			}
			switch errno {
			case 0:
				r.got, r.err = int(got), nil
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false
			default:
				r.got, r.err = 0, errno
			}
			return true
		}
	}
	return r
}

// run reads until the socket is closed.
func (r *receiver) run() {
	defer func() {
		for _, b := range r.bufs {
			if b != nil {
				b.Release()
			}
		}
	}()
	for {
		for i := range r.hdrs {
			if r.bufs[i] == nil {
				r.bufs[i] = packet.New(r.size)
			}
			r.iovs[i].Base = &r.bufs[i].B[0]
			r.iovs[i].SetLen(len(r.bufs[i].B))
			h := &r.hdrs[i].hdr
			*h = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&r.names[i])), Namelen: unix.SizeofSockaddrAny,
				Iov: &r.iovs[i], Control: &r.oobs[i][0]}
			h.SetIovlen(1)
			h.SetControllen(oobSize)
		}
		if err := r.s.raw.Read(r.read); err != nil {
			return
		}
		if r.err != nil {
			if errno, ok := r.err.(syscall.Errno); ok && (errno == unix.EBADF || errno == unix.ENOTSOCK) {
				return
			}
			continue // of one datagram, such as an ICMP error
		}
		for i := range r.got {
			r.take(i)
		}
	}
}

// take sorts the datagrams of message i.
func (r *receiver) take(i int) {
	h := &r.hdrs[i]
	n := int(h.n)
	from := r.address(&r.names[i])
	if n == 0 || n > r.size || !from.IsValid() || h.hdr.Flags&unix.MSG_TRUNC != 0 {
		return
	}
	oob := r.oobs[i][:min(int(h.hdr.Controllen), oobSize)]
	seg := n
	if size := trainOf(oob); size > 0 {
		seg = min(size, n)
	}
	b := r.bufs[i]
	if n <= packet.Small && r.size > packet.Small {
		b = packet.New(n)
		copy(b.B, r.bufs[i].B[:n])
	} else {
		r.bufs[i] = nil
	}
	r.s.sort(packet.Train{Buf: b, Data: b.B[:n:n], Seg: seg}, from, oob, r.udp)
	b.Release()
}

// udp is an address as package net writes it.
func (r *receiver) udp(a netip.AddrPort) *net.UDPAddr {
	if a != r.lastAddr || r.lastUDP == nil {
		r.lastAddr, r.lastUDP = a, &net.UDPAddr{IP: a.Addr().AsSlice(), Port: int(a.Port()), Zone: a.Addr().Zone()}
	}
	return r.lastUDP
}

func (r *receiver) address(name *unix.RawSockaddrAny) netip.AddrPort {
	switch name.Addr.Family {
	case unix.AF_INET:
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), ntohs(a.Port))
	case unix.AF_INET6:
		a := (*unix.RawSockaddrInet6)(unsafe.Pointer(name))
		ip := netip.AddrFrom16(a.Addr)
		if a.Scope_id != 0 {
			ip = ip.WithZone(r.zone(a.Scope_id))
		}
		return netip.AddrPortFrom(ip, ntohs(a.Port))
	}
	return netip.AddrPort{}
}

// zone is the name of an interface.
func (r *receiver) zone(index uint32) string {
	if name, ok := r.zones[index]; ok {
		return name
	}
	name := strconv.Itoa(int(index))
	if i, err := net.InterfaceByIndex(int(index)); err == nil {
		name = i.Name
	}
	if len(r.zones) > 64 {
		clear(r.zones)
	}
	r.zones[index] = name
	return name
}

// ntohs reads a port as the kernel writes it; it is its own inverse.
func ntohs(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}

// trainOf is the length of the datagrams that the kernel put together, 0 when it did not.
func trainOf(oob []byte) int {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		if h.Level == unix.SOL_UDP && h.Type == unix.UDP_GRO && len(data) >= 2 {
			return int(binary.NativeEndian.Uint16(data))
		}
		oob = rest
	}
	return 0
}
