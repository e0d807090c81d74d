package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// connPair makes the two ends of a connection.
func connPair(t *testing.T) (a, b *Conn) {
	t.Helper()
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	var ends [2]*Conn
	for i, fd := range p {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		must(t, err)
		_ = f.Close()
		ends[i] = NewConn(c.(*net.UnixConn))
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// openFiles is the number of this process's descriptors of a file.
func openFiles(t *testing.T, path string) (n int) {
	t.Helper()
	must(t, eachNumber("/proc/self/fd", func(fd int) {
		if target, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)); target == path {
			n++
		}
	}))
	return n
}

// Messages arrive whole and in order, with their descriptors, which later programs do not inherit.
func TestConn(t *testing.T) {
	t.Parallel()
	a, b := connPair(t)
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, a.Send(Answer{ID: 1}))
	must(t, a.Send(Answer{ID: 2}, f, f, f, f))
	if text, files, err := b.Receive(); string(text) != `{"id":1}` || len(files) != 0 || err != nil {
		t.Errorf("received %q, %d files, %v", text, len(files), err)
	}
	text, files, err := b.Receive()
	if string(text) != `{"id":2}` || len(files) != MaxFiles || err != nil {
		t.Fatalf("received %q, %d files, %v", text, len(files), err)
	}
	for _, f := range files {
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a descriptor is inherited: %x, %v", flags, err)
		}
		if _, err := f.WriteString("x"); err != nil {
			t.Error(err)
		}
	}
	CloseFiles(files)
	if text, _ := os.ReadFile(path); string(text) != "xxxx" {
		t.Errorf("the file has %q", text)
	}
	large := strings.Repeat("x", MaxPacket-2)
	must(t, a.Send(large))
	if text, _, err := b.Receive(); err != nil || len(text) != MaxPacket {
		t.Errorf("received %d bytes, %v; want the largest message", len(text), err)
	}
	if err := a.Send(large + "x"); err == nil || err.Error() != "message of 65537 bytes, at most 65536" {
		t.Errorf("sending too much: %v", err)
	}
	if err := a.Send(func() {}); err == nil {
		t.Error("a function is sent")
	}
	must(t, b.SetDeadline(time.Unix(1, 0)))
	if _, _, err := b.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	must(t, b.SetDeadline(time.Time{}))
	if pid, err := b.Pid(); err != nil || pid != os.Getpid() {
		t.Errorf("process %d, %v", pid, err)
	}
	_ = a.Close()
	if _, _, err := b.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
	if _, err := a.Pid(); err == nil {
		t.Error("a closed connection has a process")
	}
}

// A message that is too long, empty, or has too many descriptors is an error, and its descriptors are closed.
func TestAttackFloodsConn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	rights := func(n int) (oob []byte) {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(f.Fd())
		}
		return unix.UnixRights(fds...)
	}
	for name, message := range map[string]struct {
		text, oob []byte
		want      string
	}{
		"too long":         {make([]byte, MaxPacket+2), rights(1), "message too long"},
		"many descriptors": {[]byte("{}"), rights(MaxFiles + 1), "message too long"},
		"more of them":     {[]byte("{}"), rights(253), "message too long"},
		"empty":            {nil, rights(2), "EOF"},
	} {
		a, b := connPair(t)
		// Go's own call would add a byte to an empty message.
		h, part := unix.Msghdr{Control: &message.oob[0]}, unix.Iovec{Base: unsafe.SliceData(message.text)}
		h.SetControllen(len(message.oob))
		part.SetLen(len(message.text))
		h.Iov, h.Iovlen = &part, 1
		raw, err := a.c.SyscallConn()
		must(t, err)
		must(t, raw.Control(func(fd uintptr) {
			if _, _, errno := unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&h)), 0); errno != 0 {
				t.Error(errno)
			}
		}))
		if text, files, err := b.Receive(); err == nil || !strings.HasSuffix(err.Error(), message.want) || text != nil || files != nil {
			t.Errorf("%s: %d bytes, %d files, %v; want %q", name, len(text), len(files), err, message.want)
		}
		if n := openFiles(t, path); n != 1 {
			t.Errorf("%s: %d descriptors are open, want the sender's", name, n)
		}
	}
	// A message of the largest size and one byte is read whole, for its decoder to refuse.
	a, b := connPair(t)
	_, _, err = a.c.WriteMsgUnix(bytes.Repeat([]byte(" "), MaxPacket+1), nil, nil)
	must(t, err)
	text, _, err := b.Receive()
	must(t, err)
	if _, err := DecodeRequest(text); err == nil || !strings.Contains(err.Error(), "65537 bytes, at most 65536") {
		t.Errorf("decoding %d bytes: %v", len(text), err)
	}
}

// A memory file has its value, and the other side cannot make it larger than an order.
func TestMemoryFile(t *testing.T) {
	t.Parallel()
	want := Command{Argv: []string{"a"}, Env: []string{"B=1"}, Dir: "/"}
	f, err := MemoryFile(want)
	must(t, err)
	defer f.Close()
	for range 2 { // wherever its offset is
		b, err := readMemory(f)
		must(t, err)
		got, err := DecodeCommand(b)
		if a, _ := json.Marshal(got); err != nil || len(a) != len(b) {
			t.Errorf("read %s, %v", b, err)
		}
	}
	if f, err := MemoryFile(strings.Repeat("x", MaxOrder-1)); err == nil {
		t.Errorf("too large an order is in %s", f.Name())
	}
	if f, err := MemoryFile(func() {}); err == nil {
		t.Errorf("a function is in %s", f.Name())
	}
	must(t, f.Truncate(1<<40)) // its pages are not there
	b, err := readMemory(f)
	if must(t, err); len(b) != MaxOrder+1 {
		t.Errorf("read %d bytes of a huge file", len(b))
	}
	if _, err := DecodeOrder(b); err == nil || !strings.Contains(err.Error(), "at most 4194304") {
		t.Errorf("decoding it: %v", err)
	}
	r, w, err := os.Pipe()
	must(t, err)
	defer CloseFiles([]*os.File{r, w})
	if _, err := readMemory(r); err == nil { // it would wait for ever
		t.Error("a pipe is read as a memory file")
	}
}
