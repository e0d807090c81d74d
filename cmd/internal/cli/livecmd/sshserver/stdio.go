package sshserver

import (
	"io"
	"net"
	"net/netip"
	"time"
)

// loopback reports whether a host is the program's own, as users name it.
func loopback(host string) bool {
	if host == "localhost" || host == "" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.IsLoopback() || a.IsUnspecified())
}

// stdio is a connection of two pipes. Close ends a pending Read, also where that of the reader below cannot end.
type stdio struct {
	*io.PipeReader
	out io.WriteCloser
}

func newStdio(in io.Reader, out io.WriteCloser) *stdio {
	r, w := io.Pipe()
	go func() { // not waited for: its read may never end
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err) // nil: io.EOF
	}()
	return &stdio{r, out}
}

func (s *stdio) Write(p []byte) (int, error) { return s.out.Write(p) }

func (s *stdio) Close() error {
	_ = s.PipeReader.Close()
	return s.out.Close()
}

type address struct{}

func (address) Network() string { return "pipe" }
func (address) String() string  { return "stdio" }

func (*stdio) LocalAddr() net.Addr              { return address{} }
func (*stdio) RemoteAddr() net.Addr             { return address{} }
func (*stdio) SetDeadline(time.Time) error      { return nil }
func (*stdio) SetReadDeadline(time.Time) error  { return nil }
func (*stdio) SetWriteDeadline(time.Time) error { return nil }
