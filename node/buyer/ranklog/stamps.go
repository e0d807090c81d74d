package ranklog

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"time"
)

const (
	// stampLayout is the layout of a stamp, in UTC; one space separates it from the line.
	stampLayout = "2006-01-02T15:04:05Z"
	// unknownStamp begins a line whose time of arrival is unknown.
	unknownStamp = "-"
	// stampedFrame is the size at which a frame of stamped lines is written: each byte of a log may be a line.
	stampedFrame = 64 << 10
)

// stamper writes frames whose lines begin with the second in which they arrived at this peer. A line that arrived in
// parts has the second of its first part.
type stamper struct {
	w     io.Writer
	inner [StreamStderr + 1]bool // by stream: the next byte continues a line
}

// pass writes the frames between two offsets.
func (s *stamper) pass(r io.ReaderAt, from, to int64, at times) error {
	c, err := at.clock(from)
	if err != nil {
		return err
	}
	defer c.close()
	for f, err := range frames(r, from, to) {
		if err == nil {
			err = s.put(f, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// put writes one frame.
func (s *stamper) put(f frame, c *clock) error {
	stamp, err := c.stamp(f.offset)
	if err != nil {
		return err
	}
	var out []byte
	for rest := f.data; len(rest) > 0; {
		line := rest[:min(len(rest), stampedFrame)]
		i := bytes.IndexByte(line, '\n')
		if i >= 0 {
			line = rest[:i+1]
		}
		if !s.inner[f.stream] {
			out = append(out, stamp...)
		}
		out, rest = append(out, line...), rest[len(line):]
		s.inner[f.stream] = i < 0
		if len(out) < stampedFrame && len(rest) > 0 {
			continue
		}
		if _, err := s.w.Write(encode(f.stream, out)); err != nil {
			return err
		}
		out = out[:0]
	}
	return nil
}

// clock finds the seconds of frames in their order.
type clock struct {
	times
	f    *os.File // nil without marks
	i    int64    // number of the next mark
	next int64    // its offset
	text string   // stamp of frames before it
}

// clock returns a clock for frames from an offset on.
func (t times) clock(offset int64) (c *clock, err error) {
	c = &clock{times: t, text: unknownStamp + " "}
	if c.f, err = os.Open(t.path); errors.Is(err, fs.ErrNotExist) {
		c.f, c.n = nil, 0
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.i, err = t.first(c.f, func(m mark) bool { return m.offset > offset })
	c.i = max(c.i-1, 0)
	if errors.Is(err, io.EOF) {
		c.n, err = 0, nil
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close closes the file of marks.
func (c *clock) close() {
	if c.f != nil {
		_ = c.f.Close()
	}
}

// stamp returns the begin of a line in the frame at offset.
func (c *clock) stamp(offset int64) (string, error) {
	err := c.advance(offset)
	return c.text, err
}

// advance reads the marks up to offset, and the one behind it.
func (c *clock) advance(offset int64) error {
	for c.next <= offset {
		if c.i >= c.n {
			c.next = math.MaxInt64
			return nil
		}
		m, err := readMark(c.f, c.i)
		if errors.Is(err, io.EOF) { // the log was restored
			c.n = c.i
			continue
		}
		if err != nil {
			return err
		}
		if c.next = m.offset; c.next <= offset {
			c.text = time.Unix(m.second, 0).UTC().Format(stampLayout) + " "
			c.i++
		}
	}
	return nil
}
