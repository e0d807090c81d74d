// Package pour copies a stream to a file, and to a hash, reading, hashing and writing at the same time.
package pour

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"unsafe"
)

const (
	// piece is the number of bytes read and hashed at a time, so that they are still in the processor's cache.
	piece = 256 << 10
	// A file is written in buffers of these sizes, with this number of buffers in flight.
	small, large, buffers = 1 << 20, 8 << 20, 3
	// Align must divide memory address, offset and length of a direct write.
	Align = 4096
	// Direct is the length from which a file is written past the page cache. It would push other programs' pages out,
	// and on a virtual machine each new page of it may cost more than the write.
	Direct = 16 << 20
)

// part is the newest data of a buffer: b[from:]. When last is set, the buffer goes to the disk as it is.
type part struct {
	b    []byte
	from int
	last bool
}

// Copy copies src to f from offset off on, and to sum, reading, hashing and writing at the same time. size is the
// length the file will have, 0 if not known. It returns the bytes of src in the file, also with an error of src or the
// disk. Without f, only sum has the bytes. The end of src is not an error, and errors of sum are ignored. done is
// optional; it is called with the length so far from this goroutine.
func Copy(
	f *os.File, off int64, sum io.Writer, src io.Reader, size int64, done func(length int64),
) (written int64, err error) {
	w := &writer{f: f, off: off}
	buffer, allocate := small, aligned
	if f != nil && size-off >= Direct && off%Align == 0 {
		if w.direct = openDirect(f); w.direct != nil {
			var release func()
			buffer = large
			allocate, release = hugePages(buffers * large)
			defer release()
		}
	}
	if size > 0 {
		buffer = int(max(1, min(int64(buffer), size-off)))
	}
	free, read, hashed, ended := newQueues()
	go func() {
		defer close(hashed)
		for p := range read {
			_, _ = sum.Write(p.b[p.from:])
			if p.last {
				hashed <- p.b
			}
		}
	}()
	go func() {
		defer close(ended)
		for b := range hashed {
			w.write(b)
			free <- b[:buffer]
		}
	}()
	length := off
	for err == nil && !w.failed.Load() {
		b := <-free
		if b == nil {
			b = allocate(buffer)
		}
		for at := 0; at < len(b) && err == nil; {
			var n int
			end := min(len(b), at+piece)
			n, err = io.ReadFull(src, b[at:end])
			read <- part{b: b[:at+n], from: at, last: err != nil || end == len(b)}
			at += n
			length += int64(n)
			if n > 0 && done != nil {
				done(length)
			}
		}
	}
	close(read)
	<-ended
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return w.off - off, errors.Join(w.close(), err)
}

// Fill writes size bytes of src to the empty file f, small ones with a buffer of the caller. It returns
// io.ErrUnexpectedEOF if src ends before.
func Fill(f *os.File, src io.Reader, size int64, buf []byte) (err error) {
	var n int64
	if src = io.LimitReader(src, size); size < Direct {
		n, err = io.CopyBuffer(onlyWriter{f}, src, buf)
	} else {
		n, err = Copy(f, 0, io.Discard, src, size, nil)
	}
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// onlyWriter hides the other methods of a file, so that io.CopyBuffer uses the buffer it is given.
type onlyWriter struct{ io.Writer }

// newQueues returns the queues of buffers: free buffers, read parts, hashed full buffers, and the end.
func newQueues() (free chan []byte, read chan part, hashed chan []byte, ended chan struct{}) {
	free = make(chan []byte, buffers)
	for range buffers {
		free <- nil // made when first needed: most blobs are small
	}
	return free, make(chan part, 8), make(chan []byte, buffers), make(chan struct{})
}

// writer appends to a file, past the page cache where it can.
type writer struct {
	f      *os.File
	direct *os.File // nil: through the page cache
	off    int64
	err    error
	failed atomic.Bool
}

// write appends b, unless an earlier write failed.
func (w *writer) write(b []byte) {
	if w.err != nil {
		return
	}
	if w.direct != nil {
		whole := len(b) - len(b)%Align
		w.put(w.direct, b[:whole])
		if b = b[whole:]; len(b) > 0 { // the end of the file; nothing aligned can follow
			w.err = errors.Join(w.err, w.direct.Close())
			w.direct = nil
		}
	}
	w.put(w.f, b)
}

func (w *writer) put(f *os.File, b []byte) {
	if w.err != nil || len(b) == 0 {
		return
	}
	if f == nil {
		w.off += int64(len(b))
		return
	}
	n, err := f.WriteAt(b, w.off)
	w.off += int64(n)
	if err != nil {
		w.err = err
		w.failed.Store(true)
	}
}

func (w *writer) close() error {
	if w.direct == nil {
		return w.err
	}
	return errors.Join(w.err, w.direct.Close())
}

// aligned is a buffer of n bytes that direct writes accept.
func aligned(n int) []byte {
	b := make([]byte, n+Align)
	skip := misaligned(b, Align)
	return b[skip : skip+n : skip+n]
}

// misaligned is how many bytes into b the first address is that is a multiple of to.
func misaligned(b []byte, to int) int {
	return (to - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(to))) % to
}
