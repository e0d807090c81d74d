package live

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/starling-network/starling/node/runtime"
)

// pingEvery is the interval of the program side's pings. They detect the loss of the other end, also while the program
// neither reads nor writes.
const pingEvery = 15 * time.Second

// Session is the streams of a program that runs for the other end.
type Session struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Sizes          <-chan runtime.Size // the latest one waits
}

// Serve gives the program that run starts the stream's other end for a terminal, and sends it the result of the
// program. The program's context ends when the other end is gone or breaks the protocol. It returns when conn is
// unused; the error is the stream's.
func Serve(
	ctx context.Context, conn io.ReadWriteCloser, rows, cols uint32, run func(context.Context, Session) (int, error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := NewWriter(conn)
	pr, pw := io.Pipe()
	sizes := make(chan runtime.Size, 1)
	if rows > 0 && cols > 0 {
		sizes <- runtime.Size{Rows: uint16(rows), Cols: uint16(cols)}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel()
		receive(conn, pw, sizes)
	})
	done := make(chan struct{})
	wg.Go(func() {
		ping := time.NewTicker(pingEvery)
		defer ping.Stop()
		for {
			select {
			case <-done:
				return
			case <-ping.C:
				if w.Write(Stdout, nil) != nil {
					cancel()
					return
				}
			}
		}
	})
	out := func(k Kind) io.Writer { return stopWriter{w.Stream(k), cancel} }
	code, err := run(ctx, Session{Stdin: pr, Stdout: out(Stdout), Stderr: out(Stderr), Sizes: sizes})
	close(done)
	_ = pr.CloseWithError(io.ErrClosedPipe) // later frames are read and dropped
	if err != nil {
		err = w.Fail(err.Error())
	} else {
		err = w.Exit(code)
	}
	if closed := conn.Close(); err == nil {
		err = closed
	}
	wg.Wait()
	return err
}

// stopWriter ends a program when its output cannot be delivered.
type stopWriter struct {
	io.Writer
	stop context.CancelFunc
}

func (s stopWriter) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		s.stop()
	}
	return n, err
}

// receive takes the frames of the other end until it is gone or breaks the protocol. An end of the stream without an
// eof frame is the other end's, and ends the program.
func receive(conn io.Reader, stdin *io.PipeWriter, sizes chan runtime.Size) {
	defer stdin.Close()
	for frames := NewReader(conn); ; {
		f, err := frames.Next()
		if err != nil {
			return
		}
		switch f.Kind {
		case Stdin:
			_, _ = stdin.Write(f.Body) // fails when the program has ended; the frames after it still must be read
		case EOF:
			_ = stdin.Close()
		case Resize:
			rows, cols := f.Size()
			select { // a pending size is outdated
			case <-sizes:
			default:
			}
			sizes <- runtime.Size{Rows: rows, Cols: cols}
		default:
			return
		}
	}
}
