package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Conn carries messages with descriptors between peer and guard: one packet each, in order.
type Conn struct{ c *net.UnixConn }

// NewConn wraps a connected socket of network "unixpacket".
func NewConn(c *net.UnixConn) *Conn { return &Conn{c} }

// Send sends one message, as JSON.
func (c *Conn) Send(v any, files ...*os.File) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > MaxPacket {
		return fmt.Errorf("message of %d bytes, at most %d", len(b), MaxPacket)
	}
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	_, _, err = c.c.WriteMsgUnix(b, oob, nil)
	return err
}

// Receive reads one message and its descriptors, which are then the caller's. io.EOF when the other side is gone.
func (c *Conn) Receive() ([]byte, []*os.File, error) {
	b, oob := make([]byte, MaxPacket+1), make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, nOOB, flags, _, err := c.c.ReadMsgUnix(b, oob)
	files, malformed := filesIn(oob[:nOOB]) // also of an empty message, which is the other side's end
	switch {
	case err != nil:
	case malformed != nil:
		err = malformed
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("message too long")
	}
	if err != nil {
		CloseFiles(files)
		return nil, nil, err
	}
	return b[:n], files, nil
}

func filesIn(oob []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			continue // credentials
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

// Pid is the process on the other side, as this process's namespace numbers it; 0 if it is in another one.
func (c *Conn) Pid() (int, error) { return PidOf(c.c) }

// PidOf is Conn.Pid of any socket of this machine.
func PidOf(socket syscall.Conn) (int, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return 0, err
	}
	if sockErr != nil {
		return 0, sockErr
	}
	return int(cred.Pid), nil
}

// SetDeadline bounds Send and Receive.
func (c *Conn) SetDeadline(t time.Time) error { return c.c.SetDeadline(t) }

// Close closes the connection.
func (c *Conn) Close() error { return c.c.Close() }

// CloseFiles closes the files that Receive returned.
func CloseFiles(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// MemoryFile holds v as JSON in a file that exists only in memory, for Send.
func MemoryFile(v any) (*os.File, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxOrder {
		return nil, fmt.Errorf("order of %d bytes, at most %d", len(b), MaxOrder)
	}
	fd, err := unix.MemfdCreate("order", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making memory file: %w", err)
	}
	f := os.NewFile(uintptr(fd), "order")
	if _, err := f.Write(b); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("filling memory file: %w", err)
	}
	return f, nil
}

// readMemory reads a memory file that the other side filled.
func readMemory(f *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, MaxOrder+1))
}
