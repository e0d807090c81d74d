package ranklog

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// frame is one frame of a log. Its data is valid until the next one is read.
type frame struct {
	offset int64
	stream byte
	data   []byte
}

// end is the offset of the frame behind f.
func (f frame) end() int64 { return f.offset + FrameHeader + int64(len(f.data)) }

// frames reads the frames of a log from one offset to another, both at the begin of a frame.
func frames(r io.ReaderAt, from, to int64) iter.Seq2[frame, error] {
	return func(yield func(frame, error) bool) {
		br := bufio.NewReaderSize(io.NewSectionReader(r, from, to-from), 64<<10)
		f := frame{offset: from}
		for ; f.offset < to; f.offset = f.end() {
			var h [FrameHeader]byte
			_, err := io.ReadFull(br, h[:])
			n := int(binary.BigEndian.Uint32(h[4:]))
			if err == nil && (n == 0 || n > MaxFrame) {
				err = fmt.Errorf("frame of %d bytes, want 1 to %d", n, MaxFrame)
			}
			if err == nil {
				f.stream, f.data = h[0], slices.Grow(f.data[:0], n)[:n]
				_, err = io.ReadFull(br, f.data)
			}
			if !yield(f, err) || err != nil {
				return
			}
		}
	}
}

// cut is the begin of the lines of one stream that are kept: skip bytes of the frame at offset go before it.
type cut struct {
	offset int64
	skip   int
}

// kept returns the rest of a frame.
func (c cut) kept(f frame) []byte {
	switch {
	case f.offset < c.offset:
		return nil
	case f.offset == c.offset:
		return f.data[c.skip:]
	}
	return f.data
}

// copyTail puts the last lines of the frames between two offsets, up to the end of a frame, and returns its
// offset: behind it everything is kept. A line belongs to the place where it ends, and none is divided. It reads the
// frames up to three times and holds one in memory.
func copyTail(ctx context.Context, put func(frame) error, r io.ReaderAt, from, to int64, lines int) (int64, error) {
	if lines <= 0 {
		return to, nil
	}
	total, err := countLines(ctx, r, from, to)
	if err != nil || total <= lines {
		return from, err
	}
	cuts, err := cutLines(ctx, r, from, to, total-lines)
	if err != nil {
		return from, err
	}
	out, errs := cuts[StreamStdout], cuts[StreamStderr]
	from = min(out.offset, errs.offset)
	for f, err := range frames(r, from, to) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return from, err
		}
		if data := cuts[f.stream].kept(f); len(data) > 0 {
			if err := put(frame{f.offset, f.stream, data}); err != nil {
				return from, err
			}
		}
		if from = f.end(); f.offset >= max(out.offset, errs.offset) {
			break
		}
	}
	return from, nil
}

// countLines returns the number of lines. Rests without an end are one together.
func countLines(ctx context.Context, r io.ReaderAt, from, to int64) (n int, err error) {
	var rest [256]bool
	for f, err := range frames(r, from, to) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return 0, err
		}
		n += bytes.Count(f.data, []byte{'\n'})
		rest[f.stream] = f.data[len(f.data)-1] != '\n'
	}
	if rest[StreamStdout] || rest[StreamStderr] {
		n++
	}
	return n, nil
}

// cutLines returns by stream the begin of the lines behind the first drop ones.
func cutLines(ctx context.Context, r io.ReaderAt, from, to int64, drop int) (cuts map[byte]cut, err error) {
	cuts = map[byte]cut{StreamStdout: {offset: from}, StreamStderr: {offset: from}}
	for f, err := range frames(r, from, to) {
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		for skip := 0; drop > 0; drop-- {
			i := bytes.IndexByte(f.data[skip:], '\n')
			if i < 0 {
				break
			}
			skip += i + 1
			cuts[f.stream] = cut{f.offset, skip}
		}
		if drop == 0 {
			break
		}
	}
	return cuts, nil
}
