// Package chunks divides blobs into chunks, which may come from several peers. The list of a blob is the SHA-256 of
// each of its chunks.
//
//	list   32 bytes for each chunk
//	set    bit i%8 of byte i/8 is chunk i
package chunks

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
)

const (
	// Smallest is the size of the chunks of most blobs. The last chunk of a blob may be smaller.
	Smallest = 1 << 20
	// MaxCount bounds the chunks of a blob: in a larger blob, chunks are larger. Its list then has at most 256 KiB.
	MaxCount = 8192
	// MaxBlob is the size of the largest blob that is received from several peers: a chunk is in memory until its
	// digest is known.
	MaxBlob = 256 << 30
)

// Size returns the size of the chunks of a blob: the first power of two from Smallest on for which there are at most
// MaxCount.
func Size(blob int64) int64 {
	chunk := int64(Smallest)
	for (blob-1)/chunk >= MaxCount {
		chunk *= 2
	}
	return chunk
}

// Count returns the number of chunks of a blob.
func Count(blob int64) int {
	chunk := Size(blob)
	return int((blob + chunk - 1) / chunk)
}

// List is the digests of a blob's chunks.
type List struct {
	Blob int64 // size
	Sums [][sha256.Size]byte
}

// Parse returns the list of a blob that was sent or stored. It returns an error if its length is not that of a list.
func Parse(blob int64, data []byte) (List, error) {
	n := Count(blob)
	if len(data) != n*sha256.Size {
		return List{}, fmt.Errorf("chunk list: got %d bytes, want %d", len(data), n*sha256.Size)
	}
	l := List{Blob: blob, Sums: make([][sha256.Size]byte, n)}
	for i := range l.Sums {
		copy(l.Sums[i][:], data[i*sha256.Size:])
	}
	return l, nil
}

// Of returns the list of a blob of a known size that r has. It returns io.ErrUnexpectedEOF if r is shorter.
func Of(r io.Reader, blob int64) (List, error) {
	l := List{Blob: blob, Sums: make([][sha256.Size]byte, Count(blob))}
	for i := range l.Sums {
		_, length := l.Span(i)
		sum := sha256.New()
		switch _, err := io.CopyN(sum, r, length); {
		case err == io.EOF:
			return List{}, io.ErrUnexpectedEOF
		case err != nil:
			return List{}, err
		}
		sum.Sum(l.Sums[i][:0])
	}
	return l, nil
}

// Bytes returns the list as it is sent and stored.
func (l List) Bytes() []byte {
	out := make([]byte, 0, len(l.Sums)*sha256.Size)
	for _, s := range l.Sums {
		out = append(out, s[:]...)
	}
	return out
}

// Span returns the place of chunk i.
func (l List) Span(i int) (offset, length int64) {
	chunk := Size(l.Blob)
	offset = int64(i) * chunk
	return offset, min(chunk, l.Blob-offset)
}

// Matches reports whether data is chunk i.
func (l List) Matches(i int, data []byte) bool { return sha256.Sum256(data) == l.Sums[i] }

// Set is a set of chunks.
type Set []byte

// New returns an empty set for n chunks.
func New(n int) Set { return make(Set, (n+7)/8) }

// All returns the set of n chunks.
func All(n int) Set {
	s := New(n)
	for i := range n {
		s.Add(i)
	}
	return s
}

// Has reports whether chunk i is in the set.
func (s Set) Has(i int) bool { return i/8 < len(s) && s[i/8]&(1<<(i%8)) != 0 }

// Add adds chunk i.
func (s Set) Add(i int) { s[i/8] |= 1 << (i % 8) }

// Equal reports whether both sets have the same chunks.
func (s Set) Equal(other Set) bool { return bytes.Equal(s, other) }

// Clone returns a copy.
func (s Set) Clone() Set { return slices.Clone(s) }

// Covers reports whether all bytes of a part of a blob are in chunks of the set.
func (s Set) Covers(blob, offset, length int64) bool {
	chunk := Size(blob)
	for i := offset / chunk; i*chunk < offset+length; i++ {
		if !s.Has(int(i)) {
			return false
		}
	}
	return true
}
