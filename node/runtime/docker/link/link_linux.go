package link

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

const (
	// ReadyPatience bounds the time from a started container to its guard's first word, and of the program's start.
	ReadyPatience = 30 * time.Second
	// acceptSlice is the interval between checks of a container whose guard has not connected yet.
	acceptSlice = 250 * time.Millisecond
	// tokenPatience bounds the time from a guard's connection to its token. A program that keeps connecting keeps its
	// own guard away.
	tokenPatience = time.Second
)

// Engine reports whether a container runs.
type Engine interface {
	// Lives returns nil if a container runs. Otherwise it returns an error that names the container's end, or the
	// engine's failure.
	Lives(ctx context.Context, container string) error
}

// Listen makes the socket in a control directory that the guard connects to. The path of a socket may have 108 bytes
// only, which a data directory can exceed: it is named through a descriptor of its directory.
func Listen(control string) (*net.UnixListener, error) {
	d, err := os.Open(control)
	if err != nil {
		return nil, fmt.Errorf("opening control directory: %w", err)
	}
	defer d.Close()
	path := filepath.Join(control, guard.SocketFile)
	_ = os.Remove(path) // of an earlier process
	short := fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), guard.SocketFile)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: short})
	if err != nil {
		return nil, fmt.Errorf("listening for the guard: %w", err)
	}
	// The program's user may be another one; the permissions of the directory above exclude other users.
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o666); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("opening socket to the guard: %w", err)
	}
	return l, nil
}

// Accept waits for the guard of a container: a connection with the token. An empty token accepts any connection; it is
// used at a start, before a program runs. pid is a process of the container: the guard, or the process that connects
// for it in a sandbox with its own kernel.
func Accept(
	ctx context.Context, l *net.UnixListener, e Engine, container, token string, patience time.Duration,
) (conn *guard.Conn, pid int, err error) {
	deadline := time.Now().Add(patience)
	stop := context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for ctx.Err() == nil {
		if time.Now().After(deadline) { // also where a program keeps connecting in its guard's stead
			return nil, 0, fmt.Errorf("the guard did not connect within %v", patience)
		}
		_ = l.SetDeadline(time.Now().Add(acceptSlice))
		if ctx.Err() != nil {
			break
		}
		c, err := l.AcceptUnix()
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				return nil, 0, fmt.Errorf("waiting for the guard: %w", err)
			}
			if err := e.Lives(ctx, container); err != nil {
				return nil, 0, err
			}
			continue
		}
		conn := guard.NewConn(c)
		pid, err := conn.Pid()
		if err == nil && pid > 0 && (token == "" || shows(conn, token)) {
			return conn, pid, nil
		}
		_ = conn.Close()
		if token == "" {
			return nil, 0, fmt.Errorf("%w: containers are not processes of this machine", runtime.ErrEngine)
		}
	}
	return nil, 0, ctx.Err()
}

// shows reports whether the first message on a connection is the token.
func shows(conn *guard.Conn, token string) bool {
	_ = conn.SetDeadline(time.Now().Add(tokenPatience))
	b, files, err := conn.Receive()
	guard.CloseFiles(files)
	if err != nil || conn.SetDeadline(time.Time{}) != nil {
		return false
	}
	a, err := guard.DecodeAnswer(b)
	return err == nil && subtle.ConstantTimeCompare([]byte(a.Token), []byte(token)) == 1
}

// Greet sends the first request to a guard and returns its first answer.
func Greet(ctx context.Context, conn *guard.Conn, req any, files ...*os.File) (guard.Answer, error) {
	_ = conn.SetDeadline(time.Now().Add(ReadyPatience))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := conn.Send(req, files...)
	var b []byte
	if err == nil {
		var unasked []*os.File
		b, unasked, err = conn.Receive()
		guard.CloseFiles(unasked)
	}
	if ctx.Err() != nil {
		return guard.Answer{}, ctx.Err()
	}
	if err != nil {
		return guard.Answer{}, fmt.Errorf("talking to the guard: %w", err)
	}
	if !stop() {
		return guard.Answer{}, ctx.Err()
	}
	_ = conn.SetDeadline(time.Time{})
	return guard.DecodeAnswer(b)
}
