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
	// acceptSlice is how often a container is looked at that should have a guard and does not connect.
	acceptSlice = 250 * time.Millisecond
	// tokenPatience bounds the time from a guard's connection to its token. A program that keeps connecting keeps its
	// own guard away.
	tokenPatience = time.Second
)

// Engine knows which containers run.
type Engine interface {
	// Lives returns nil if a container runs, and otherwise an error that names its end, or the engine's failure.
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
	l.SetUnlinkOnClose(false) // that name is gone by then
	// The program's user may be another one; the directory above lets nobody else come here.
	if err := os.Chmod(path, 0o666); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("opening socket to the guard: %w", err)
	}
	return l, nil
}

// Accept waits for the guard of a container: a connection with the token. An empty token, at a start, when no program
// runs yet, accepts any connection. pid is a process of the container: the guard, or the process that makes connections
// for it in a sandbox with a kernel of its own.
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
			return nil, 0, fmt.Errorf("%w: its containers are not processes of this machine", runtime.ErrEngine)
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

// Greet says the first words to a guard and hears its first.
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
