package link

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/runtime/docker/guard"
)

// running is an engine whose containers run until it has an error.
type running struct{ ended error }

func (e running) Lives(context.Context, string) error { return e.ended }

// connect is a guard that connects and shows a token.
func connect(t *testing.T, control, token string) *guard.Conn {
	t.Helper()
	path := filepath.Join(control, guard.SocketFile)
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	conn := guard.NewConn(c)
	t.Cleanup(func() { _ = conn.Close() })
	if token != "" {
		if err := conn.Send(guard.Answer{Token: token}); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// A guard is known by its token; a container that has ended is not waited for.
func TestAccept(t *testing.T) {
	t.Parallel()
	control := t.TempDir()
	l, err := Listen(control)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connect(t, control, "another")
	connect(t, control, "its own")
	conn, pid, err := Accept(t.Context(), l, running{}, "c", "its own", time.Minute)
	if err != nil || pid < 1 {
		t.Fatalf("process %d, %v", pid, err)
	}
	_ = conn.Close()
	ended := errors.New("ended")
	if _, _, err := Accept(t.Context(), l, running{ended}, "c", "", time.Minute); !errors.Is(err, ended) {
		t.Errorf("a container that has ended: %v", err)
	}
}

// Answers come to the requests with their IDs, and callers are woken when none will come any more.
func TestLine(t *testing.T) {
	t.Parallel()
	control := t.TempDir()
	l, err := Listen(control)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs := connect(t, control, "")
	ours, _, err := Accept(t.Context(), l, running{}, "c", "", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	over, gone := make(chan struct{}), make(chan struct{})
	line := New(over, gone)
	if _, _, _, err := line.Begin(guard.Request{Op: guard.OpUsage}); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("without a guard: %v", err)
	}
	line.Connect(ours)
	watched, ending := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		line.Watch(func() { close(ending) })
	}()
	answers, id, end, err := line.Begin(guard.Request{Op: guard.OpUsage})
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := theirs.Receive()
	if err != nil {
		t.Fatal(err)
	}
	if req, err := guard.DecodeRequest(b); err != nil || req.ID != id || req.Op != guard.OpUsage {
		t.Fatalf("%+v, %v", req, err)
	}
	for _, a := range []guard.Answer{{ID: id + 1, MemoryMiB: 1}, {Ending: true}, {ID: id, MemoryMiB: 2}} {
		if err := theirs.Send(a); err != nil {
			t.Fatal(err)
		}
	}
	if a, err := line.Next(t.Context(), answers); err != nil || a.MemoryMiB != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	<-ending
	end()
	answers, _, end, err = line.Begin(guard.Request{Op: guard.OpUsage})
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	_ = theirs.Close()
	<-watched
	line.Release()
	if _, err := line.Next(t.Context(), answers); !errors.Is(err, runtime.ErrEnded) {
		t.Errorf("after the guard's end: %v", err)
	}
	close(gone)
	line.Close()
	if _, err := line.Next(t.Context(), answers); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("after the peer gave it up: %v", err)
	}
	close(over)
	if _, _, _, err := line.Begin(guard.Request{Op: guard.OpUsage}); !errors.Is(err, runtime.ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}
