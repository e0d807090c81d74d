package overlay_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/libp2p/go-libp2p/core/network"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// echo answers every connection with what it says.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// talk sends data from one namespace to another and back.
func talk(t *testing.T, from, to *space, size int) {
	t.Helper()
	l := to.listen(t, to.addr.String()+":0")
	go echo(l)
	c := from.dial(t, l.Addr().String())
	data := bytes.Repeat([]byte("overlay!"), size/8)
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes came back of %d, %v", len(got), len(data), err)
	}
}

func TestTwoNamespacesTalkOverTheSharedPort(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	hosts := p2ptest.Loopback(t, 2)
	connect(t, hosts[0], hosts[1])
	a, b := newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	da, db := join(t, hosts[0], a, 0), join(t, hosts[1], b, 1)
	setMembers(t, da, member(t, hosts[0], 0), member(t, hosts[1], 1))
	setMembers(t, db, member(t, hosts[0], 0), member(t, hosts[1], 1))
	talk(t, a, b, 4<<20)
	eventually(t, "a direct path with a large MTU", func() bool {
		m := da.Members()[0]
		return m.Path == overlay.PathDirect && m.MTU == overlay.MaxMTU && m.RTT > 0 && m.Rx > 4<<20 && !m.Handshake.IsZero()
	})
	talk(t, b, a, 1<<20)
	if dropped := hosts[0].Overlay().Stats().Dropped(); dropped["malformed"]+dropped["spoofed"]+dropped["too_big"] > 0 {
		t.Errorf("dropped: %v", dropped)
	}
}

// two are two hosts with a container each, members of one overlay.
type two struct {
	hosts  []*p2p.Host
	a, b   *space
	da, db *overlay.Device
}

func newTwo(t testing.TB, listen ...string) *two {
	t.Helper()
	needsNamespaces(t)
	w := &two{hosts: []*p2p.Host{
		p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Listen: listen}),
		p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(1), Listen: listen}),
	}}
	connect(t, w.hosts[0], w.hosts[1])
	w.a, w.b = newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	w.da, w.db = join(t, w.hosts[0], w.a, 0), join(t, w.hosts[1], w.b, 1)
	w.meet(t)
	return w
}

func (w *two) meet(t testing.TB) {
	t.Helper()
	for _, d := range []*overlay.Device{w.da, w.db} {
		setMembers(t, d, member(t, w.hosts[0], 0), member(t, w.hosts[1], 1))
	}
}

func (w *two) dropped() map[string]uint64 { return w.hosts[0].Overlay().Stats().Dropped() }

const tcpOnly = "/ip4/127.0.0.1/tcp/0"

func TestMembersWithTCPOnlyTalkOverAStream(t *testing.T) {
	t.Parallel()
	w := newTwo(t, tcpOnly)
	talk(t, w.a, w.b, 1<<20)
	eventually(t, "a relayed path", func() bool { return path(w.da) == overlay.PathRelayed && path(w.db) == overlay.PathRelayed })
	if m := w.da.Members()[0]; m.RTT <= 0 || m.MTU != overlay.MaxMTU {
		t.Errorf("state: %+v", m)
	}
}

func TestAConnectionOutlivesItsDirectPath(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	w := &two{hosts: p2ptest.Loopback(t, 2)}
	connect(t, w.hosts[0], w.hosts[1])
	wires := append(overlay.Rewire(w.hosts[0].Overlay()), overlay.Rewire(w.hosts[1].Overlay())...)
	w.a, w.b = newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	w.da, w.db = join(t, w.hosts[0], w.a, 0), join(t, w.hosts[1], w.b, 1)
	w.meet(t)
	both := func(want overlay.Path) func() bool {
		return func() bool { return path(w.da) == want && path(w.db) == want }
	}
	eventually(t, "a direct path", both(overlay.PathDirect))
	l := w.b.listen(t, "10.77.0.3:0")
	go echo(l)
	c := w.a.dial(t, l.Addr().String())
	call := func() {
		t.Helper()
		b := []byte("still here")
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatal(err)
		}
	}
	call()
	for _, wire := range wires {
		wire.Down.Store(true)
	}
	call() // what is sent meanwhile makes that known
	eventually(t, "the stream carries", both(overlay.PathRelayed))
	call()
	for _, wire := range wires {
		wire.Down.Store(false)
	}
	eventually(t, "a direct path again", both(overlay.PathDirect))
	call()
}

func TestAPathThatTakesLessIsFoundOut(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	w := &two{hosts: p2ptest.Loopback(t, 2)}
	connect(t, w.hosts[0], w.hosts[1])
	for _, wire := range append(overlay.Rewire(w.hosts[0].Overlay()), overlay.Rewire(w.hosts[1].Overlay())...) {
		wire.Most.Store(1392 + 20) // what a packet of 1380 needs is 1424
	}
	w.a, w.b = newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	w.da, w.db = join(t, w.hosts[0], w.a, 0), join(t, w.hosts[1], w.b, 1)
	w.meet(t)
	eventually(t, "an MTU of 1360", func() bool { return w.da.Members()[0].MTU == 1360 && w.db.Members()[0].MTU == 1360 })
	talk(t, w.a, w.b, 1<<20) // TCP is cut to fit, though the interface has 1420

	// The sender of a datagram that does not fit is told what does, and cuts the next.
	from, to := w.a.packet(t, "10.77.0.2:0"), w.b.packet(t, "10.77.0.3:0")
	came := make(chan int, 1)
	go func() {
		n, _, _ := to.ReadFrom(make([]byte, 2000))
		came <- n
	}()
	eventually(t, "one arrives", func() bool {
		if _, err := from.WriteTo(make([]byte, 1392), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		return len(came) == 1
	})
	if n := <-came; n != 1392 || w.dropped()["too_big"] == 0 {
		t.Errorf("%d bytes came, dropped %v", n, w.dropped())
	}
}

func TestTwoRanksOfOnePeerTalk(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0), Listen: []string{tcpOnly}})
	a, b := newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	da, db := join(t, h, a, 0), join(t, h, b, 1)
	for _, d := range []*overlay.Device{da, db} {
		setMembers(t, d, member(t, h, 0), member(t, h, 1))
	}
	talk(t, a, b, 1<<20)
	if got := path(da); got != overlay.PathDirect {
		t.Error("path:", got)
	}
}

// TestClustersOnOnePeerDoNotMix: the same two hosts are in two overlays with the same addresses.
func TestClustersOnOnePeerDoNotMix(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	hosts := p2ptest.Loopback(t, 2)
	connect(t, hosts[0], hosts[1])
	var ends [2][2]*space
	for c := range ends {
		var ds [2]*overlay.Device
		for i := range ends[c] {
			ends[c][i] = newSpace(t, fmt.Sprintf("10.77.0.%d", 2+i), 1280)
			ds[i] = join(t, hosts[i], ends[c][i], 10*c+i, func(cfg *overlay.Config) { cfg.MTU = 1280 })
		}
		for _, d := range ds {
			var list []overlay.Member
			for i := range 2 {
				m := member(t, hosts[i], i)
				m.Key = public(t, 10*c+i)
				list = append(list, m)
			}
			setMembers(t, d, list...)
		}
	}
	// Each says who it is, on the same address and port.
	for c, names := range []string{"first", "second"} {
		l := ends[c][1].listen(t, "10.77.0.3:7000")
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, names)
				conn.Close()
			}
		}()
	}
	var wg sync.WaitGroup
	for c, name := range []string{"first", "second"} {
		wg.Go(func() {
			for range 20 {
				got, err := io.ReadAll(ends[c][0].dial(t, "10.77.0.3:7000"))
				if err != nil || string(got) != name {
					t.Errorf("cluster %s reached %q, %v", name, got, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestARemovedMemberIsCutOff at once, and its address may go to another.
func TestARemovedMemberIsCutOff(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	talk(t, w.a, w.b, 1<<10)
	in := w.a.packet(t, "10.77.0.2:9000")
	out := w.b.packet(t, "10.77.0.3:0")
	say := func(c net.PacketConn, text string) {
		t.Helper()
		if _, err := c.WriteTo([]byte(text), in.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 100)
	say(out, "before")
	if n, _, err := in.ReadFrom(b); err != nil || string(b[:n]) != "before" {
		t.Fatal(string(b[:n]), err)
	}
	c := newSpace(t, "10.77.0.3", 1420)
	dc := join(t, w.hosts[1], c, 2)
	next := member(t, w.hosts[1], 1)
	next.Key = public(t, 2)
	setMembers(t, w.da, next) // the same address, another key
	setMembers(t, dc, member(t, w.hosts[0], 0))
	before := w.dropped()["stranger"]
	eventually(t, "the old one's packets are nobody's", func() bool {
		say(out, "after")
		return w.dropped()["stranger"] > before
	})
	say(c.packet(t, "10.77.0.3:0"), "next")
	if n, _, err := in.ReadFrom(b); err != nil || string(b[:n]) != "next" {
		t.Fatalf("%q came, %v", b[:n], err)
	}
	if _, err := w.hosts[0].Overlay().Join(overlay.Config{}); !errors.Is(err, overlay.ErrConfig) {
		t.Error("joined without a TUN: ", err)
	}
}

// TestNobodySpeaksUnderAnothersAddress: neither a container that gives itself one, nor a peer that says so.
func TestNobodySpeaksUnderAnothersAddress(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	talk(t, w.a, w.b, 1<<10)
	in := w.a.packet(t, "10.77.0.2:9000")

	w.b.ip(t, "addr add 10.77.0.9/16 dev ovl0")
	liar := w.b.packet(t, "10.77.0.9:0")
	theirs := func() map[string]uint64 { return w.hosts[1].Overlay().Stats().Dropped() }
	eventually(t, "its own peer drops it", func() bool {
		_, _ = liar.WriteTo([]byte("lie"), in.LocalAddr())
		return theirs()["spoofed"] > 0
	})

	// A peer that takes part in it: it has joined as 10.77.0.9, the list has it as 10.77.0.4.
	c := newSpace(t, "10.77.0.9", 1420)
	dc := join(t, w.hosts[1], c, 2)
	known := member(t, w.hosts[1], 2)
	setMembers(t, w.da, member(t, w.hosts[1], 1), known)
	setMembers(t, dc, member(t, w.hosts[0], 0))
	forger := c.packet(t, "10.77.0.9:0")
	rx := func() uint64 {
		for _, m := range w.da.Members() {
			if m.Key == known.Key {
				return m.Rx
			}
		}
		return 0
	}
	eventually(t, "many forged packets have come", func() bool {
		_, _ = forger.WriteTo(bytes.Repeat([]byte("lie"), 100), in.LocalAddr())
		return rx() > 4000
	})
	if w.dropped()["spoofed"] == 0 {
		t.Error("they were not counted: ", w.dropped())
	}
	honest := w.b.packet(t, "10.77.0.3:0")
	if _, err := honest.WriteTo([]byte("truth"), in.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1000)
	if n, from, err := in.ReadFrom(b); err != nil || string(b[:n]) != "truth" {
		t.Fatalf("%q from %v, %v", b[:n], from, err)
	}
}

// TestStrangersAreDropped: datagrams of all kinds from somebody who is in no overlay, and a member's own again.
func TestStrangersAreDropped(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	talk(t, w.a, w.b, 1<<10)
	var port netip.AddrPort
	for _, a := range w.hosts[0].Network().ListenAddresses() {
		if to, ok := overlay.UDPOf(a); ok {
			port = to
		}
	}
	c, err := net.Dial("udp4", port.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	// One who knows the device's public key, but whose own is in no list.
	fakes := overlay.Initiation(t, public(t, 0), key(77))
	rng := rand.New(rand.NewPCG(1, 2))
	send := func() {
		for _, kind := range []byte{0, 1, 2, 3, 4, 5, 6, 63} {
			for _, size := range []int{1, 4, 31, 32, 63, 64, 92, 148, 1452} {
				b := make([]byte, size)
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
				copy(b, []byte{kind, 0, 0, 0})
				_, _ = c.Write(b)
			}
		}
		_, _ = c.Write(fakes)
		_, _ = c.Write(fakes[:100])
	}
	eventually(t, "all are counted", func() bool {
		send()
		d := w.dropped()
		return d["stranger"] > 100 && d["unknown_key"] > 0
	})
	talk(t, w.a, w.b, 1<<20)
	if got := path(w.da); got != overlay.PathDirect {
		t.Error("path:", got)
	}
}

func TestReplayedDatagramsDoNothing(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	w := &two{hosts: p2ptest.Loopback(t, 2)}
	connect(t, w.hosts[0], w.hosts[1])
	wire := overlay.Rewire(w.hosts[1].Overlay())[0]
	record := wire.Record()
	w.a, w.b = newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	w.da, w.db = join(t, w.hosts[0], w.a, 0), join(t, w.hosts[1], w.b, 1)
	w.meet(t)
	eventually(t, "a direct path", func() bool { return path(w.da) == overlay.PathDirect && path(w.db) == overlay.PathDirect })
	in, out := w.a.packet(t, "10.77.0.2:9000"), w.b.packet(t, "10.77.0.3:0")
	b := make([]byte, 100)
	for i := range 20 {
		if _, err := fmt.Fprintf(writerTo{out, in.LocalAddr()}, "%d", i); err != nil {
			t.Fatal(err)
		}
		if n, _, err := in.ReadFrom(b); err != nil || string(b[:n]) != fmt.Sprint(i) {
			t.Fatalf("%q, %v", b[:n], err)
		}
	}
	// Everything that b sent comes again, from another port: nothing may arrive twice, and the path stays.
	rx := w.da.Members()[0].Rx
	for _, a := range w.hosts[0].Network().ListenAddresses() {
		if to, ok := overlay.UDPOf(a); ok {
			c, err := net.Dial("udp4", to.String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, p := range record() {
				_, _ = c.Write(p)
			}
		}
	}
	if _, err := out.WriteTo([]byte("last"), in.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if n, _, err := in.ReadFrom(b); err != nil || string(b[:n]) != "last" {
		t.Fatalf("%q came again, %v", b[:n], err)
	}
	if m := w.da.Members()[0]; m.Path != overlay.PathDirect || m.Rx < rx {
		t.Errorf("state: %+v", m)
	}
	talk(t, w.b, w.a, 1<<16)
}

type writerTo struct {
	c  net.PacketConn
	to net.Addr
}

func (w writerTo) Write(b []byte) (int, error) { return w.c.WriteTo(b, w.to) }

// TestHostileStreamsHarmNobody: from a peer that is no member, and from one that floods, sends rubbish, or says nothing.
func TestHostileStreamsHarmNobody(t *testing.T) {
	t.Parallel()
	w := newTwo(t, tcpOnly)
	talk(t, w.a, w.b, 1<<10)
	stranger := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(5), Listen: []string{tcpOnly}})
	connect(t, stranger, w.hosts[0])
	open := func(h *p2p.Host) network.Stream {
		t.Helper()
		s, err := h.NewStream(t.Context(), w.hosts[0].ID(), overlay.Protocol(w.hosts[0].Overlay()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Reset() })
		return s
	}
	refused := func(h *p2p.Host, hello []byte) {
		t.Helper()
		s := open(h)
		_, _ = s.Write(hello)
		if n, err := s.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("accepted %x", hello)
		}
	}
	refused(stranger, overlay.Hello(public(t, 1), public(t, 0)))   // a member's key from another's peer
	refused(stranger, overlay.Hello(public(t, 5), public(t, 0)))   // no member
	refused(w.hosts[1], overlay.Hello(public(t, 1), public(t, 9))) // no device
	silent := open(stranger)
	if _, err := silent.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}

	// The member's own peer floods with datagrams that say they are data, until the host has had enough to drop some.
	flood := open(w.hosts[1])
	if _, err := flood.Write(overlay.Hello(public(t, 1), public(t, 0))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(flood, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	junk := append([]byte{4, 0, 0, 0}, make([]byte, 1400)...)
	var frames []byte
	for range 64 {
		frames = overlay.Frame(frames, junk)
	}
	for range 64 {
		if _, err := flood.Write(frames); err != nil {
			break // the member's real stream has taken its place
		}
	}
	// Rubbish ends a stream.
	bad := open(w.hosts[1])
	_, _ = bad.Write(overlay.Hello(public(t, 1), public(t, 0)))
	_, _ = io.ReadFull(bad, make([]byte, 1))
	_, _ = bad.Write([]byte{0xff, 0xff, 4, 0, 0, 0})
	if _, err := bad.Read(make([]byte, 1)); err == nil {
		t.Error("a frame of 65535 bytes was taken")
	}
	talk(t, w.b, w.a, 1<<16)
}

func TestMembersAreChecked(t *testing.T) {
	t.Parallel()
	w := newTwo(t)
	good := member(t, w.hosts[1], 1)
	change := func(f func(m *overlay.Member)) []overlay.Member {
		m := good
		f(&m)
		return []overlay.Member{good, m}
	}
	for name, list := range map[string][]overlay.Member{
		"outside the prefix":  change(func(m *overlay.Member) { m.Key, m.Address = public(t, 9), netip.MustParseAddr("10.78.0.9") }),
		"the service address": change(func(m *overlay.Member) { m.Key, m.Address = public(t, 9), netip.MustParseAddr("10.77.255.254") }),
		"IPv6":                change(func(m *overlay.Member) { m.Key, m.Address = public(t, 9), netip.MustParseAddr("fd00::1") }),
		"an address twice":    change(func(m *overlay.Member) { m.Key = public(t, 9) }),
		"a key twice":         change(func(m *overlay.Member) { m.Address = netip.MustParseAddr("10.77.0.9") }),
		"our address":         change(func(m *overlay.Member) { m.Key, m.Address = public(t, 9), w.a.addr }),
		"our key":             change(func(m *overlay.Member) { m.Key, m.Address = public(t, 0), netip.MustParseAddr("10.77.0.9") }),
		"no peer":             change(func(m *overlay.Member) { m.Key, m.Address, m.Peer = public(t, 9), netip.MustParseAddr("10.77.0.9"), "" }),
		"a key of low order":  change(func(m *overlay.Member) { m.Key, m.Address = overlay.PublicKey{}, netip.MustParseAddr("10.77.0.9") }),
	} {
		if err := w.da.SetMembers(list); !errors.Is(err, overlay.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	talk(t, w.a, w.b, 1<<10) // nothing was changed
	if err := w.da.SetMembers(make([]overlay.Member, overlay.MaxMembers+1)); !errors.Is(err, overlay.ErrFull) {
		t.Error(err)
	}
	if err := w.da.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.da.SetMembers([]overlay.Member{good}); !errors.Is(err, overlay.ErrClosed) {
		t.Error(err)
	}
}

func TestATUNOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	var plain *os.File
	run(t, func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		plain, err = openTun("ovl0", 0)
		return err
	})
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{plain, null} {
		if _, err := h.Overlay().Join(overlay.Config{Key: key(0), Address: netip.MustParseAddr("10.77.0.2"), Prefix: prefix, Tun: f}); !errors.Is(err, overlay.ErrConfig) {
			t.Error(err)
		}
		if err := f.Close(); err == nil {
			t.Error("the file was left open")
		}
	}
}

// world answers pings of nobody: it sends back every packet with its addresses exchanged.
type world struct {
	mu    sync.Mutex
	write func([][]byte) error
	seen  []netip.Addr
}

func (w *world) SetWriter(write func([][]byte) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write = write
}

func (w *world) Deliver(packets [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range packets {
		to := netip.AddrFrom4([4]byte(p[16:20]))
		w.seen = append(w.seen, to)
		b := bytes.Clone(p)
		copy(b[12:16], p[16:20])
		copy(b[16:20], p[12:16])
		copy(b[20:22], p[22:24])
		copy(b[22:24], p[20:22])
		lie := bytes.Clone(b)
		copy(lie[12:16], []byte{10, 77, 0, 3}) // a member's address
		_ = w.write([][]byte{lie, b, b[:10]})
	}
}

func TestWhatIsNotOfTheOverlayGoesOutside(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	h := p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(0)})
	s := newSpace(t, "10.77.0.2", 1280)
	out := &world{}
	d := join(t, h, s, 0, func(cfg *overlay.Config) { cfg.MTU, cfg.Outside = 1280, out })
	c := s.packet(t, "10.77.0.2:0")
	for _, to := range []string{"10.77.255.254:53", "203.0.113.7:443"} {
		addr := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))
		if _, err := c.WriteTo([]byte("anyone there?"), addr); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, from, err := c.ReadFrom(b)
		if err != nil || from.String() != to || string(b[:n]) != "anyone there?" {
			t.Fatalf("%q from %v, %v", b[:n], from, err)
		}
	}
	before := h.Overlay().Stats().Dropped()
	if before["spoofed"] != 2 {
		t.Error("Outside spoke for a member: ", before)
	}
	// An address of the overlay that is no member's goes nowhere.
	eventually(t, "it is dropped", func() bool {
		_, _ = c.WriteTo([]byte("x"), &net.UDPAddr{IP: net.IPv4(10, 77, 3, 3), Port: 9})
		return h.Overlay().Stats().Dropped()["astray"] > before["astray"]
	})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.write != nil {
		t.Error("Outside keeps its writer")
	}
	if slices.Contains(out.seen, netip.MustParseAddr("10.77.3.3")) {
		t.Error("a packet within the prefix went outside")
	}
}

// TestCloseLeavesNothing: no goroutine of the overlay runs on, whatever state its members are in.
func TestCloseLeavesNothing(t *testing.T) {
	needsNamespaces(t) // not parallel: it looks at the whole process
	ours := func() string {
		b := make([]byte, 4<<20)
		var out []string
		for _, g := range strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n") {
			if (strings.Contains(g, "starling/p2p/overlay.") || strings.Contains(g, "wireguard/")) && !strings.Contains(g, "testing.tRunner") {
				out = append(out, g)
			}
		}
		return strings.Join(out, "\n\n")
	}
	w := newTwo(t)
	talk(t, w.a, w.b, 1<<16)
	c := newSpace(t, "10.77.0.4", 1280)
	dc := join(t, w.hosts[1], c, 2)
	nobody := member(t, w.hosts[0], 9) // whom nobody has
	setMembers(t, dc, nobody)
	_, _ = c.packet(t, "10.77.0.4:0").WriteTo([]byte("hello?"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(nobody.Address, 1)))
	for _, d := range []*overlay.Device{w.da, dc} {
		if err := errors.Join(d.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range w.hosts { // and the other device with its host
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all goroutines have ended", func() bool { return ours() == "" })
	if _, err := w.hosts[0].Overlay().Join(overlay.Config{Key: key(0), Address: w.a.addr, Prefix: prefix, Tun: newSpace(t, "10.77.0.2", 1280).tun}); !errors.Is(err, overlay.ErrClosed) {
		t.Error(err)
	}
}
