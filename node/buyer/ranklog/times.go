package ranklog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
	"time"
)

// The file of times lies beside the log. It has a mark for the first frame of each second in which frames arrived:
//
//	offset of the frame u64 BE │ seconds of Unix time u64 BE
//
// Both numbers grow from mark to mark. Where the clock was set back, frames count to the mark before them.
const (
	timesSuffix = ".times"
	markSize    = 16
)

// mark is the arrival of the frame at an offset.
type mark struct{ offset, second int64 }

// times are the marks of a log. The file is open only while one is written or read.
type times struct {
	path string
	n    int64 // marks in the file
	last int64 // second of the last one
}

// openTimes drops marks of frames that a log of this size does not have.
func openTimes(path string, size int64) (t times, err error) {
	t.path = path
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return t, err
	}
	t.n = info.Size() / markSize
	if t.n, err = t.first(f, func(m mark) bool { return m.offset >= size }); err != nil {
		return t, err
	}
	if t.n > 0 {
		m, err := readMark(f, t.n-1)
		if err != nil {
			return t, err
		}
		t.last = m.second
	}
	return t, f.Truncate(t.n * markSize)
}

func readMark(f *os.File, i int64) (mark, error) {
	var b [markSize]byte
	if _, err := f.ReadAt(b[:], i*markSize); err != nil {
		return mark{}, err
	}
	return mark{int64(binary.BigEndian.Uint64(b[:])), int64(binary.BigEndian.Uint64(b[8:]))}, nil
}

// first returns the number of the first mark with a property that all later ones have too, or n.
func (t *times) first(f *os.File, has func(mark) bool) (int64, error) {
	var failed error
	i := sort.Search(int(t.n), func(i int) bool {
		m, err := readMark(f, int64(i))
		if err != nil {
			failed = err
		}
		return has(m)
	})
	return int64(i), failed
}

// add marks the frame at offset if it is the first of its second.
func (t *times) add(offset int64, now time.Time) error {
	if now.Unix() <= t.last {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint64(b, uint64(now.Unix()))
	if _, err := f.WriteAt(b, t.n*markSize); err != nil {
		return err
	}
	t.n, t.last = t.n+1, now.Unix()
	return nil
}

// since returns the offset of the first frame that arrived in the second of at or later, and size if there is none. A
// log without marks begins at 0.
func (t *times) since(at time.Time, size int64) (int64, error) {
	if t.n == 0 {
		return 0, nil
	}
	f, err := os.Open(t.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	i, err := t.first(f, func(m mark) bool { return m.second >= at.Unix() })
	if err != nil || i == t.n {
		return size, err
	}
	m, err := readMark(f, i)
	if err != nil {
		return 0, fmt.Errorf("reading mark %d: %w", i, err)
	}
	return min(m.offset, size), nil
}
