package fetch

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// perFile is the counted size of a file, directory or link in addition to its bytes.
const perFile = 4 << 10

// maxWindow bounds the memory that unpacking takes, bytes: files by zstd's own tools need 8 MiB by default.
const maxWindow = 64 << 20

// errBomb means that a layer's unpacked size exceeds its limit.
var errBomb = errors.New("unpacked size: over the limit")

// meter unpacks its input and measures its size on a disk.
type meter struct {
	in    *io.PipeWriter
	limit int64

	done   chan struct{} // closed when the following are set
	size   int64
	digest string // of the unpacked bytes, hexadecimal
	err    error
}

func newMeter(limit int64) *meter {
	r, w := io.Pipe()
	m := &meter{in: w, limit: limit, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		m.size, m.digest, m.err = measure(r, limit)
		_ = r.CloseWithError(errors.Join(m.err, io.ErrClosedPipe)) // later writes return the error
	}()
	return m
}

// Write passes on bytes of the layer.
func (m *meter) Write(p []byte) (int, error) {
	n, err := m.in.Write(p)
	if err != nil {
		<-m.done
		err = m.explain()
	}
	return n, err
}

// finish returns the size of the layer, and the digest of its unpacked bytes.
func (m *meter) finish() (size int64, digest string, err error) {
	_ = m.in.Close()
	<-m.done
	if m.err != nil {
		return 0, "", m.explain()
	}
	return m.size, m.digest, nil
}

func (m *meter) explain() error {
	if errors.Is(m.err, errBomb) {
		return tooLarge(m.limit)
	}
	return bad("a layer cannot be unpacked", m.err)
}

// stop ends the meter's goroutine.
func (m *meter) stop() {
	_ = m.in.CloseWithError(io.ErrUnexpectedEOF)
	<-m.done
}

// measure reads a layer to its end.
func measure(r io.Reader, limit int64) (size int64, digest string, err error) {
	packed := bufio.NewReaderSize(r, chunk)
	plain, err := unpack(packed)
	if err != nil {
		return 0, "", err
	}
	defer plain.Close()
	sum := sha256.New()
	// An archive is hardly larger than its files.
	counted := io.TeeReader(&bounded{plain, limit + perFile}, sum)
	for t := tar.NewReader(counted); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, "", err
		}
		if h.Size > limit-size-perFile {
			return 0, "", errBomb
		}
		size += h.Size + perFile
	}
	if _, err := io.Copy(io.Discard, counted); err != nil { // the digest includes the bytes after the archive's end
		return 0, "", err
	}
	_, err = io.Copy(io.Discard, packed)
	return size, fmt.Sprintf("%x", sum.Sum(nil)), err
}

// bounded is a reader of at most a given number of bytes.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, errBomb
	}
	return n, err
}

// unpack finds out by its first bytes how a layer is packed, as engines do.
func unpack(r *bufio.Reader) (io.ReadCloser, error) {
	magic, err := r.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}
