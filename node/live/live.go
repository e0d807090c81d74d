// Package live is the protocol of buyer and provider over a stream into a running execution. It has frames around a
// program that runs beside the first one, and tar archives of its files. The local API forwards the stream unchanged.
//
// A stream that carries a program or files is a sequence of frames in each direction:
//
//	kind u8 │ 0 0 0 │ length u32 │ body            numbers are big-endian
//
//	kind        direction  body
//	1 stdout    back       bytes; an empty one is a sign of life of the provider
//	2 stderr    back       bytes
//	3 stdin     there      bytes
//	4 eof       there      empty: no more stdin
//	5 resize    there      rows u16 ‖ columns u16
//	6 exit      back       code i32; the last frame
//	7 error     back       text for a person: it could not be done; the last frame
//
// Files travel as a tar archive in stdout or stdin frames, the bytes of a port at the local API as stdin and stdout. A
// stream without an exit or error frame at its end was cut.
package live

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/starling-network/starling/market"
)

// Kind is the content of a frame.
type Kind byte

// The kinds of frames.
const (
	Stdout Kind = 1
	Stderr Kind = 2
	Stdin  Kind = 3
	EOF    Kind = 4
	Resize Kind = 5
	Exit   Kind = 6
	Failed Kind = 7
)

const (
	// MaxBody bounds the body of one frame, bytes.
	MaxBody = 64 << 10
	// maxText bounds the text of an error frame, bytes.
	maxText = 1 << 10

	header = 8
)

var (
	// ErrFrame means that the bytes received are no frame of this protocol.
	ErrFrame = errors.New("malformed frame")
	// ErrCut is returned if a stream ended without the result of the program or the copy.
	ErrCut = errors.New("the connection broke off")
)

// Error is a failure at the other end, in its words.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// Frame is one frame. Body is valid until the next read.
type Frame struct {
	Kind Kind
	Body []byte
}

// size checks a body's length against its kind.
func (k Kind) size(n uint32) error {
	ok := false
	switch k {
	case Stdout, Stderr, Stdin:
		ok = n <= MaxBody
	case EOF:
		ok = n == 0
	case Resize, Exit:
		ok = n == 4
	case Failed:
		ok = n <= maxText
	default:
		return fmt.Errorf("%w: kind %d", ErrFrame, k)
	}
	if !ok {
		return fmt.Errorf("%w: kind %d with %d bytes", ErrFrame, k, n)
	}
	return nil
}

// Append adds the encoding of f to b. The frame must keep the protocol's sizes.
func Append(b []byte, f Frame) []byte {
	b = append(b, byte(f.Kind), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.Body)))
	return append(b, f.Body...)
}

// Reader reads frames. It is for one goroutine.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader reads frames from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, header+MaxBody)} }

// Next returns the next frame, io.EOF at an end between two, ErrFrame for anything else.
func (r *Reader) Next() (Frame, error) {
	var h [header]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: cut short", ErrFrame)
		}
		return Frame{}, err
	}
	k, n := Kind(h[0]), binary.BigEndian.Uint32(h[4:])
	if h[1]|h[2]|h[3] != 0 {
		return Frame{}, fmt.Errorf("%w: header % x", ErrFrame, h)
	}
	if err := k.size(n); err != nil {
		return Frame{}, err
	}
	if cap(r.buf) < int(n) {
		r.buf = make([]byte, max(int(n), 4<<10))
	}
	body := r.buf[:n]
	if _, err := io.ReadFull(r.r, body); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: cut short", ErrFrame)
		}
		return Frame{}, err
	}
	return Frame{k, body}, nil
}

// Writer writes frames. It may be used by many goroutines.
type Writer struct {
	turn chan struct{} // has room while no frame is sent
	w    io.Writer
	buf  []byte
	err  error // of the write that failed: a part of its frame may be sent, and no other frame can follow
}

// NewWriter writes frames to w, each with one Write.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, turn: make(chan struct{}, 1)} }

// Write sends one frame; its body must keep the protocol's sizes.
func (w *Writer) Write(k Kind, body []byte) error {
	if err := k.size(uint32(min(len(body), MaxBody+1))); err != nil {
		return err
	}
	w.turn <- struct{}{}
	defer func() { <-w.turn }()
	if w.err == nil {
		w.buf = Append(w.buf[:0], Frame{k, body})
		_, w.err = w.w.Write(w.buf)
	}
	return w.err
}

// Stream is a writer. The bytes become frames of one kind.
func (w *Writer) Stream(k Kind) io.Writer { return frameWriter{w, k} }

type frameWriter struct {
	w *Writer
	k Kind
}

func (f frameWriter) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		n := min(len(p)-done, MaxBody)
		if err := f.w.Write(f.k, p[done:done+n]); err != nil {
			return done, err
		}
		done += n
	}
	return len(p), nil
}

// Resize sends a terminal's size.
func (w *Writer) Resize(rows, cols uint16) error {
	return w.Write(Resize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, rows), cols))
}

// Exit sends the last frame of a program that ended.
func (w *Writer) Exit(code int) error {
	return w.Write(Exit, binary.BigEndian.AppendUint32(nil, uint32(int32(code))))
}

// Fail sends the last frame of a session that failed.
func (w *Writer) Fail(text string) error { return w.Write(Failed, []byte(Clean(text))) }

// Size is the body of a resize frame.
func (f Frame) Size() (rows, cols uint16) {
	return binary.BigEndian.Uint16(f.Body), binary.BigEndian.Uint16(f.Body[2:])
}

// Code is the body of an exit frame.
func (f Frame) Code() int { return int(int32(binary.BigEndian.Uint32(f.Body))) }

// Clean makes a text that came from a peer, or goes to one, fit to be printed in one line.
func Clean(text string) string {
	return market.Clean(text, maxText)
}

// Demultiplex copies output to the two writers until the exit frame, and returns its code. Errors: *Error for
// a failure at the other end, ErrCut for a stream that ends early, ErrFrame, and those of the writers.
func Demultiplex(r io.Reader, stdout, stderr io.Writer) (code int, err error) {
	frames := NewReader(r)
	for {
		f, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return 0, ErrCut
		}
		if err != nil && !errors.Is(err, ErrFrame) {
			return 0, fmt.Errorf("%w: %w", ErrCut, err)
		}
		if err != nil {
			return 0, err
		}
		switch f.Kind {
		case Stdout:
			_, err = stdout.Write(f.Body)
		case Stderr:
			_, err = stderr.Write(f.Body)
		case Exit:
			return f.Code(), nil
		case Failed:
			return 0, &Error{Clean(string(f.Body))}
		default:
			err = fmt.Errorf("%w: kind %d from the program's side", ErrFrame, f.Kind)
		}
		if err != nil {
			return 0, err
		}
	}
}
