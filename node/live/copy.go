package live

import (
	"errors"
	"fmt"
	"io"
)

// Receive copies the archive that a provider sends to w, most bytes at most.
func Receive(conn io.Reader, w io.Writer, most int64) error {
	code, err := Demultiplex(conn, &atMost{w: w, left: most}, io.Discard)
	return copied(code, err)
}

func copied(code int, err error) error {
	if err == nil && code != 0 {
		err = fmt.Errorf("%w: a copy with exit code %d", ErrFrame, code)
	}
	return err
}

// atMost refuses more bytes than a provider may send.
type atMost struct {
	w    io.Writer
	left int64
}

func (a *atMost) Write(p []byte) (int, error) {
	if a.left -= int64(len(p)); a.left < 0 {
		return 0, fmt.Errorf("%w: the provider sends more than the lease has disk", ErrRoom)
	}
	return a.w.Write(p)
}

// Breaker is a stream to a peer that can be broken off: the peer then sees no end of it.
type Breaker interface {
	io.ReadWriter
	Abort()
}

// source records the read errors of a reader, separately from write errors.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// Send copies an archive to a provider, which unpacks it. It aborts conn, and closes r, which must end a Read that
// waits.
func Send(conn Breaker, r io.ReadCloser) error {
	unread, over := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(over)
		from := &source{Reader: r}
		if _ = sendAll(conn, from); from.err != nil {
			unread <- from.err
			conn.Abort() // the archive itself could not be read: the provider must not take it for whole
		}
	}()
	code, err := Demultiplex(conn, io.Discard, io.Discard)
	select {
	case reading := <-unread: // a later one is this side's own doing
		if errors.Is(err, ErrCut) {
			err = reading
		}
	default:
	}
	conn.Abort()
	_ = r.Close()
	<-over
	return copied(code, err)
}

func sendAll(conn io.Writer, r io.Reader) error {
	w := NewWriter(conn)
	_, err := io.CopyBuffer(struct{ io.Writer }{w.Stream(Stdin)}, struct{ io.Reader }{r}, make([]byte, MaxBody))
	if err == nil {
		err = w.Write(EOF, nil)
	}
	return err
}
