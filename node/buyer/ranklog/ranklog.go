// Package ranklog keeps the log of one rank of a job in a file, which grows while readers follow it.
//
// The file is a sequence of frames, as Docker multiplexes the two streams of a container:
//
//	stream u8 (1 stdout, 2 stderr) │ 0 0 0 │ length u32 BE │ bytes
//
// It spans all executions of the rank. A torn last frame is cut when the file is opened again. A second file has the
// times at which frames arrived at this peer.
package ranklog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
)

const (
	// FrameHeader is the size of a frame's header in bytes.
	FrameHeader = 8
	// StreamStdout and StreamStderr are the two streams.
	StreamStdout, StreamStderr = 1, 2

	// MaxFrame bounds the bytes of one frame.
	MaxFrame = 1 << 20
	// maxLog bounds one rank's log. The log ends with a note where it was cut.
	maxLog = 256 << 20
)

var (
	// ErrFull is returned for a frame that a full log drops.
	ErrFull = errors.New("log is full")
	// ErrEnded is returned for a log that takes no more frames.
	ErrEnded = errors.New("log has ended")
)

// Blobs stores files by digest.
type Blobs interface {
	// Put stores the bytes of r and returns their digest and number.
	Put(ctx context.Context, r io.Reader) (cid.Cid, int64, error)
	// Path returns the path of a stored file.
	Path(c cid.Cid) (string, error)
}

// Log is the log of one rank. One goroutine may write it, and many may follow it. Its file is open only until it ends,
// and while it is read: a peer remembers more jobs than it may open files.
type Log struct {
	path string

	mu   sync.Mutex
	f    *os.File // nil once it has ended
	size int64
	at   times
	wake chan struct{} // closed and replaced when size or done changes
	done bool
	full bool
}

// Open opens or creates a log. It cuts a torn last frame.
func Open(path string) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	l := &Log{path: path, f: f, wake: make(chan struct{})}
	if l.size, _, _, err = scanFrames(f, 0); err == nil {
		err = f.Truncate(l.size)
	}
	if err == nil {
		l.at, err = openTimes(path+timesSuffix, l.size)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	return l, nil
}

// scanFrames walks the whole frames from offset on and returns where they end
// and how many bytes of each stream they hold.
func scanFrames(r io.ReaderAt, offset int64) (end int64, stdout, stderr uint64, err error) {
	var h [FrameHeader]byte
	for end = offset; ; {
		if _, err := r.ReadAt(h[:], end); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return end, stdout, stderr, err
		}
		n := int64(binary.BigEndian.Uint32(h[4:]))
		if n == 0 || n > MaxFrame || (h[0] != StreamStdout && h[0] != StreamStderr) {
			return end, stdout, stderr, nil
		}
		var last [1]byte
		if _, err := r.ReadAt(last[:], end+FrameHeader+n-1); err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return end, stdout, stderr, err
		}
		if h[0] == StreamStdout {
			stdout += uint64(n)
		} else {
			stderr += uint64(n)
		}
		end += FrameHeader + n
	}
}

// Offsets returns the bytes of each stream from base on.
func (l *Log) Offsets(base int64) (stdout, stderr uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, 0, ErrEnded
	}
	_, stdout, stderr, err = scanFrames(l.f, base)
	return stdout, stderr, err
}

// Append adds one frame. It returns ErrFull if the log has no room, and ErrEnded after End.
func (l *Log) Append(stream byte, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return ErrFull
	}
	if l.f == nil {
		return ErrEnded
	}
	if l.size+int64(len(data)) > maxLog {
		l.full = true
		stream, data = StreamStderr, fmt.Appendf(nil, "\n[starling: log cut here, limit of %d MiB]\n", maxLog>>20)
	}
	if err := l.at.add(l.size, time.Now()); err != nil {
		return fmt.Errorf("writing a log's times: %w", err)
	}
	b := encode(stream, data)
	if _, err := l.f.WriteAt(b, l.size); err != nil {
		return fmt.Errorf("writing a log: %w", err)
	}
	l.size += int64(len(b))
	l.notify()
	return nil
}

// encode returns a frame.
func encode(stream byte, data []byte) []byte {
	b := make([]byte, FrameHeader, FrameHeader+len(data))
	b[0] = stream
	binary.BigEndian.PutUint32(b[4:], uint32(len(data)))
	return append(b, data...)
}

func (l *Log) notify() {
	close(l.wake)
	l.wake = make(chan struct{})
}

// End closes the file and releases the followers: the log takes no more frames.
func (l *Log) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.done = true
		l.f.Close()
		l.f = nil
		l.notify()
	}
}

// Len returns the size of the log in bytes.
func (l *Log) Len() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Query selects the frames of a log.
type Query struct {
	// Since leaves out frames that arrived in seconds before that of Since; zero is the begin.
	Since time.Time
	// Tail is the number of lines before the end of the log as it is now; nil is all.
	Tail *int
	// Follow waits for more until the log ends.
	Follow bool
	// Timestamps begins each line with the second in which it arrived at this peer, in UTC, or with - if that is
	// unknown. A line that was written while this peer was away arrived later.
	Timestamps bool
}

// Copy writes the frames that q selects to w. With Follow it returns when the log ends or ctx does.
func (l *Log) Copy(ctx context.Context, w io.Writer, q Query) error {
	f, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	defer f.Close()
	stamped := &stamper{w: w}
	pass := func(from, to int64, at times) (int64, error) {
		if q.Timestamps {
			return to - from, stamped.pass(f, from, to, at)
		}
		return io.Copy(w, io.NewSectionReader(f, from, to-from))
	}
	offset, err := l.begin(ctx, f, q, w, stamped)
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	for {
		l.mu.Lock()
		size, at, done, wake := l.size, l.at, l.done, l.wake
		l.mu.Unlock()
		if offset < size {
			n, err := pass(offset, size, at)
			offset += n
			if err != nil {
				return err
			}
			continue
		}
		if !q.Follow || done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// begin returns the offset from which on q selects all frames, after writing the lines before it that q selects.
func (l *Log) begin(ctx context.Context, f *os.File, q Query, w io.Writer, stamped *stamper) (offset int64, err error) {
	l.mu.Lock()
	size, at := l.size, l.at
	if !q.Since.IsZero() {
		offset, err = at.since(q.Since, size)
	}
	l.mu.Unlock()
	if err != nil || q.Tail == nil {
		return offset, err
	}
	put := func(f frame) error {
		_, err := w.Write(encode(f.stream, f.data))
		return err
	}
	if q.Timestamps {
		c, err := at.clock(offset)
		if err != nil {
			return offset, err
		}
		defer c.close()
		put = func(f frame) error { return stamped.put(f, c) }
	}
	return copyTail(ctx, put, f, offset, size, *q.Tail)
}

// Store stores the log as a file and returns its digest and size. The size of an empty log is 0, and nothing is stored.
func (l *Log) Store(ctx context.Context, blobs Blobs) (c cid.Cid, n int64, err error) {
	f, err := os.Open(l.path)
	if err != nil {
		return c, 0, fmt.Errorf("reading a log: %w", err)
	}
	defer f.Close()
	if l.Len() == 0 {
		return c, 0, nil
	}
	return blobs.Put(ctx, io.NewSectionReader(f, 0, l.Len()))
}

// Restore replaces the log from offset base on by a file that another peer kept. Even for malformed bytes, the log has
// whole frames afterwards. They count as arrived now.
func (l *Log) Restore(blobs Blobs, c cid.Cid, base int64) error {
	path, err := blobs.Path(c)
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	defer from.Close()
	end, _, _, err := scanFrames(from, 0)
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return ErrEnded
	}
	base = min(base, l.size)
	if end > maxLog-base {
		return ErrFull
	}
	n, err := io.Copy(io.NewOffsetWriter(l.f, base), io.NewSectionReader(from, 0, end))
	if err != nil {
		return fmt.Errorf("writing a log: %w", err)
	}
	l.size = base + n
	l.notify()
	if err := l.f.Truncate(l.size); err != nil {
		return err
	}
	if l.at, err = openTimes(l.path+timesSuffix, base); err == nil && n > 0 {
		err = l.at.add(base, time.Now())
	}
	return err
}
