package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

// quicQueue is the number of trains that wait for QUIC; further ones are dropped, as by the kernel when its buffer is
// full.
const quicQueue = 1024

// Socket is a UDP port that QUIC and the overlay share. Before the first overlay is joined, QUIC reads it directly, as
// a plain socket. After that, one goroutine reads trains of datagrams and sorts them. QUIC always writes directly, with
// its own offloads.
type Socket struct {
	*net.UDPConn
	h   Handler
	as  Port // itself, as passed to the handler
	raw syscall.RawConn
	six bool        // an IPv6 socket, which takes nothing else
	gso atomic.Bool // one call may send a train

	// plain is set where the port is to be used, or can only be, without the kernel's offloads and with one message a
	// call.
	plain atomic.Bool

	shared atomic.Bool
	alone  sync.Mutex // held by QUIC while it reads the port itself
	batch  *ipv4.PacketConn
	quic   chan quicTrain
	rest   quicTrain // rest of a train that QUIC had no room for; its reader's alone
	until  deadline
	ended  chan struct{} // closed with the reader
	start  sync.Once
	shut   sync.Once
	err    error
}

// quicTrain are datagrams of QUIC from one address.
type quicTrain struct {
	packet.Train
	from *net.UDPAddr
	oob  []byte // the kernel's data beside them: ECN, the address they were sent to
}

// Listen opens a port for QUIC. Without offloads if plain is set. The port is nil on systems where it is QUIC's alone.
func Listen(network string, laddr *net.UDPAddr, plain bool, h Handler) (net.PacketConn, Port, error) {
	c, err := net.ListenUDP(network, laddr)
	if err != nil {
		return nil, nil, err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	s := &Socket{UDPConn: c, h: h, raw: raw, six: network == "udp6", batch: ipv4.NewPacketConn(c),
		ended: make(chan struct{})}
	s.as = s
	s.plain.Store(plain)
	s.until.init()
	err = raw.Control(func(fd uintptr) {
		_, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
		s.gso.Store(err == nil)
	})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return s, s, nil
}

// Share begins to sort datagrams.
func (s *Socket) Share() {
	s.start.Do(func() {
		s.quic = make(chan quicTrain, quicQueue)
		s.shared.Store(true)
		_ = s.UDPConn.SetReadDeadline(time.Unix(1, 0)) // QUIC's read ends
		s.alone.Lock()
		defer s.alone.Unlock()
		_ = s.UDPConn.SetReadDeadline(time.Time{})
		gro := false
		_ = s.raw.Control(func(fd uintptr) {
			if s.plain.Load() {
				return
			}
			// Kernels before 5.12 cannot report whether it is on, and have bugs in it.
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1)
			on, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO)
			if gro = err == nil && on == 1; !gro {
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 0)
			}
		})
		r := newReceiver(s, gro)
		go func() {
			defer close(s.ended)
			r.run()
		}()
	})
}

// sort passes the datagrams of a train to their recipients, runs of them in one go. It never waits: a recipient without
// room loses them. The caller holds the train's buffer.
func (s *Socket) sort(t packet.Train, from netip.AddrPort, oob []byte, udp func(netip.AddrPort) *net.UDPAddr) {
	for len(t.Data) > 0 {
		run, rest, quic := s.h.Take(t, from, s.as)
		t = rest
		if !quic {
			continue
		}
		run.Buf.Hold()
		select {
		case s.quic <- quicTrain{Train: run, from: udp(from), oob: slices.Clone(oob)}:
		default:
			run.Buf.Release()
			s.h.Lost()
		}
	}
}

// Alias makes the handler see another port in place of this one. The other port sends through it.
func (s *Socket) Alias(as Port) { s.as = as }

// Close closes the port and waits for its reader.
func (s *Socket) Close() error {
	s.shut.Do(func() {
		s.h.Closed(s)
		s.err = s.UDPConn.Close()
		s.start.Do(func() { close(s.ended) }) // it was never shared
		<-s.ended
	})
	return s.err
}

// SetReadDeadline bounds QUIC's reads.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.until.set(t)
	if !s.shared.Load() {
		return s.UDPConn.SetReadDeadline(t)
	}
	return nil
}

// SetDeadline bounds QUIC's reads and all writes.
func (s *Socket) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// ReadBatch reads datagrams of QUIC. It has the meaning of [ipv4.PacketConn.ReadBatch], and is called by one goroutine.
func (s *Socket) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	if !s.shared.Load() {
		s.alone.Lock()
		n, err := s.readPlain(ms, flags)
		s.alone.Unlock()
		if err == nil || !s.shared.Load() {
			return n, err
		}
	}
	if len(s.rest.Data) == 0 {
		select {
		case s.rest = <-s.quic:
		default:
			select {
			case s.rest = <-s.quic:
			case <-s.until.wait():
				return 0, &net.OpError{Op: "read", Net: "udp", Source: s.LocalAddr(), Err: os.ErrDeadlineExceeded}
			case <-s.ended:
				return 0, &net.OpError{Op: "read", Net: "udp", Source: s.LocalAddr(), Err: net.ErrClosed}
			}
		}
	}
	n := 0
	for n < len(ms) {
		m := &ms[n]
		m.N = copy(m.Buffers[0], s.rest.Pop())
		m.NN, m.Addr, m.Flags = copy(m.OOB, s.rest.oob), s.rest.from, 0
		n++
		if len(s.rest.Data) > 0 {
			continue
		}
		s.rest.Buf.Release()
		s.rest = quicTrain{}
		if n == len(ms) {
			break
		}
		select {
		case s.rest = <-s.quic:
		default:
			return n, nil
		}
	}
	return n, nil
}

// readPlain reads the port itself.
func (s *Socket) readPlain(ms []ipv4.Message, flags int) (int, error) {
	if !s.plain.Load() {
		n, err := s.batch.ReadBatch(ms, flags)
		if err == nil || !refused(err) {
			return n, err
		}
		s.plain.Store(true)
	}
	m := &ms[0]
	var err error
	m.N, m.NN, m.Flags, m.Addr, err = s.UDPConn.ReadMsgUDP(m.Buffers[0], m.OOB)
	if err != nil {
		return 0, err
	}
	return 1, nil
}

// ReadMsgUDP reads one datagram of QUIC.
func (s *Socket) ReadMsgUDP(b, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	m := []ipv4.Message{{Buffers: [][]byte{b}, OOB: oob}}
	if _, err := s.ReadBatch(m, 0); err != nil {
		return 0, 0, 0, nil, err
	}
	addr, _ = m[0].Addr.(*net.UDPAddr)
	return m[0].N, m[0].NN, m[0].Flags, addr, nil
}

// ReadFrom reads one datagram of QUIC.
func (s *Socket) ReadFrom(b []byte) (int, net.Addr, error) {
	n, _, _, addr, err := s.ReadMsgUDP(b, nil)
	if err != nil {
		return 0, nil, err
	}
	return n, addr, nil
}

// Local is where the port is open.
func (s *Socket) Local() netip.AddrPort {
	a, _ := s.LocalAddr().(*net.UDPAddr)
	return a.AddrPort()
}

// String is the port for logs.
func (s *Socket) String() string { return fmt.Sprintf("udp %s", s.Local()) }

// deadline is a moment that others may move.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	over  chan struct{} // closed when it has passed
}

func (d *deadline) init() { d.over = make(chan struct{}) }

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.over:
		d.over = make(chan struct{})
	default:
	}
	over := d.over
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		close(over)
	default:
		var timer *time.Timer
		timer = time.AfterFunc(left, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.timer == timer {
				close(over)
			}
		})
		d.timer = timer
	}
}
