package sshserver_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/starling-network/starling/cmd/internal/cli/livecmd/sshserver"
	"github.com/starling-network/starling/node/live"
	"github.com/starling-network/starling/node/runtime/sftpd"
)

// world is a rank whose programs are functions of the test, and an ssh client of it.
type world struct {
	*ssh.Client
	running atomic.Int64 // programs
	end     context.CancelFunc
	served  chan error
	waiting chan struct{} // programs that wait end when it is closed
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	w := &world{end: end, served: make(chan error, 1), waiting: make(chan struct{})}
	key, err := ssh.NewSignerFromSigner(ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	go func() { w.served <- sshserver.Serve(ctx, theirs, theirs, sshserver.Config{HostKey: key, Programs: w}) }()
	c, channels, requests, err := ssh.NewClientConn(ours, "job", &ssh.ClientConfig{User: "any", HostKeyCallback: ssh.FixedHostKey(key.PublicKey())})
	if err != nil {
		t.Fatal(err)
	}
	w.Client = ssh.NewClient(c, channels, requests)
	t.Cleanup(func() {
		end()
		w.Close()
		if err := <-w.served; err != nil && !errors.Is(err, net.ErrClosed) && ctx.Err() == nil {
			t.Errorf("the server ended with %v", err)
		}
		if n := w.running.Load(); n != 0 {
			t.Errorf("%d programs run after the server's end", n)
		}
	})
	return w
}

type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// Attach runs the function of the last argument's first word.
func (w *world) Attach(ctx context.Context, p live.Program) (live.Conn, error) {
	line := strings.Fields(p.Args[len(p.Args)-1])
	if len(p.Args) == 3 && strings.HasPrefix(p.Args[2], "for s in") {
		line = []string{"cat"}
	}
	if line[0] == "refused" {
		return nil, errors.New("the job is paused; resume it first")
	}
	ours, theirs := net.Pipe()
	context.AfterFunc(ctx, func() { _ = ours.Close() })
	w.running.Add(1)
	go func() {
		defer w.running.Add(-1)
		_ = live.Serve(context.Background(), theirs, uint32(p.Rows), uint32(p.Cols), func(ctx context.Context, s live.Session) (int, error) {
			return w.program(ctx, line, p, s)
		})
	}()
	return halves{ours}, nil
}

func (w *world) program(ctx context.Context, line []string, p live.Program, s live.Session) (code int, err error) {
	switch line[0] {
	case "cat":
		_, err = io.Copy(s.Stdout, s.Stdin)
	case "shout": // to both outputs, with its variables
		fmt.Fprintf(s.Stdout, "%s %s", strings.Join(line[1:], " "), p.Env["MORE"])
		fmt.Fprint(s.Stderr, "loud")
		return 42, nil
	case "screen": // each size and key
		if !p.TTY {
			return 1, nil
		}
		fmt.Fprintf(s.Stdout, "%s\r\n", p.Env["TERM"])
		go func() {
			for b := make([]byte, 1); ; {
				if _, err := s.Stdin.Read(b); err != nil {
					return
				}
				fmt.Fprintf(s.Stdout, "key %02x\r\n", b[0])
			}
		}()
		for {
			select {
			case z := <-s.Sizes:
				fmt.Fprintf(s.Stdout, "size %dx%d\r\n", z.Rows, z.Cols)
			case <-ctx.Done():
				return 137, nil
			}
		}
	case "wait": // it reads nothing
		fmt.Fprint(s.Stdout, "waiting")
		select {
		case <-w.waiting:
		case <-ctx.Done():
			code = 137
		}
	case "lost":
		return 0, errors.New("attached stream closed: the job's program has ended")
	case sftpd.Subcommand:
		err = sftpd.Serve(s.Stdin, nopCloser{s.Stdout})
	default:
		return 127, nil
	}
	return code, err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// Forward connects to an echo at port 7000; no other port listens.
func (w *world) Forward(ctx context.Context, port uint16) (live.Conn, error) {
	if port != 7000 {
		return nil, fmt.Errorf("port %d: no answer from the program", port)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w.running.Add(1)
	go func() {
		defer w.running.Add(-1)
		c, err := ln.Accept()
		_ = ln.Close() // not before: it would reset a connection that waits to be accepted
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c)
		_ = c.Close()
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return c.(*net.TCPConn), nil
}

func (w *world) session(t *testing.T) *ssh.Session {
	t.Helper()
	s, err := w.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually waits until a state is reached.
func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not reached: " + what)
		}
	}
}
