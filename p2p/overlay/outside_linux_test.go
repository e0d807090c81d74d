package overlay_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/starling-network/starling/p2p"
	"github.com/starling-network/starling/p2p/overlay"
	"github.com/starling-network/starling/p2p/p2ptest"
	"github.com/starling-network/starling/testnet/natlab"
)

func TestMembersWithIPv6OnlyTalkOverTheSharedPort(t *testing.T) {
	t.Parallel()
	if c, err := net.ListenPacket("udp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6 on this machine: ", err)
	} else {
		c.Close()
	}
	w := newTwo(t, "/ip6/::1/udp/0/quic-v1")
	talk(t, w.a, w.b, 1<<20)
	eventually(t, "a direct path with a large MTU", func() bool {
		m := w.da.Members()[0]
		return m.Path == overlay.PathDirect && m.MTU == overlay.MaxMTU
	})
	talk(t, w.b, w.a, 1<<20)
}

// TestPeersWithIPv6OnlyTalk: each in a network namespace that has nothing but unique local addresses, on a link of 1500.
func TestPeersWithIPv6OnlyTalk(t *testing.T) {
	t.Parallel()
	l := newLabOn(t, "overlay", [2]string{"fd77::1", "fd77::2"}, func(t testing.TB, a, b *natlab.Namespace) {
		must(t, a.Run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b.Path()))
		for i, n := range []*natlab.Namespace{a, b} {
			must(t, n.Run("ip", "addr", "add", fmt.Sprintf("fd77::%d/64", 1+i), "dev", "eth0", "nodad"))
			must(t, n.Run("ip", "link", "set", "eth0", "up"))
		}
	}) // which has waited for a direct path of the full MTU
	ln := l.b.listen(t)
	go echo(ln)
	c := l.a.dial(t, ln.Addr().String())
	data := bytes.Repeat([]byte("six"), 1<<18)
	go func() {
		_, _ = c.Write(data)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes came back of %d, %v", len(got), len(data), err)
	}
}

// TestMembersTalkWithoutOffloads: one side has them or not, the other has not.
func TestMembersTalkWithoutOffloads(t *testing.T) {
	t.Parallel()
	for _, plain := range [][2]bool{{true, true}, {true, false}} {
		t.Run(fmt.Sprint(plain), func(t *testing.T) {
			t.Parallel()
			needsNamespaces(t)
			w := &two{}
			for i := range plain {
				w.hosts = append(w.hosts, p2ptest.LoopbackHost(t, p2p.Config{Key: p2ptest.Key(i), PlainUDP: plain[i]}))
			}
			connect(t, w.hosts[0], w.hosts[1])
			w.a, w.b = newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
			w.da, w.db = join(t, w.hosts[0], w.a, 0), join(t, w.hosts[1], w.b, 1)
			w.meet(t)
			eventually(t, "a direct path", func() bool { return path(w.da) == overlay.PathDirect && path(w.db) == overlay.PathDirect })
			talk(t, w.a, w.b, 2<<20)
			talk(t, w.b, w.a, 2<<20)
		})
	}
}

// refuseVar makes this test binary refuse itself, with an error number, to receive and send several messages in one call.
const refuseVar = "STARLING_OVERLAY_REFUSE"

// refuseCalls does so for all threads, as a container's sandbox would.
func refuseCalls(text string) error {
	errno, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_RECVMMSG, Jt: 1},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SENDMMSG, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	if _, _, got := unix.Syscall6(unix.SYS_RECVMMSG, ^uintptr(0), 0, 0, 0, 0, 0); got != unix.Errno(errno) {
		return fmt.Errorf("recvmmsg answers %w", got)
	}
	return nil
}

// TestWhereSeveralMessagesACallAreRefused QUIC and members talk all the same.
func TestWhereSeveralMessagesACallAreRefused(t *testing.T) {
	t.Parallel()
	if os.Getenv(refuseVar) != "" {
		t.Skip("this is it")
	}
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^(TestQUICWorksOnASharedPort|TestTwoNamespacesTalkOverTheSharedPort|TestMembersWithIPv6OnlyTalkOverTheSharedPort)$", "-test.v")
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", refuseVar, errno))
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "refusing system calls:") {
				t.Skip(string(out))
			}
			if err != nil || !strings.Contains(string(out), "--- PASS: TestQUICWorksOnASharedPort") {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestWhoIsNoMemberIsToldLittle: whatever is sent from outside, also by who has recorded all that members said and knows their
// public keys, nobody gets more bytes from it than they sent; and the members notice nothing.
func TestWhoIsNoMemberIsToldLittle(t *testing.T) {
	t.Parallel()
	needsNamespaces(t)
	w := &two{hosts: p2ptest.Loopback(t, 2)}
	connect(t, w.hosts[0], w.hosts[1])
	theirs := overlay.Rewire(w.hosts[1].Overlay())[0]
	record := theirs.Record()
	ours := overlay.Rewire(w.hosts[0].Overlay())
	w.a, w.b = newSpace(t, "10.77.0.2", 1420), newSpace(t, "10.77.0.3", 1420)
	w.da, w.db = join(t, w.hosts[0], w.a, 0), join(t, w.hosts[1], w.b, 1)
	w.meet(t)
	eventually(t, "a direct path", func() bool { return path(w.da) == overlay.PathDirect && path(w.db) == overlay.PathDirect })
	talk(t, w.a, w.b, 1<<16)
	said := record()

	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	me := c.LocalAddr().(*net.UDPAddr).AddrPort()
	var to net.Addr
	for _, a := range w.hosts[0].Network().ListenAddresses() {
		if at, ok := overlay.UDPOf(a); ok {
			to = net.UDPAddrFromAddrPort(at)
		}
	}
	sent := 0
	send := func(p []byte) {
		t.Helper()
		n, err := c.WriteTo(p, to)
		if err != nil {
			t.Fatal(err)
		}
		sent += n
	}
	told := func() (n int) {
		for _, wire := range ours {
			n += wire.To(me)
		}
		return n
	}
	before := w.dropped()
	stranger, liar := overlay.Initiation(t, public(t, 0), key(77)), overlay.Forged(t, public(t, 0), public(t, 1))
	flood := func() {
		for _, p := range said {
			send(p)
		}
		for range 200 {
			send(stranger)
			send(liar) // says that it is the member
			bad := slices.Clone(liar)
			bad[120] ^= 1 // another mac1
			send(bad)
		}
	}
	eventually(t, "it was all read, and more than the limits allow", func() bool {
		flood()
		now := w.dropped()
		return now["unknown_key"] > before["unknown_key"]+3000 && now["stranger"] > before["stranger"]
	})
	// A renewed handshake of who is where a member is passes all that.
	talk(t, w.a, w.b, 1<<16)
	if got := told(); got > sent {
		t.Errorf("%d bytes were answered to %d", got, sent)
	}
	if got := path(w.da); got != overlay.PathDirect {
		t.Error("path: ", got)
	}
	for _, m := range w.da.Members() {
		if at := overlay.At(w.da, m.Key); at == me {
			t.Error("the member's packets go to who is no member")
		}
	}
}
