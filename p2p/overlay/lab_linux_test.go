package overlay_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/p2ptest"
)

// space is a network namespace with a TUN called ovl0, as a container of a cluster has it.
type space struct {
	fd   int
	addr netip.Addr
	tun  *os.File
}

// needsNamespaces skips where they cannot be made.
func needsNamespaces(t testing.TB) {
	t.Helper()
	if os.Getenv("STARLING_NETNS") == "" {
		t.Skip("set STARLING_NETNS=1 to make network namespaces, as `make test` does")
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("no TUN devices here: ", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip(err)
	}
}

// newSpace makes a namespace whose only way out is a TUN.
func newSpace(t testing.TB, addr string, mtu int) *space {
	t.Helper()
	s := &space{addr: netip.MustParseAddr(addr), fd: -1}
	run(t, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		if s.fd, err = unix.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		s.tun, err = openTun("ovl0", unix.IFF_VNET_HDR)
		return err
	})
	t.Cleanup(func() { unix.Close(s.fd) })
	s.ip(t, "link set lo up")
	s.ip(t, "addr add "+addr+"/16 dev ovl0")
	s.ip(t, fmt.Sprintf("link set ovl0 mtu %d up", mtu))
	s.ip(t, "route add default dev ovl0")
	return s
}

func openTun(name string, flags uint16) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// run runs f on a thread that ends with it.
func run(t testing.TB, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// do runs f inside.
func (s *space) do(t testing.TB, f func() error) {
	t.Helper()
	run(t, func() error {
		if err := unix.Setns(s.fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func (s *space) ip(t testing.TB, args string) {
	t.Helper()
	s.do(t, func() error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
		return nil
	})
}

// listen listens inside.
func (s *space) listen(t testing.TB, addr string) (l net.Listener) {
	t.Helper()
	s.do(t, func() (err error) {
		l, err = net.Listen("tcp", addr)
		return err
	})
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects from inside, however long it takes.
func (s *space) dial(t testing.TB, addr string) (c net.Conn) {
	t.Helper()
	s.do(t, func() (err error) {
		c, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

// packet opens a UDP socket inside.
func (s *space) packet(t testing.TB, addr string) (c net.PacketConn) {
	t.Helper()
	s.do(t, func() (err error) {
		c, err = net.ListenPacket("udp4", addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func key(i int) overlay.PrivateKey { return overlay.PrivateKey{1: byte(i), 2: 7, 31: 64} }

func public(t testing.TB, i int) overlay.PublicKey {
	t.Helper()
	pub, err := key(i).Public()
	if err != nil {
		t.Fatal(err)
	}
	return pub
}

var prefix = netip.MustParsePrefix("10.77.0.0/16")

// join joins member i, whose address is 10.77.0.(2+i).
func join(t testing.TB, h *p2p.Host, s *space, i int, change ...func(*overlay.Config)) *overlay.Device {
	t.Helper()
	cfg := overlay.Config{Key: key(i), Address: s.addr, Prefix: prefix, Tun: s.tun, MTU: 1420}
	for _, f := range change {
		f(&cfg)
	}
	d, err := h.Overlay().Join(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func member(t testing.TB, h *p2p.Host, i int) overlay.Member {
	t.Helper()
	return overlay.Member{Key: public(t, i), Peer: h.ID(), Address: netip.AddrFrom4([4]byte{10, 77, 0, byte(2 + i)})}
}

func setMembers(t testing.TB, d *overlay.Device, list ...overlay.Member) {
	t.Helper()
	if err := d.SetMembers(list); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok, however long it takes.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("never: ", what)
		}
	}
}

// path is how a device reaches the only other member.
func path(d *overlay.Device) overlay.Path {
	for _, m := range d.Members() {
		return m.Path
	}
	return ""
}

func connect(t testing.TB, a, b *p2p.Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.Connect(ctx, b.AddrInfo()); err != nil {
		t.Fatal(err)
	}
}

func lockThread() { runtime.LockOSThread() }

func multiaddr(s string) ma.Multiaddr { return ma.StringCast(s) }

// peerID is that of the host with key i.
func peerID(i int) (peer.ID, error) { return peer.IDFromPrivateKey(p2ptest.Key(i)) }

// profile writes a processor profile of a peer where STARLING_PROFILE names a folder.
func profile(r role) (stop func()) {
	dir := os.Getenv("STARLING_PROFILE")
	if dir == "" {
		return func() {}
	}
	f, err := os.Create(fmt.Sprintf("%s/%s-%d.prof", dir, r.Mode, r.Me))
	if err != nil {
		return func() {}
	}
	_ = pprof.StartCPUProfile(f)
	return func() {
		pprof.StopCPUProfile()
		f.Close()
	}
}
