package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob/blobpb"
	"github.com/starling-network/starling/p2p/blob/chunks"
	"github.com/starling-network/starling/p2p/blob/swarm"
	"github.com/starling-network/starling/p2p/stream"
)

// Shared is a source that sends parts of a blob.
type Shared interface {
	Source
	swarm.Supplier
	// List returns the size of a blob of at most most bytes, and its chunk list.
	List(ctx context.Context, c cid.Cid, most int64) (size int64, list []byte, err error)
}

// Swarm is a source with fellows, which receive the same blob. The chunk list of the source is believed as much as the
// source: the CID decides. A fellow is believed for each chunk by its digest.
type Swarm struct {
	Shared
	Fellows []swarm.Supplier
	Turn    int // this receiver's place among itself and the fellows, from 0; each has another
	// Spare means that the source is costly: it is asked for what fellows have only while they are slow.
	Spare bool
}

// List implements Shared.
func (p Peer) List(ctx context.Context, c cid.Cid, most int64) (size int64, list []byte, err error) {
	most = min(most, chunks.MaxBlob)
	req := &blobpb.Request{Cid: c.Bytes(), Part: &blobpb.Request_List{List: true}}
	head, body, err := transfer.Open(ctx, p.Host, p.Network, p.ID, req)
	if err != nil {
		return 0, nil, err
	}
	defer body.Close()
	if head.GetSize() > uint64(most) {
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, head.GetSize(), most)
	}
	size = int64(head.GetSize())
	if want := int64(chunks.Count(size)) * sha256.Size; body.Size != want {
		return 0, nil, fmt.Errorf("%w: chunk list: got %d bytes, want %d", stream.ErrBadReply, body.Size, want)
	}
	list = make([]byte, body.Size)
	return size, list, readAll(body, list)
}

// Part implements swarm.Supplier.
func (p Peer) Part(ctx context.Context, c cid.Cid, size, offset int64, into []byte) (has []byte, err error) {
	has, err = p.part(ctx, c, size, offset, into)
	var no *stream.Refused
	switch refused := errors.As(err, &no); {
	case refused && no.Code == stream.CodeBusy:
		err = fmt.Errorf("%w: %w", swarm.ErrBusy, err)
	case refused:
		err = fmt.Errorf("%w: %w", swarm.ErrNothing, err)
	case errors.Is(err, stream.ErrBadReply):
		err = fmt.Errorf("%w: %w", swarm.ErrChunk, err)
	}
	return has, err
}

func (p Peer) part(ctx context.Context, c cid.Cid, size, offset int64, into []byte) (has []byte, err error) {
	part := &blobpb.Request_Length{Length: uint64(len(into))}
	req := &blobpb.Request{Cid: c.Bytes(), Offset: uint64(offset), Part: part}
	head, body, err := transfer.Open(ctx, p.Host, p.Network, p.ID, req)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if head.GetSize() != uint64(size) || body.Size != int64(len(into)) {
		return nil, fmt.Errorf("%w: %d bytes of %d, want %d of %d", stream.ErrBadReply, body.Size, head.GetSize(),
			len(into), size)
	}
	if got, want := len(head.GetChunks()), len(chunks.New(chunks.Count(size))); got > 0 && got != want {
		return nil, fmt.Errorf("%w: set of chunks: got %d bytes, want %d", stream.ErrBadReply, got, want)
	}
	return head.GetChunks(), readAll(body, into)
}

// readAll fills into.
func readAll(body io.Reader, into []byte) error {
	n, err := io.ReadFull(body, into)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %d of %d bytes came", stream.ErrUnreachable, n, len(into))
	}
	return err
}

// gather receives a blob from a source and its fellows. It reports false if the source has none, or serves no chunks:
// the blob is to be read from the source alone then.
func gather(
	ctx context.Context, s *Store, from Source, c cid.Cid, most int64, holders []string,
	progress func(done, total int64),
) (done bool, err error) {
	all, ok := from.(Swarm)
	if !ok || len(all.Fellows) == 0 {
		return false, nil
	}
	size, data, err := all.List(ctx, c, most)
	var malformed *stream.Malformed
	switch {
	case errors.As(err, &malformed), errors.Is(err, stream.ErrBadReply):
		return false, nil // it serves no lists, or none of so large a blob
	case err != nil:
		return true, err
	case size > most || size < 0:
		return true, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, most)
	}
	list, err := chunks.Parse(size, data)
	if err != nil {
		return true, fmt.Errorf("%w: %w", ErrDigest, err)
	}
	a := &assembly{s: s, c: c, list: list, progress: progress,
		arrival: &arrival{size: size, holders: holders, have: chunks.New(len(list.Sums))}}
	err = a.run(ctx, all)
	if errors.Is(err, ErrDigest) { // the list is false, and perhaps the blob is not
		return false, nil
	}
	return true, err
}

// assembly is a blob on its way into the store, in chunks.
type assembly struct {
	s        *Store
	c        cid.Cid
	list     chunks.List
	arrival  *arrival
	progress func(done, total int64)

	sum    *follower
	prefix int   // chunks from the beginning that are there
	done   int64 // bytes that are there
	looked int64 // of these, at the last look at the disk
}

// run receives the chunks of the list into the partial file of the blob, and stores the blob if its digest is right.
// Chunks that an earlier attempt left are read again and kept if they match the list.
func (a *assembly) run(ctx context.Context, from Swarm) (err error) {
	s, l := a.s, a.list
	if err := s.reserve(l.Blob); err != nil {
		return err
	}
	f, err := openPartial(s, a.c)
	if err != nil {
		s.release(l.Blob)
		return err
	}
	defer func() {
		if errors.Is(err, ErrDigest) {
			err = errors.Join(err, os.Remove(f.Name()))
		}
		if err != nil {
			s.release(l.Blob)
		}
		_ = f.Close() // everything that counts is on the disk already
	}()
	if err := a.found(ctx, f); err != nil {
		return err
	}
	defer s.arriving.announce(a.c, a.arrival)()
	sum, _, end := s.ahead.Along(a.c, nil, sha256.New())
	defer func() { end(err) }()
	a.sum = follow(f, l, sum)
	a.tell()
	err = swarm.Receive(ctx, swarm.Order{
		CID: a.c, List: l, File: f, Have: a.arrival.now().have, Source: from.Shared, Fellows: from.Fellows,
		Turn: from.Turn, Spare: from.Spare, Came: a.came,
	})
	got, serr := a.sum.end()
	switch {
	case errors.Is(err, swarm.ErrChunk):
		return fmt.Errorf("%w: %w", ErrDigest, err)
	case err != nil:
		return err
	case serr != nil:
		return serr
	case got != a.c:
		return fmt.Errorf("%w: the source's chunk list is of another blob", ErrDigest)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := s.keep(f.Name(), a.c, l.Blob); err != nil {
		return err
	}
	_ = s.lists.write(a.c, l) // else it is computed when it is needed
	return nil
}

// came notes a new chunk. It returns ErrDiskFull if the disk has become too full for more.
func (a *assembly) came(i int) error {
	_, length := a.list.Span(i)
	a.arrival.add(i)
	a.done += length
	a.tell()
	if a.done-a.looked < lookEvery {
		return nil
	}
	a.looked = a.done
	return a.s.reserve(0)
}

// tell reports the progress, and what can be read from the file's beginning on.
func (a *assembly) tell() {
	have := a.arrival.have // nobody else adds to it
	for ; a.prefix < len(a.list.Sums) && have.Has(a.prefix); a.prefix++ {
		a.sum.ready(a.prefix)
	}
	if a.progress != nil {
		a.progress(a.done, a.list.Blob)
	}
}

// openPartial opens the partial file of a blob, which it makes if there is none.
func openPartial(s *Store, c cid.Cid) (*os.File, error) {
	return os.OpenFile(s.path("partial", c.String()), os.O_RDWR|os.O_CREATE, 0o600)
}

// found adds the chunks that the partial file has already. Bytes beyond the blob's size are cut off.
func (a *assembly) found(ctx context.Context, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > a.list.Blob {
		if err := f.Truncate(a.list.Blob); err != nil {
			return err
		}
	}
	var buf []byte
	for i := range a.list.Sums {
		offset, length := a.list.Span(i)
		if offset+length > info.Size() {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if buf == nil {
			buf = make([]byte, length)
		}
		if _, err := f.ReadAt(buf[:length], offset); err != nil {
			return fmt.Errorf("reading partial blob: %w", err)
		}
		if a.list.Matches(i, buf[:length]) {
			a.arrival.have.Add(i)
			a.done += length
		}
	}
	return nil
}

// follower computes the digest of a file while its chunks come, in their order.
type follower struct {
	next  chan int // chunks that can be read, ascending from 0
	ended chan struct{}
	sum   hash.Hash
	err   error
}

// follow begins to compute the digest of a file in sum.
func follow(f *os.File, l chunks.List, sum hash.Hash) *follower {
	w := &follower{next: make(chan int, len(l.Sums)), ended: make(chan struct{}), sum: sum}
	go func() {
		defer close(w.ended)
		buf := make([]byte, copyBuffer)
		for i := range w.next {
			offset, length := l.Span(i)
			if _, err := io.CopyBuffer(w.sum, onlyReader{io.NewSectionReader(f, offset, length)}, buf); err != nil {
				w.err = fmt.Errorf("reading partial blob: %w", err)
				return
			}
		}
	}()
	return w
}

// ready says that chunk i and all before are in the file. It does not block.
func (w *follower) ready(i int) { w.next <- i }

// end waits for the digest of the chunks that were ready.
func (w *follower) end() (cid.Cid, error) {
	close(w.next)
	<-w.ended
	return sumOf(w.sum), w.err
}
