package chunks

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestSize(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for size, want := range map[int64]struct {
		chunk int64
		n     int
	}{
		0: {mib, 0}, 1: {mib, 1}, mib: {mib, 1}, mib + 1: {mib, 2}, MaxCount * mib: {mib, MaxCount},
		MaxCount*mib + 1: {2 * mib, MaxCount/2 + 1}, 64 << 30: {8 * mib, MaxCount}, MaxBlob: {32 * mib, MaxCount},
	} {
		if chunk, n := Size(size), Count(size); chunk != want.chunk || n != want.n {
			t.Errorf("%d bytes: %d chunks of %d, want %d of %d", size, n, chunk, want.n, want.chunk)
		}
	}
}

// A list that was sent is the same, and a part of it is none.
func TestParse(t *testing.T) {
	t.Parallel()
	l := List{Blob: 2*Smallest + 1, Sums: make([][32]byte, 3)}
	l.Sums[2][0] = 7
	if got, err := Parse(l.Blob, l.Bytes()); err != nil || got.Sums[2] != l.Sums[2] || got.Blob != l.Blob {
		t.Errorf("%v, %v", got, err)
	}
	for _, n := range []int{0, 64, 95, 97, 128} {
		if _, err := Parse(l.Blob, make([]byte, n)); err == nil {
			t.Errorf("%d bytes are a list of three chunks", n)
		}
	}
	if offset, length := l.Span(2); offset != 2*Smallest || length != 1 {
		t.Errorf("the last chunk has %d bytes from %d on", length, offset)
	}
}

// The list of a blob has the digest of each chunk, and a short blob has none.
func TestOf(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("abcdefg"), Smallest/3)
	l, err := Of(bytes.NewReader(data), int64(len(data)))
	if err != nil || len(l.Sums) != Count(l.Blob) {
		t.Fatalf("%d chunks, %v", len(l.Sums), err)
	}
	for i := range l.Sums {
		offset, length := l.Span(i)
		if !l.Matches(i, data[offset:offset+length]) {
			t.Errorf("chunk %d does not match", i)
		}
	}
	if _, err := Of(bytes.NewReader(data), int64(len(data)+1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short blob: %v", err)
	}
	if l, err := Of(bytes.NewReader(nil), 0); err != nil || len(l.Sums) != 0 {
		t.Errorf("an empty blob: %v, %v", l, err)
	}
}

func TestSet(t *testing.T) {
	t.Parallel()
	s := New(9)
	s.Add(8)
	if !s.Has(8) || s.Has(0) || s.Has(16) || s.Has(1000) || !All(9).Has(0) || All(9).Has(9) {
		t.Errorf("set %v, all %v", s, All(9))
	}
	if s.Covers(9*Smallest, 7*Smallest, 2*Smallest) || !s.Covers(9*Smallest, 8*Smallest, Smallest) || !s.Covers(9*Smallest, 0, 0) {
		t.Error("a part is covered that is not there, or one that is there is not")
	}
}
