package buyer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/ipfs/go-cid"

	work "github.com/starling-network/starling/node/workload"
)

// A rank's log is one file of frames, as Docker multiplexes its two streams:
//
//	stream u8 (1 stdout, 2 stderr) │ 0 0 0 │ length u32 BE │ bytes
//
// It spans all executions of the rank; a torn last frame is cut when the file
// is opened again.
const (
	// FrameHeader is the size of a frame's header in bytes.
	FrameHeader = 8
	// StreamStdout and StreamStderr are the two streams.
	StreamStdout, StreamStderr = 1, 2

	maxFrame = 1 << 20
	// maxRankLog bounds one rank's log; what comes later is dropped and said so.
	maxRankLog = 256 << 20
)

var (
	errLogFull  = errors.New("log is full")
	errLogEnded = errors.New("log has ended")
)

// ranklog is the log of one rank. It may be written by one goroutine and
// followed by many. Its file is open only until it ends, and while it is read:
// a peer remembers more jobs than it may open files.
type ranklog struct {
	path string

	mu   sync.Mutex
	f    *os.File // nil once it has ended
	size int64
	wake chan struct{} // closed and replaced when size or done changes
	done bool
	full bool
}

func openRanklog(path string) (*ranklog, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	l := &ranklog{path: path, f: f, wake: make(chan struct{})}
	if l.size, _, _, err = scanFrames(f, 0); err == nil {
		err = f.Truncate(l.size)
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
		if n == 0 || n > maxFrame || (h[0] != StreamStdout && h[0] != StreamStderr) {
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

// offsets returns how much of each stream the log has from base on.
func (l *ranklog) offsets(base int64) (stdout, stderr uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return 0, 0, errLogEnded
	}
	_, stdout, stderr, err = scanFrames(l.f, base)
	return stdout, stderr, err
}

// append adds one frame.
func (l *ranklog) append(stream byte, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return errLogFull
	}
	if l.f == nil {
		return errLogEnded
	}
	if l.size+int64(len(data)) > maxRankLog {
		l.full = true
		stream, data = StreamStderr, fmt.Appendf(nil, "\n[starling: log cut here, limit of %d MiB]\n", maxRankLog>>20)
	}
	b := make([]byte, FrameHeader, FrameHeader+len(data))
	b[0] = stream
	binary.BigEndian.PutUint32(b[4:], uint32(len(data)))
	b = append(b, data...)
	if _, err := l.f.WriteAt(b, l.size); err != nil {
		return fmt.Errorf("writing a log: %w", err)
	}
	l.size += int64(len(b))
	l.notify()
	return nil
}

func (l *ranklog) notify() {
	close(l.wake)
	l.wake = make(chan struct{})
}

// end says that nothing more will come, and closes the file.
func (l *ranklog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done {
		l.done = true
		l.f.Close()
		l.f = nil
		l.notify()
	}
}

func (l *ranklog) length() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// copy writes the frames from offset on to w; with follow, until the log ends
// or ctx does.
func (l *ranklog) copy(ctx context.Context, w io.Writer, offset int64, follow bool) error {
	f, err := os.Open(l.path)
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	defer f.Close()
	for {
		l.mu.Lock()
		size, done, wake := l.size, l.done, l.wake
		l.mu.Unlock()
		if offset < size {
			n, err := io.Copy(w, io.NewSectionReader(f, offset, size-offset))
			offset += n
			if err != nil {
				return err
			}
			continue
		}
		if !follow || done {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		}
	}
}

// store keeps what the log has so far as a file; nothing for an empty one.
func (l *ranklog) store(ctx context.Context, blobs work.Blobs) (c cid.Cid, n int64, err error) {
	f, err := os.Open(l.path)
	if err != nil {
		return c, 0, fmt.Errorf("reading a log: %w", err)
	}
	defer f.Close()
	if l.length() == 0 {
		return c, 0, nil
	}
	return blobs.Put(ctx, io.NewSectionReader(f, 0, l.length()))
}

// restore replaces what the log has from offset base on by a file that another peer kept. Whatever that holds, the log has whole
// frames afterwards.
func (l *ranklog) restore(blobs work.Blobs, b Blob, base int64) error {
	c, err := cid.Parse(b.CID)
	if err != nil {
		return err
	}
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
		return errLogEnded
	}
	base = min(base, l.size)
	if end > maxRankLog-base {
		return errLogFull
	}
	n, err := io.Copy(io.NewOffsetWriter(l.f, base), io.NewSectionReader(from, 0, end))
	if err != nil {
		return fmt.Errorf("writing a log: %w", err)
	}
	l.size = base + n
	l.notify()
	return l.f.Truncate(l.size)
}
