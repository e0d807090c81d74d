package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// LogWriter writes the first bytes of a log and then one LogCutMarker line, and drops the rest. A program that prints
// without end thus neither fills the disk nor is slowed down. Write never fails: Err reports a failed write, and later
// output is dropped.
type LogWriter struct {
	mu    sync.Mutex
	w     io.Writer
	limit int64
	left  int64
	cut   bool
	err   error
}

// NewLogWriter writes to w at most limit bytes and the marker.
func NewLogWriter(w io.Writer, limit int64) *LogWriter {
	return &LogWriter{w: w, limit: limit, left: limit}
}

// Write accepts all of b and returns no error.
func (l *LogWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut || l.err != nil {
		return len(b), nil
	}
	keep := b
	if int64(len(b)) > l.left {
		keep = b[:l.left]
		l.cut = true
	}
	l.left -= int64(len(keep))
	if _, err := l.w.Write(keep); err != nil {
		l.err = fmt.Errorf("writing log: %w", err)
		return len(b), nil
	}
	if l.cut {
		if _, err := fmt.Fprintf(l.w, "%s%d bytes reached]\n", LogCutMarker, l.limit); err != nil {
			l.err = fmt.Errorf("writing log: %w", err)
		}
	}
	return len(b), nil
}

// Err is the first error of the writer below, after which the log ends without a marker.
func (l *LogWriter) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// FollowLog is Logger.Logs for a stream that is a growing file: it reads until over is closed and the file is at its
// end. When gone is closed before, the reader fails with ErrClosed.
func FollowLog(
	ctx context.Context, path string, s Stream, offset int64, over, gone <-chan struct{},
) (io.ReadCloser, error) {
	if s != Stdout && s != Stderr || offset < 0 {
		return nil, fmt.Errorf("reading log: no offset %d in stream %q", offset, s)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading log: %w", err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("reading log: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &follower{ctx: ctx, cancel: cancel, f: f, over: over, gone: gone}, nil
}

type follower struct {
	ctx        context.Context
	cancel     context.CancelFunc
	f          *os.File
	over, gone <-chan struct{}
}

// followFirst and followMost are the shortest and longest pause between reads of a log that does not grow.
const (
	followFirst = time.Millisecond
	followMost  = 250 * time.Millisecond
)

func (f *follower) Read(p []byte) (int, error) {
	for pause := followFirst; ; pause = min(2*pause, followMost) {
		over := false
		select {
		case <-f.over: // checked before reading: everything written before the end is then read
			over = true
		default:
		}
		if n, err := f.f.Read(p); n > 0 || !errors.Is(err, io.EOF) || over {
			return n, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-f.over:
		case <-f.gone:
			t.Stop()
			return 0, ErrClosed
		case <-f.ctx.Done():
			t.Stop()
			return 0, f.ctx.Err()
		}
		t.Stop()
	}
}

func (f *follower) Close() error {
	f.cancel()
	return f.f.Close()
}
