package runtime

import (
	"fmt"
	"io"
	"sync"
)

// LogWriter passes on the first bytes of a log and drops the rest behind one LogCutMarker line, so that a program
// that prints without end can neither fill the disk nor be slowed down by it. It never fails: a log that cannot be
// written is dropped too, and Err says so.
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

// Write takes all of b, whatever becomes of it.
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
