package guard

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dial connects to a port of a box once the program listens, and returns the peer's end.
func (b *box) dial(port uint16) (uint32, *net.UnixConn) {
	b.t.Helper()
	theirs, ours := socketPair(b.t)
	defer theirs.Close()
	id := b.send(Request{Op: OpDial, Port: port}, theirs)
	if a := b.answer(id, false); a.Error != "" {
		b.t.Fatal(a.Error)
	}
	return id, ours
}

// A connection carries both directions, and the end of each alone.
func TestDial(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "serve", "127.0.0.1:8080")
	b.prints("stdout", "serves <nil>")
	_, c := b.dial(8080)
	text := strings.Repeat("0123456789", 50_000)
	go func() {
		_, _ = c.Write([]byte(text))
		_ = c.CloseWrite()
	}()
	if got := readAll(t, c); got != text+"end" {
		t.Errorf("%d bytes came back, want %d and an end", len(got), len(text))
	}
	theirs, _ := socketPair(t)
	if a := b.ask(Request{Op: OpDial, Port: 8081}, theirs); a.Error != "port 8081: connection refused" {
		t.Errorf("a port without a listener: %+v", a)
	}
	if a := b.ask(Request{Op: OpDial, Port: 8080}); !strings.Contains(a.Error, "0 descriptors") {
		t.Errorf("no socket: %+v", a)
	}
	if a := b.ask(Request{Op: OpDial, Port: 8080}, theirs, theirs); !strings.Contains(a.Error, "2 descriptors") {
		t.Errorf("two sockets: %+v", a)
	}
	// A caller that is gone: nothing more is read from the program, and its slot is free once it has closed.
	id, c := b.dial(8080)
	b.send(Request{Op: OpCancel, ID: id})
	if got := readAll(t, c); got != "" {
		t.Errorf("read %q from a cancelled connection", got)
	}
	b.alive()
}

// The files of a dial are its socket, and nothing else is taken for one.
func TestSocketOf(t *testing.T) {
	t.Parallel()
	plain, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	datagrams, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	for name, f := range map[string]*os.File{"a file": plain, "another socket": os.NewFile(uintptr(datagrams), "udp")} {
		if c, err := socketOf([]*os.File{f}); err == nil || !strings.Contains(err.Error(), "opening a socket of the peer") {
			t.Errorf("%s: %v, %v", name, c, err)
		}
		if err := f.Close(); err == nil {
			t.Errorf("%s is left open", name)
		}
	}
}

// A port that refuses at the loopback address is tried at the overlay's. The test holds the port at both addresses: a free
// one may be another program's at any time.
func TestDialOverlay(t *testing.T) {
	t.Parallel()
	var port int
	hold := func(last byte) *os.File {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		must(t, err)
		f := os.NewFile(uintptr(s), "socket")
		t.Cleanup(func() { _ = f.Close() })
		must(t, unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, last}, Port: port}))
		at, err := unix.Getsockname(s)
		must(t, err)
		port = at.(*unix.SockaddrInet4).Port
		return f
	}
	_, overlay := hold(1), hold(2)
	g := &guard{}
	refuses := func(when string) {
		t.Helper()
		if c, err := g.dialOwn(t.Context(), uint16(port)); err == nil {
			t.Errorf("%s it connects to %v", when, c.RemoteAddr())
		} else if !strings.HasSuffix(err.Error(), "connection refused") {
			t.Errorf("%s: %v, want a refusal", when, err)
		}
	}
	g.order.Overlay = netip.MustParseAddr("127.0.0.2")
	refuses("without a listener")
	must(t, unix.Listen(int(overlay.Fd()), 1))
	c, err := g.dialOwn(t.Context(), uint16(port))
	must(t, err)
	_ = c.Close()
	g.order.Overlay = netip.Addr{}
	refuses("without an overlay")
}

// No more connections are open than MaxDialled, whoever does not close them; then the next is refused and a later one is not.
func TestAttackDialsMany(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "serve", "127.0.0.1:8080")
	b.prints("stdout", "serves <nil>")
	var last *net.UnixConn
	for range MaxDialled {
		_, last = b.dial(8080)
	}
	theirs, ours := socketPair(t)
	if a := b.ask(Request{Op: OpDial, Port: 8080}, theirs); a.Error != "256 connections are open already" {
		t.Errorf("answer %+v to one too many", a)
	}
	_ = theirs.Close()
	if rest, err := io.ReadAll(ours); len(rest) > 0 || err != nil {
		t.Errorf("a connection that is refused has %q, %v", rest, err)
	}
	must(t, last.CloseWrite())
	if got := readAll(t, last); got != "end" {
		t.Errorf("read %q", got)
	}
	_ = last.Close()
	wait(t, "room for a connection", func() bool {
		theirs, _ := socketPair(t)
		defer theirs.Close()
		return b.ask(Request{Op: OpDial, Port: 8080}, theirs).Error == ""
	})
	b.alive()
}

// A program that accepts no connection keeps neither a caller that cancels, nor its guard after its end: the kernel would
// retry for two minutes.
func TestAttackDeaf(t *testing.T) {
	t.Parallel()
	b := started(t, layout{UID: 1000}, nil, "deaf")
	b.prints("stdout", "deaf <nil>")
	request := func() uint32 {
		theirs, _ := socketPair(t)
		defer theirs.Close()
		return b.send(Request{Op: OpDial, Port: 8080}, theirs)
	}
	cancelled, left := request(), request()
	b.send(Request{Op: OpCancel, ID: cancelled})
	if a := b.answer(cancelled, false); !strings.Contains(a.Error, "canceled") {
		t.Errorf("answer %+v to a cancelled request", a)
	}
	b.send(Request{Op: OpKill, Reason: "killed"})
	if a := b.answer(left, false); !strings.Contains(a.Error, "canceled") {
		t.Errorf("answer %+v to the other one, at the program's end", a)
	}
	b.end()
}

// Each half of a connection ends alone, and a source without a destination can no longer be written.
func TestPass(t *testing.T) {
	t.Parallel()
	pair := func() (a, b *net.UnixConn) {
		f, b := socketPair(t)
		c, err := net.FileConn(f)
		must(t, err)
		_ = f.Close()
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn), b
	}
	source, from := pair()
	to, sink := pair()
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(to, from)
	}()
	_, err := source.Write([]byte("all"))
	must(t, err)
	must(t, source.CloseWrite())
	if got := readAll(t, sink); got != "all" {
		t.Errorf("read %q", got)
	}
	<-done
	if _, err := sink.Write([]byte("back")); err != nil {
		t.Errorf("the other direction is closed: %v", err)
	}
	source, from = pair()
	to, sink = pair()
	_ = sink.Close()
	_, err = source.Write([]byte("x"))
	must(t, err)
	pass(to, from)
	if _, err = source.Write([]byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("writing to no destination: %v", err)
	}
}
