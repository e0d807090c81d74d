package live

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
)

// tunnel is one end of a connection that carries the bytes of two halves in frames. Its ends distinguish a half that
// ended from a connection that broke; a local socket by itself shows both as an end.
type tunnel struct {
	io.Closer
	in  input
	out *Writer
	of  Kind // of the frames that are sent
	end func(*Writer) error
}

// DialTunnel makes the caller's end. Read returns io.EOF when the program's half has ended, ErrCut where the connection
// ended before that, and an *Error with the reason for a tunnel that the other end gave up.
func DialTunnel(c io.ReadWriteCloser) Conn {
	return &tunnel{
		Closer: c, in: input{frames: NewReader(c), of: Stdout, end: Exit},
		out: NewWriter(c), of: Stdin,
		end: func(w *Writer) error { return w.Write(EOF, nil) },
	}
}

// AcceptTunnel makes the end at the program's side.
func AcceptTunnel(c net.Conn) *AcceptedTunnel {
	return &AcceptedTunnel{conn: c, tunnel: tunnel{
		Closer: c, in: input{frames: NewReader(c), of: Stdin, end: EOF},
		out: NewWriter(c), of: Stdout,
		end: func(w *Writer) error { return w.Exit(0) },
	}}
}

func (t *tunnel) Read(p []byte) (int, error) { return t.in.Read(p) }

func (t *tunnel) Write(p []byte) (int, error) { return t.out.Stream(t.of).Write(p) }

// CloseWrite ends this end's half.
func (t *tunnel) CloseWrite() error { return t.end(t.out) }

// AcceptedTunnel is the end at the program's side. Read returns io.EOF when the caller's half has ended, and ErrCut
// where the connection ended before that.
type AcceptedTunnel struct {
	tunnel
	conn net.Conn
}

// failTime is how long the other end has to take the reason of a break.
const failTime = time.Second

// Fail closes the tunnel and gives the reason to the other end, where that still takes it.
func (t *AcceptedTunnel) Fail(why error) {
	_ = t.conn.SetWriteDeadline(time.Now().Add(failTime)) // also ends a pending Write
	_ = t.out.Fail(why.Error())
	_ = t.Close()
}

// Input is the content of stdin frames until an eof frame, for a side that only takes.
func Input(conn io.Reader) io.Reader {
	return &input{frames: NewReader(conn), of: Stdin, end: EOF}
}

// input is the content of the frames of one kind until one of another.
type input struct {
	frames  *Reader
	of, end Kind
	rest    bytes.Reader
	over    error
}

func (in *input) Read(p []byte) (int, error) {
	for in.rest.Len() == 0 {
		if in.over != nil {
			return 0, in.over
		}
		f, err := in.frames.Next()
		switch {
		case errors.Is(err, io.EOF):
			in.over = ErrCut
		case err != nil:
			in.over = err
		case f.Kind == in.end:
			in.over = io.EOF
		case f.Kind == in.of:
			in.rest.Reset(f.Body)
		case f.Kind == Failed && in.of == Stdout:
			in.over = &Error{Clean(string(f.Body))}
		default:
			in.over = ErrFrame
		}
	}
	return in.rest.Read(p)
}
