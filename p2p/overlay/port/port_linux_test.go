package port

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/starling-network/starling/p2p/overlay/packet"
)

// host is a handler: datagrams are QUIC's if one of the two highest bits of their first byte is set.
type host struct {
	mu     sync.Mutex
	ours   [][]byte
	from   netip.AddrPort // of the last of ours
	at     Port           // which they came to
	overs  int
	closes int
	came   chan struct{} // 1: some of ours have
}

func newHost() *host { return &host{came: make(chan struct{}, 1)} }

func isQUIC(b []byte) bool { return b[0]&0xc0 != 0 }

func (h *host) Take(t packet.Train, from netip.AddrPort, at Port) (taken, rest packet.Train, quic bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken = t
	quic = isQUIC(t.Data)
	for len(t.Data) > 0 && isQUIC(t.Data) == quic {
		if b := t.Pop(); !quic {
			h.ours = append(h.ours, bytes.Clone(b))
			h.from, h.at = from, at
		}
	}
	taken.Data = taken.Data[:len(taken.Data)-len(t.Data)]
	if !quic {
		select {
		case h.came <- struct{}{}:
		default:
		}
	}
	return taken, t, quic
}

func (h *host) Lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.overs++
}

func (h *host) Closed(Port) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closes++
}

// wait returns n of our datagrams, once they have come.
func (h *host) wait(t rapid.TB, n int) [][]byte {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		h.mu.Lock()
		if len(h.ours) >= n {
			out := h.ours
			h.ours = nil
			h.mu.Unlock()
			return out
		}
		h.mu.Unlock()
		select {
		case <-h.came:
		case <-late:
			t.Fatalf("%d of %d datagrams have come", len(h.ours), n)
		}
	}
}

func open(t rapid.TB, plain bool, h Handler) *Socket {
	t.Helper()
	c, p, err := Listen("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, plain, h)
	if err != nil {
		t.Fatal(err)
	}
	s := c.(*Socket)
	if p != Port(s) || !s.Local().IsValid() || s.String() != "udp "+s.Local().String() {
		t.Fatalf("port %v at %v", s, s.Local())
	}
	if c, ok := t.(interface{ Cleanup(func()) }); ok { // rapid's checks close it themselves
		c.Cleanup(func() { s.Close() })
	}
	return s
}

// read reads n datagrams of QUIC, a few at a time.
func read(t rapid.TB, s *Socket, n int) (out [][]byte) {
	t.Helper()
	if err := s.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	ms := make([]ipv4.Message, 7)
	for i := range ms {
		ms[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 2000)}, OOB: make([]byte, 128)}
	}
	for len(out) < n {
		got, err := s.ReadBatch(ms, 0)
		if err != nil {
			t.Fatalf("after %d of %d datagrams: %v", len(out), n, err)
		}
		for _, m := range ms[:got] {
			out = append(out, bytes.Clone(m.Buffers[0][:m.N]))
			if a, ok := m.Addr.(*net.UDPAddr); !ok || !a.IP.IsLoopback() || a.Port == 0 {
				t.Fatalf("a datagram from %v", m.Addr)
			}
		}
	}
	return out
}

// TestEveryDatagramComesOnceInOrder whatever is sent in one call, with the kernel's offloads and without, before the
// port is shared and from then on.
func TestEveryDatagramComesOnceInOrder(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprint("plain=", plain), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				h := newHost()
				from, to := open(t, plain, newHost()), open(t, plain, h)
				for round := range 3 {
					if round == 1 {
						to.Share()
					}
					var packets, quic, ours [][]byte
					size := rapid.IntRange(1, 1400).Draw(t, "size")
					for i := range rapid.IntRange(1, 40).Draw(t, "datagrams") {
						if rapid.IntRange(0, 5).Draw(t, "another size") == 0 {
							size = rapid.IntRange(1, 1400).Draw(t, "size")
						}
						b := bytes.Repeat([]byte{byte(i)}, size)
						b[0] = rapid.SampledFrom([]byte{0x01, 0x3f, 0x40, 0xff}).Draw(t, "first byte")
						packets = append(packets, b)
						if isQUIC(b) || round == 0 {
							quic = append(quic, b)
						} else {
							ours = append(ours, b)
						}
					}
					if err := from.Send(packets, to.Local()); err != nil {
						t.Fatal(err)
					}
					for who, c := range map[string]struct{ got, want [][]byte }{
						"QUIC": {read(t, to, len(quic)), quic}, "the overlay": {h.wait(t, len(ours)), ours},
					} {
						if len(c.got) != len(c.want) {
							t.Fatalf("%s got %d datagrams, want %d", who, len(c.got), len(c.want))
						}
						for i := range c.got {
							if !bytes.Equal(c.got[i], c.want[i]) {
								t.Fatalf("%s: datagram %d of %d bytes is another one of %d", who, i, len(c.want[i]), len(c.got[i]))
							}
						}
					}
					if len(ours) > 0 && (h.from != from.Local() || h.at != Port(to)) {
						t.Fatalf("from %v at %v", h.from, h.at)
					}
				}
				from.Close()
				to.Close()
			})
		})
	}
}

// Nothing is sent for empty datagrams, and more than one call takes.
func TestSendManyAndEmpty(t *testing.T) {
	t.Parallel()
	h := newHost()
	from, to := open(t, false, newHost()), open(t, false, h)
	to.Share()
	var packets [][]byte
	for i := range 3 * sendAtOnce {
		packets = append(packets, []byte{1, byte(i)}, nil)
	}
	for len(packets) > 0 { // as many as a socket's buffer takes
		n := min(len(packets), 100)
		if err := from.Send(packets[:n], to.Local()); err != nil {
			t.Fatal(err)
		}
		if got := h.wait(t, n/2); len(got) != n/2 {
			t.Fatalf("%d datagrams, want %d", len(got), n/2)
		}
		packets = packets[n:]
	}
	if err := from.Send([][]byte{make([]byte, 1<<16)}, to.Local()); err == nil {
		t.Error("a datagram of 64 KiB was sent")
	}
}

// An alias is the port that the handler knows.
func TestAlias(t *testing.T) {
	t.Parallel()
	h := newHost()
	from, to := open(t, false, newHost()), open(t, false, h)
	other := &struct{ Port }{to}
	to.Alias(other)
	to.Share()
	if err := from.Send([][]byte{{1}}, to.Local()); err != nil {
		t.Fatal(err)
	}
	if h.wait(t, 1); h.at != Port(other) {
		t.Errorf("at %v", h.at)
	}
}

// A reader that waits when the port is shared goes on, and has what comes then.
func TestShareWhileReading(t *testing.T) {
	t.Parallel()
	from, to := open(t, false, newHost()), open(t, false, newHost())
	type result struct {
		b   []byte
		err error
	}
	got := make(chan result)
	go func() {
		b := make([]byte, 100)
		n, a, err := to.ReadFrom(b)
		if err == nil && a.String() != from.Local().String() {
			err = fmt.Errorf("from %v", a)
		}
		got <- result{b[:n], err}
	}()
	to.Share()
	to.Share()
	if err := from.Send([][]byte{{0x40, 7}}, to.Local()); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.err != nil || !bytes.Equal(r.b, []byte{0x40, 7}) {
		t.Errorf("%x, %v", r.b, r.err)
	}
}

// Deadlines bound reads of a port of QUIC's alone and of a shared one; one that is moved counts no more.
func TestReadDeadline(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		from, to := open(t, false, newHost()), open(t, false, newHost())
		if shared {
			to.Share()
		}
		set := func(at time.Time) {
			t.Helper()
			if err := to.SetDeadline(at); err != nil {
				t.Fatal(err)
			}
		}
		set(time.Now().Add(time.Hour))
		set(time.Now().Add(time.Millisecond))
		if _, _, err := to.ReadFrom(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("shared: %v: %v", shared, err)
		}
		set(time.Unix(1, 0))
		if _, _, err := to.ReadFrom(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("shared: %v: %v", shared, err)
		}
		set(time.Time{})
		if err := from.Send([][]byte{{0x80}}, to.Local()); err != nil {
			t.Fatal(err)
		}
		if n, _, err := to.ReadFrom(make([]byte, 10)); n != 1 || err != nil {
			t.Errorf("shared: %v: %d bytes, %v", shared, n, err)
		}
	}
}

// Closing ends reads that wait, and the handler hears of it once.
func TestClose(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		h := newHost()
		s := open(t, false, h)
		if shared {
			s.Share()
		}
		ended := make(chan error)
		go func() {
			_, _, err := s.ReadFrom(make([]byte, 10))
			ended <- err
		}()
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("shared: %v: %v", shared, err)
		}
		if s.Share(); h.closes != 1 {
			t.Errorf("shared: %v: closed %d times", shared, h.closes)
		}
	}
}

// TestAttackSlowQUIC: of more datagrams than QUIC reads a part waits, and the rest is counted and holds no memory.
func TestAttackSlowQUIC(t *testing.T) {
	t.Parallel()
	h := newHost()
	s := &Socket{h: h, quic: make(chan quicTrain, quicQueue)}
	b := packet.New(packet.Small)
	for range quicQueue + 100 {
		s.sort(packet.Train{Buf: b, Data: []byte{0x40, 1, 0x40, 2}, Seg: 2}, netip.AddrPort{}, nil, net.UDPAddrFromAddrPort)
	}
	if h.overs != 100 || b.Held() != 1+quicQueue {
		t.Errorf("%d trains are lost, and %d hold the buffer", h.overs, b.Held())
	}
	for range quicQueue {
		q := <-s.quic
		q.Buf.Release()
	}
	if b.Held() != 1 {
		t.Errorf("%d hold the buffer", b.Held())
	}
}

func TestFits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		six  bool
		addr string
		want bool
	}{
		{false, "8.8.8.8", true}, {false, "::1", false}, {true, "8.8.8.8", false}, {true, "2600::1", true}, {true, "fe80::1%eth0", false},
	} {
		if got := (&Socket{six: c.six}).Fits(netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("IPv6 %v: %s: %v", c.six, c.addr, got)
		}
	}
}

// TestAddresses: an address is read as it was written for the kernel.
func TestAddresses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &Socket{six: rapid.Bool().Draw(t, "IPv6")}
		n := 4
		if s.six {
			n = 16
		}
		ip, _ := netip.AddrFromSlice(rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "address"))
		want := netip.AddrPortFrom(ip, rapid.Uint16().Draw(t, "port"))
		var name unix.RawSockaddrAny
		s.put((*unix.RawSockaddrInet6)(unsafe.Pointer(&name)), want)
		r := newReceiver(s, false)
		if got := r.address(&name); got != want {
			t.Fatalf("%v came back as %v", want, got)
		}
		if u := r.udp(want); u.AddrPort() != want || r.udp(want) != u {
			t.Fatalf("%v as %v", want, u)
		}
	})
}

func FuzzTrainOf(f *testing.F) {
	oob := make([]byte, unix.CmsgSpace(4))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[0]))
	h.Level, h.Type = unix.SOL_UDP, unix.UDP_GRO
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(oob[unix.CmsgLen(0):], 1452)
	if got := trainOf(oob); got != 1452 {
		f.Fatalf("trains of %d", got)
	}
	f.Add(oob)
	f.Add(oob[:len(oob)-5])
	f.Add(make([]byte, oobSize))
	f.Fuzz(func(t *testing.T, oob []byte) {
		if n := trainOf(oob); n < 0 || n > 1<<16 {
			t.Fatalf("trains of %d", n)
		}
	})
}

// sink is a handler that drops everything.
type sink struct{}

func (sink) Take(t packet.Train, _ netip.AddrPort, _ Port) (taken, rest packet.Train, quic bool) {
	return t, packet.Train{}, false
}
func (sink) Lost()       {}
func (sink) Closed(Port) {}

// BenchmarkSend sends trains of 64 datagrams to a port that sorts them.
func BenchmarkSend(b *testing.B) {
	from, to := open(b, false, sink{}), open(b, false, sink{})
	to.Share()
	train := make([][]byte, 64)
	for i := range train {
		train[i] = make([]byte, 1000)
	}
	b.SetBytes(64 * 1000)
	b.ReportAllocs()
	for b.Loop() {
		if err := from.Send(train, to.Local()); err != nil {
			b.Fatal(err)
		}
	}
}
