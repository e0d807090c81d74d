package sshserver_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/starling-network/starling/cmd/internal/cli/livecmd/sshserver"
)

// status is the exit status of a session's error.
func status(err error) int {
	if e, ok := errors.AsType[*ssh.ExitError](err); ok {
		return e.ExitStatus()
	}
	if err != nil {
		return -1
	}
	return 0
}

func TestExec(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session(t)
	var out, errs bytes.Buffer
	s.Stdout, s.Stderr = &out, &errs
	if err := s.Setenv("MORE", "of it"); err != nil {
		t.Error(err)
	}
	if err := s.Run("shout a b"); status(err) != 42 || out.String() != "a b of it" || errs.String() != "loud" {
		t.Errorf("%v, %q, %q", err, out.String(), errs.String())
	}
	// A shell without a terminal reads its commands from standard input.
	s = w.session(t)
	s.Stdin = strings.NewReader("echoed")
	out.Reset()
	s.Stdout = &out
	if err := errors.Join(s.Shell(), s.Wait()); err != nil || out.String() != "echoed" {
		t.Errorf("%v, %q", err, out.String())
	}
	for line, want := range map[string]string{
		"refused": "starling: the job is paused; resume it first\n",
		"lost":    "starling: attached stream closed: the job's program has ended\n",
	} {
		s = w.session(t)
		errs.Reset()
		s.Stderr = &errs
		if err := s.Run(line); status(err) != 255 || errs.String() != want {
			t.Errorf("%s: %v, %q", line, err, errs.String())
		}
	}
}

// screen is the output of a program on a terminal.
type screen struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screen) shows(t *testing.T, text string) {
	t.Helper()
	eventually(t, "the screen shows "+text, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.text.String(), text)
	})
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session(t)
	var shown screen
	s.Stdout = &shown
	keys, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.RequestPty("xterm-256color", 24, 80, ssh.TerminalModes{ssh.ECHO: 1}), s.Start("screen")); err != nil {
		t.Fatal(err)
	}
	shown.shows(t, "xterm-256color\r\n")
	shown.shows(t, "size 24x80\r\n")
	if err := s.WindowChange(30, 100); err != nil {
		t.Fatal(err)
	}
	shown.shows(t, "size 30x100\r\n")
	if _, err := keys.Write([]byte("q")); err != nil {
		t.Fatal(err)
	}
	shown.shows(t, "key 71\r\n")
	if err := s.Signal(ssh.SIGINT); err != nil {
		t.Fatal(err)
	}
	shown.shows(t, "key 03\r\n")
	if err := s.Signal(ssh.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if e, ok := errors.AsType[*ssh.ExitError](s.Wait()); !ok || e.Signal() != "HUP" {
		t.Errorf("ended with %v", e)
	}
}

func TestSignal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, sig := range []ssh.Signal{ssh.SIGTERM, ssh.SIGINT, ssh.SIGKILL} {
		s := w.session(t)
		var shown screen
		s.Stdout = &shown
		if err := s.Start("wait"); err != nil {
			t.Fatal(err)
		}
		shown.shows(t, "waiting")
		if err := errors.Join(s.Signal(ssh.SIGUSR1), s.Signal(sig)); err != nil {
			t.Fatal(err)
		}
		if e, ok := errors.AsType[*ssh.ExitError](s.Wait()); !ok || e.Signal() != string(sig) {
			t.Errorf("%s: ended with %v", sig, e)
		}
	}
	eventually(t, "no program runs", func() bool { return w.running.Load() == 0 })
}

// noise is n bytes that repeat nothing.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

func TestBulk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data := noise(64<<20 + 17)
	s := w.session(t)
	s.Stdin = bytes.NewReader(data)
	var out bytes.Buffer
	s.Stdout = &out
	if err := s.Run("cat"); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%v, %d bytes of %d came back", err, out.Len(), len(data))
	}
}

func TestMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	for i := range sshserver.MaxChannels {
		wg.Go(func() {
			s, err := w.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			text := strings.Repeat(fmt.Sprint(i), 10_000)
			s.Stdin = strings.NewReader(text)
			if out, err := s.Output("cat"); err != nil || string(out) != text {
				t.Errorf("session %d: %v, %d bytes", i, err, len(out))
			}
		})
	}
	wg.Wait()
}

func TestForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	data := noise(3 << 20)
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
		c, err := w.Dial("tcp", host+":7000")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = c.Write(data)
			_ = c.(interface{ CloseWrite() error }).CloseWrite()
		}()
		if back, err := io.ReadAll(c); err != nil || !bytes.Equal(back, data) {
			t.Errorf("%s: %v, %d bytes came back", host, err, len(back))
		}
		_ = c.Close()
	}
	for to, want := range map[string]string{
		"localhost:7001":    "port 7001: no answer from the program",
		"example.org:443":   "a job forwards only ports of its own localhost",
		"169.254.169.254:1": "a job forwards only ports of its own localhost",
	} {
		if _, err := w.Dial("tcp", to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", to, err)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if _, err := w.Listen("tcp", "127.0.0.1:0"); err == nil {
		t.Error("a port is forwarded from the job")
	}
	if _, _, err := w.OpenChannel("direct-streamlocal@openssh.com", nil); err == nil {
		t.Error("a channel of an unknown type was opened")
	}
	if _, _, err := w.OpenChannel("direct-tcpip", []byte{1}); err == nil {
		t.Error("a malformed request was accepted")
	}
	s := w.session(t)
	if err := s.Setenv("A=B", "c"); err == nil {
		t.Error("a variable with = was taken")
	}
	for i := range 200 {
		err := s.Setenv(fmt.Sprint("V", i), "x")
		if took := err == nil; took != (i < 128) {
			t.Fatalf("variable %d: %v", i, err)
		}
	}
	for _, r := range []string{"x11-req", "auth-agent-req@openssh.com", "signal", "window-change", "exec", "subsystem", "pty-req", "env"} {
		if ok, err := s.SendRequest(r, true, []byte{0}); ok || err != nil {
			t.Errorf("%s: %v, %v", r, ok, err)
		}
	}
	if err := s.RequestSubsystem("netconf"); err == nil {
		t.Error("an unknown subsystem was started")
	}
	if err := s.Start("wait"); err != nil {
		t.Fatal(err)
	}
	if ok, err := s.SendRequest("exec", true, ssh.Marshal(struct{ C string }{"cat"})); ok || err != nil {
		t.Errorf("a second program in a session: %v, %v", ok, err)
	}
	close(w.waiting)
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

// The programs end with the connection and with the server's context.
func TestEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world){"disconnected": func(w *world) { w.Close() }, "cancelled": func(w *world) { w.end() }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.session(t)
			var shown screen
			s.Stdout = &shown
			if err := s.Start("wait"); err != nil {
				t.Fatal(err)
			}
			shown.shows(t, "waiting")
			end(w)
			w.served <- <-w.served
			eventually(t, "no program runs", func() bool { return w.running.Load() == 0 })
		})
	}
}

// TestAttackChannels opens channels without end: those above the bound are rejected, and the connection goes on.
func TestAttackChannels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var open []ssh.Channel
	for range 4 * sshserver.MaxChannels {
		ch, requests, err := w.OpenChannel("session", nil)
		if err != nil {
			if e, ok := errors.AsType[*ssh.OpenChannelError](err); !ok || e.Reason != ssh.ResourceShortage {
				t.Fatal(err)
			}
			continue
		}
		go ssh.DiscardRequests(requests)
		open = append(open, ch)
	}
	if len(open) != sshserver.MaxChannels {
		t.Errorf("%d channels are open, want %d", len(open), sshserver.MaxChannels)
	}
	for _, ch := range open {
		ch.Close()
	}
	eventually(t, "a session runs again", func() bool {
		s, err := w.NewSession()
		return err == nil && status(s.Run("shout")) == 42
	})
}

// TestAttackRequests floods a session whose program reads nothing with input, sizes and signals: other sessions go on.
func TestAttackRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.session(t)
	in, err := s.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var shown screen
	s.Stdout = &shown
	if err := errors.Join(s.RequestPty("xterm", 24, 80, nil), s.Start("wait")); err != nil {
		t.Fatal(err)
	}
	shown.shows(t, "waiting")
	full := make(chan struct{})
	go func() {
		defer close(full)
		_, _ = in.Write(make([]byte, 16<<20)) // blocks: the window is full
	}()
	for i := range 1000 {
		if err := errors.Join(s.WindowChange(i, i), s.Signal(ssh.SIGINT)); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			if err := w.session(t).Run("shout"); status(err) != 42 {
				t.Fatal(err)
			}
		}
	}
	s.Close()
	<-full
	close(w.waiting) // a program that leaves its input full notices only the next ping's failure
	eventually(t, "no program runs", func() bool { return w.running.Load() == 0 })
}

func TestSFTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := sftp.NewClient(w.Client)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	data := noise(5<<20 + 3)
	at := filepath.Join(dir, "sub", "file")
	f, err := func() (*sftp.File, error) {
		if err := c.MkdirAll(filepath.Dir(at)); err != nil {
			return nil, err
		}
		return c.Create(at)
	}()
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.ReadFrom(bytes.NewReader(data))
	if err := errors.Join(err, f.Close(), c.Chmod(at, 0o700), c.Symlink("file", at+".link"), c.PosixRename(at, filepath.Join(dir, "moved"))); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "moved")); err != nil || !bytes.Equal(b, data) {
		t.Errorf("%v, %d bytes were written", err, len(b))
	}
	if info, err := c.Stat(filepath.Join(dir, "moved")); err != nil || info.Mode() != 0o700 || info.Size() != int64(len(data)) {
		t.Errorf("%v, %v", info, err)
	}
	if f, err = c.Open(filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	if _, err := f.WriteTo(&back); err != nil || !bytes.Equal(back.Bytes(), data) {
		t.Errorf("%v, %d bytes were read", err, back.Len())
	}
	wd, err := os.Getwd()
	if got, gotErr := c.Getwd(); err != nil || gotErr != nil || got != wd {
		t.Errorf("working directory %q, %v, want %q", got, gotErr, wd)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "the server ends", func() bool { return w.running.Load() == 0 })
}
