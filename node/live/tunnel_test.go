package live

import (
	"bytes"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/iotest"
)

// socket returns the two ends of a connection over a local socket, the one that was dialled first.
func socket(t *testing.T) (dialled, accepted net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if dialled, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled, accepted
}

// program is a connection to a program that takes everything, and answers with r.
type program struct {
	io.Reader
	took bytes.Buffer
	half chan struct{} // closed when the caller's half has ended
}

func answering(r io.Reader) *program { return &program{Reader: r, half: make(chan struct{})} }

func (p *program) Write(b []byte) (int, error) { return p.took.Write(b) }
func (p *program) CloseWrite() error           { close(p.half); return nil }
func (p *program) Close() error                { return nil }

// The halves of a tunnel end one by one, and all bytes arrive.
func TestTunnel(t *testing.T) {
	t.Parallel()
	d, a := socket(t)
	answer := bytes.Repeat([]byte("answer "), 100_000)
	p := answering(bytes.NewReader(answer))
	done := make(chan error, 1)
	go func() { done <- Splice(t.Context(), AcceptTunnel(a), p) }()
	caller := DialTunnel(d)
	if b, err := io.ReadAll(caller); err != nil || !bytes.Equal(b, answer) {
		t.Errorf("%d bytes came, %v", len(b), err)
	}
	if _, err := io.WriteString(caller, "after the other half"); err != nil {
		t.Error(err)
	}
	if err := caller.CloseWrite(); err != nil {
		t.Error(err)
	}
	if <-p.half; p.took.String() != "after the other half" {
		t.Errorf("the program got %q", p.took.String())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A part is never taken for the whole, though the caller's half has ended and nothing of it is unread: a local socket
// shows an end then.
func TestTunnelBreaks(t *testing.T) {
	t.Parallel()
	d, a := socket(t)
	p := answering(nil)
	p.Reader = io.MultiReader(bytes.NewReader([]byte("a part")), waiting{p.half}, iotest.ErrReader(errors.New("cut by the relay")))
	go func() { _ = Splice(t.Context(), AcceptTunnel(a), p) }()
	caller := DialTunnel(d)
	if err := caller.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(caller)
	if failed, ok := errors.AsType[*Error](err); !ok || failed.Text != "cut by the relay" || string(b) != "a part" {
		t.Errorf("%q, %v", b, err)
	}

	// A peer that is gone without a word.
	d, a = socket(t)
	_ = NewWriter(a).Write(Stdout, []byte("a part"))
	_ = a.Close()
	if b, err := io.ReadAll(DialTunnel(d)); !errors.Is(err, ErrCut) || string(b) != "a part" {
		t.Errorf("%q, %v", b, err)
	}
	// A caller that is gone without a word: the program must not take its half for complete.
	d, a = socket(t)
	_ = d.Close()
	if _, err := AcceptTunnel(a).Read(make([]byte, 1)); !errors.Is(err, ErrCut) {
		t.Errorf("the caller is gone: %v", err)
	}
}

// waiting is an empty reader until c is closed.
type waiting struct{ c chan struct{} }

func (w waiting) Read([]byte) (int, error) { <-w.c; return 0, io.EOF }

// A caller that takes nothing does not keep a tunnel from failing, and what it reads then is no frame that was not sent.
func TestTunnelFailsUnread(t *testing.T) {
	t.Parallel()
	d, a := socket(t)
	end := AcceptTunnel(a)
	wrote := make(chan struct{})
	filled := bytes.Repeat([]byte{'x'}, MaxBody)
	go func() {
		for { // until the socket is full, and the tunnel fails
			if _, err := end.Write(filled); err != nil {
				close(wrote)
				return
			}
		}
	}()
	end.Fail(errors.New("over"))
	<-wrote
	b, err := io.ReadAll(DialTunnel(d))
	if err == nil || len(bytes.Trim(b, "x")) != 0 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// Frames of the wrong direction end a tunnel.
func TestTunnelWrongFrames(t *testing.T) {
	t.Parallel()
	for _, k := range []Kind{Stderr, Stdin, EOF, Resize} {
		wire := Append(nil, Frame{k, make([]byte, map[Kind]int{Resize: 4}[k])})
		c := struct {
			io.Reader
			io.WriteCloser
		}{bytes.NewReader(wire), nil}
		if _, err := DialTunnel(c).Read(make([]byte, 1)); !errors.Is(err, ErrFrame) {
			t.Errorf("kind %d: %v", k, err)
		}
	}
	for _, k := range []Kind{Stdout, Stderr, Exit, Failed} {
		d, a := socket(t)
		_, _ = d.Write(Append(nil, Frame{k, make([]byte, 4)}))
		if _, err := AcceptTunnel(a).Read(make([]byte, 1)); !errors.Is(err, ErrFrame) {
			t.Errorf("kind %d from a caller: %v", k, err)
		}
	}
}
