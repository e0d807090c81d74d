package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob/chunks"
)

// listTime is how long one request may wait for a list that has to be computed. A later request continues it.
const listTime = 20 * time.Second

// lists are the chunk lists of stored blobs. They are computed at the first request, one at a time.
type lists struct {
	s    *Store
	turn chan struct{} // has one place, for the computation of next

	next struct { // is being computed; requests continue each other
		c    cid.Cid
		size int64
		sums [][sha256.Size]byte
	}
}

// of returns the list of a stored blob. It returns errBusy if that takes longer than listTime, ErrTooLarge for a blob
// that has no list, and ErrNotFound if the blob is not in the store.
func (l *lists) of(ctx context.Context, c cid.Cid) (chunks.List, error) {
	size, err := l.s.Size(c)
	if err != nil {
		return chunks.List{}, err
	}
	if size > chunks.MaxBlob {
		return chunks.List{}, fmt.Errorf("%w: %d bytes, lists are of at most %d", ErrTooLarge, size,
			int64(chunks.MaxBlob))
	}
	if list, err := l.read(c, size); err == nil {
		return list, nil
	}
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return chunks.List{}, errBusy
	}
	defer func() { <-l.turn }()
	if list, err := l.read(c, size); err == nil { // by the one before
		return list, nil
	}
	if l.next.c != c {
		l.next.c, l.next.size, l.next.sums = c, size, nil
	}
	if err := l.compute(ctx); err != nil {
		if ctx.Err() != nil {
			err = errBusy
		}
		return chunks.List{}, err
	}
	list := chunks.List{Blob: size, Sums: l.next.sums}
	l.next.c = cid.Undef
	return list, l.write(c, list)
}

// compute completes next, unless ctx ends before. The caller has the turn.
func (l *lists) compute(ctx context.Context) error {
	f, err := l.s.Open(l.next.c)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, copyBuffer)
	list := chunks.List{Blob: l.next.size}
	for n := chunks.Count(list.Blob); len(l.next.sums) < n; {
		if err := ctx.Err(); err != nil {
			return err
		}
		offset, length := list.Span(len(l.next.sums))
		sum := sha256.New()
		if _, err := io.CopyBuffer(sum, onlyReader{io.NewSectionReader(f, offset, length)}, buf); err != nil {
			return fmt.Errorf("reading blob: %w", err)
		}
		l.next.sums = append(l.next.sums, [sha256.Size]byte(sum.Sum(nil)))
	}
	return nil
}

func (l *lists) dir() string           { return filepath.Join(l.s.dir, "lists") }
func (l *lists) file(c cid.Cid) string { return filepath.Join(l.dir(), c.String()) }

func (l *lists) read(c cid.Cid, size int64) (chunks.List, error) {
	data, err := os.ReadFile(l.file(c))
	if err != nil {
		return chunks.List{}, err
	}
	return chunks.Parse(size, data)
}

// write stores the list of a stored blob.
func (l *lists) write(c cid.Cid, list chunks.List) error {
	f, err := os.CreateTemp(l.s.path("tmp"), "list-*")
	if err != nil {
		return fmt.Errorf("storing chunk list: %w", diskError(err))
	}
	_, err = f.Write(list.Bytes())
	// Before the rename, or a crash could leave a false list of a true blob.
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		l.s.mu.Lock()
		if _, gone := os.Stat(l.s.file(c)); gone == nil {
			err = os.Rename(f.Name(), l.file(c))
		} else {
			err = os.Remove(f.Name()) // the blob was removed meanwhile
		}
		l.s.mu.Unlock()
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("storing chunk list: %w", diskError(err))
	}
	return nil
}

func (l *lists) drop(c cid.Cid) error {
	if err := os.Remove(l.file(c)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sweep removes the lists of blobs that a crash left behind.
func (l *lists) sweep() error {
	entries, err := os.ReadDir(l.dir())
	if err != nil {
		return err
	}
	for _, e := range entries {
		c, err := Parse(e.Name())
		if err == nil {
			if _, err = os.Stat(l.s.file(c)); err == nil {
				continue
			}
		}
		if err := os.Remove(filepath.Join(l.dir(), e.Name())); err != nil {
			return err
		}
	}
	return nil
}
