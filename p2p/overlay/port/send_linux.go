package port

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxTrain is how many datagrams the kernel takes in one call with UDP_SEGMENT.
	maxTrain = 64
	// maxTrainBytes leaves room for the headers.
	maxTrainBytes = 65000
	sendAtOnce    = 128
)

// sender is the memory of one sending call.
type sender struct {
	one  bool // one message a call
	hdrs [sendAtOnce]mmsghdr
	iovs [sendAtOnce]unix.Iovec
	oobs [sendAtOnce][24]byte
	name unix.RawSockaddrInet6 // large enough for both
	n    int                   // messages
	done int                   // of them sent
	err  error
	send func(fd uintptr) bool
}

var senders = sync.Pool{New: func() any {
	s := &sender{}
	s.send = func(fd uintptr) bool {
		for s.done < s.n {
			var n uintptr
			var errno unix.Errno
			if s.one {
				if _, _, errno = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&s.hdrs[s.done].hdr)),
					unix.MSG_DONTWAIT); errno == 0 {
					n = 1
				}
			} else {
				n, _,
					errno = unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&s.hdrs[s.done])),
					uintptr(s.n-s.done), unix.MSG_DONTWAIT, 0, 0)
			}
			switch errno {
			case 0:
				s.done += int(n)
			case unix.EINTR:
			case unix.EAGAIN:
				return false
			default:
				s.err = errno
				return true
			}
		}
		return true
	}
	return s
}}

// Send sends datagrams to one address, trains in one call where the kernel can cut them. It waits for room in the
// socket.
func (s *Socket) Send(packets [][]byte, to netip.AddrPort) error {
	for len(packets) > 0 {
		n := min(len(packets), sendAtOnce)
		gso := s.gso.Load() && !s.plain.Load()
		sent, err := s.sendSome(packets[:n], to, gso)
		if !s.plain.Load() && refused(err) { // by a sandbox, or by a firewall, which then refuses it again
			s.plain.Store(true)
			packets = packets[sent:]
			continue
		}
		if err == unix.EIO && gso {
			// The link cannot compute checksums, without which the kernel does not cut trains.
			s.gso.Store(false)
			packets = packets[sent:]
			continue
		}
		if err != nil {
			return fmt.Errorf("sending to %s: %w", to, err)
		}
		packets = packets[n:]
	}
	return nil
}

// sendSome returns the number of datagrams that were sent.
func (s *Socket) sendSome(packets [][]byte, to netip.AddrPort, gso bool) (int, error) {
	w := senders.Get().(*sender)
	defer func() {
		clear(w.iovs[:len(packets)]) // retain no packet's memory
		senders.Put(w)
	}()
	namelen := s.put(&w.name, to)
	w.n, w.done, w.err, w.one = 0, 0, nil, s.plain.Load()
	var counts [sendAtOnce]int
	for i := 0; i < len(packets); {
		first, total, count := len(packets[i]), 0, 0
		for i+count < len(packets) && count < maxTrain {
			p := packets[i+count]
			if len(p) == 0 || count > 0 && (!gso || len(p) > first || total+len(p) > maxTrainBytes) {
				break
			}
			w.iovs[i+count].Base = &p[0]
			w.iovs[i+count].SetLen(len(p))
			total += len(p)
			count++
			if len(p) < first {
				break // only the last may be shorter
			}
		}
		if count == 0 {
			i++ // nothing in it
			continue
		}
		h := &w.hdrs[w.n].hdr
		*h = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&w.name)), Namelen: namelen, Iov: &w.iovs[i]}
		h.SetIovlen(count)
		if count > 1 {
			oob := w.oobs[w.n][:unix.CmsgSpace(2)]
			c := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
			c.Level, c.Type = unix.SOL_UDP, unix.UDP_SEGMENT
			c.SetLen(unix.CmsgLen(2))
			binary.NativeEndian.PutUint16(oob[unix.CmsgLen(0):], uint16(first))
			h.Control = &oob[0]
			h.SetControllen(len(oob))
		}
		counts[w.n] = count
		w.n++
		i += count
	}
	if w.n == 0 {
		return len(packets), nil
	}
	err := s.raw.Write(w.send)
	if err == nil {
		err = w.err
	}
	sent := 0
	for _, c := range counts[:w.done] {
		sent += c
	}
	return sent, err
}

// put writes an address in the form that the kernel requires on this socket.
func (s *Socket) put(name *unix.RawSockaddrInet6, to netip.AddrPort) uint32 {
	if s.six {
		*name = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: ntohs(to.Port()), Addr: to.Addr().As16()}
		return unix.SizeofSockaddrInet6
	}
	*name = unix.RawSockaddrInet6{}
	four := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
	*four = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: ntohs(to.Port()), Addr: to.Addr().As4()}
	return unix.SizeofSockaddrInet4
}

// Fits reports whether the socket can send to an address.
func (s *Socket) Fits(a netip.Addr) bool { return a.Is4() != s.six && a.Zone() == "" }

// refused reports whether a system call is not there, or not allowed.
func refused(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }
