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
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/starling-network/starling/p2p/blob/chunks"
	"github.com/starling-network/starling/p2p/blob/pour"
	"github.com/starling-network/starling/p2p/stream"
)

// Fetch is Receive from a peer, for no holder.
func Fetch(
	ctx context.Context, h host.Host, network string, from peer.ID, c cid.Cid, max int64, s *Store,
	progress func(done, total int64),
) error {
	_, err := s.Receive(ctx, Peer{h, network, from}, c, max, nil, progress)
	return err
}

// Receive reads the blob c, of at most max bytes, from a source into s, or where an Unpacking of a holder needs it
// alone, and notes its holders. If the blob is in s already, nothing is transferred, no holder is added, and fresh is
// false. An interrupted transfer is resumed; two transfers of one blob wait for each other. progress is optional; it is
// called with the bytes so far and in all, from the goroutine of Receive. Errors: ErrNotFound, ErrTooLarge, ErrDigest,
// ErrFull, ErrDiskFull, ErrBadCID, those of package stream, the source's, and the context's.
func (s *Store) Receive(
	ctx context.Context, from Source, c cid.Cid, max int64, holders []string, progress func(done, total int64),
) (fresh bool, err error) {
	if err = Check(c); err == nil {
		err = s.exclusively(ctx, c, func() error {
			if s.Has(c) {
				return nil
			}
			fresh = true
			done, err := gather(ctx, s, from, c, max, holders, progress)
			if !done {
				var resumed bool
				resumed, err = fetch(ctx, s, from, c, max, holders, progress)
				if errors.Is(err, ErrDigest) && resumed {
					// The first part may be false, from another source: retry from the beginning.
					_, err = fetch(ctx, s, from, c, max, holders, progress)
				}
			}
			for _, h := range holders {
				if err == nil && s.Has(c) {
					err = s.Bring(c, h)
				}
			}
			return err
		})
	}
	if err != nil {
		return fresh, fmt.Errorf("fetching blob %s: %w", c, diskError(notFound(err)))
	}
	return fresh, nil
}

// Proof has a source show that it has a blob that is here already, by sending it: its CID alone is no right to it.
type Proof struct {
	s    *Store
	c    cid.Cid
	sum  hash.Hash
	have int64
}

// NewProof begins a proof for the blob c of s.
func NewProof(s *Store, c cid.Cid) *Proof { return &Proof{s: s, c: c, sum: sha256.New()} }

// Take reads the source, which may send at most max bytes, from where the last attempt broke off. Nothing is written.
// progress is optional. The errors are those of Receive.
func (p *Proof) Take(ctx context.Context, from Source, max int64, progress func(done, total int64)) error {
	if err := p.take(ctx, from, max, progress); err != nil {
		return fmt.Errorf("fetching blob %s: %w", p.c, notFound(err))
	}
	return nil
}

func (p *Proof) take(ctx context.Context, from Source, max int64, progress func(done, total int64)) error {
	size, err := p.s.Size(p.c)
	if err != nil {
		return err
	}
	if size > max {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, max)
	}
	body, shown, err := from.Open(ctx, p.c, p.have, max)
	if err != nil {
		return err
	}
	defer body.Close()
	if shown >= 0 && shown != size {
		return fmt.Errorf("%w: %d bytes, want %d", ErrDigest, shown, size)
	}
	buf := make([]byte, copyBuffer)
	for p.have < size {
		n, err := body.Read(buf[:min(int64(len(buf)), size-p.have)])
		p.sum.Write(buf[:n])
		p.have += int64(n)
		if progress != nil {
			progress(p.have, size)
		}
		if err == io.EOF && p.have < size {
			err = fmt.Errorf("%w: %d of %d bytes came", stream.ErrUnreachable, p.have, size)
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	if sumOf(p.sum) != p.c {
		return ErrDigest
	}
	return nil
}

// notFound gives a peer's refusal its name here.
func notFound(err error) error {
	var refused *stream.Refused
	if errors.As(err, &refused) && refused.Code == CodeNotFound {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// exclusively runs f while no other fetch of c runs.
func (s *Store) exclusively(ctx context.Context, c cid.Cid, f func() error) error {
	for {
		s.mu.Lock()
		busy := s.fetching[c]
		if busy == nil {
			busy = make(chan struct{})
			s.dropPartials(0)
			s.countPartial(c, -1) // it is reserved instead
			s.fetching[c] = busy
			s.mu.Unlock()
			defer func() {
				s.mu.Lock()
				s.countPartial(c, 1)
				delete(s.fetching, c)
				s.mu.Unlock()
				close(busy)
			}()
			return f()
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fetch is one attempt; it reports whether it began with bytes of an earlier one. Fellows of the holders see that the
// blob comes, and get none of its bytes: these are verified at the end.
func fetch(
	ctx context.Context, s *Store, from Source, c cid.Cid, max int64, holders []string, report func(done, total int64),
) (resumed bool, err error) {
	f, err := openPartial(s, c)
	if err != nil {
		return false, err
	}
	path := f.Name()
	defer f.Close()
	sum := sha256.New()
	have, err := resume(f, sum)
	if err != nil {
		return false, err
	}
	body, size, err := from.Open(ctx, c, have, max)
	if err != nil {
		if have == 0 || errors.Is(err, ErrDigest) || errors.Is(err, ErrTooLarge) {
			err = errors.Join(err, os.Remove(path))
		}
		return have > 0, err
	}
	defer body.Close()
	if size > max {
		return have > 0, errors.Join(fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, max), os.Remove(path))
	}
	if size > 0 && size <= chunks.MaxBlob && len(holders) > 0 {
		a := &arrival{size: size, holders: holders, have: chunks.New(chunks.Count(size))}
		defer s.arriving.announce(c, a)()
	}
	to := f
	if have == 0 {
		var alone bool
		var end func(error)
		sum, alone, end = s.ahead.Along(c, holders, sum)
		defer func() { end(err) }()
		if alone {
			to = nil
		}
	}
	in := &incoming{ctx: ctx, s: s, from: body, have: have, size: size, max: max, progress: report}
	total, err := in.receive(to, sum)
	switch {
	case err == nil && sumOf(sum) != c:
		err = errors.Join(ErrDigest, os.Remove(path))
	case errors.Is(err, ErrTooLarge):
		err = errors.Join(err, os.Remove(path))
	case to == nil:
		err = errors.Join(err, os.Remove(path))
	case err == nil:
		if err = f.Sync(); err == nil {
			err = s.keep(path, c, total)
		}
	}
	if err != nil {
		s.release(in.reserved)
	}
	return have > 0, err
}

// resume reads a blob's partial file into sum and returns its usable length. Large blobs resume at a multiple of
// pour.Align, so that they can be written past the page cache.
func resume(f *os.File, sum hash.Hash) (have int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	have = info.Size()
	if have >= pour.Align {
		have -= have % pour.Align
		if err := f.Truncate(have); err != nil {
			return 0, err
		}
	}
	_, err = io.CopyBuffer(sum, onlyReader{f}, make([]byte, copyBuffer))
	return have, err
}

// incoming is a body on its way into the store.
type incoming struct {
	ctx       context.Context
	s         *Store
	from      io.Reader
	have      int64 // bytes of earlier attempts
	size, max int64 // of the whole; size is -1 if it is not known
	reserved  int64
	progress  func(done, total int64)
}

// receive appends the body to f and sum, and returns the length of the whole. Room for a body of unknown size is
// reserved as it comes. Without f, only sum has the body.
func (in *incoming) receive(f *os.File, sum hash.Hash) (total int64, err error) {
	told := func(done int64) {
		if in.progress != nil {
			in.progress(done, in.size)
		}
	}
	end, length := in.size, in.size
	if in.size < 0 {
		end, length = in.max+1, 0
	}
	body := io.LimitReader(in.from, end-in.have)
	if f != nil {
		known := max(in.size, in.have)
		if err := in.s.reserve(known); err != nil {
			return 0, err
		}
		in.reserved = known
	}
	if in.size < 0 && f != nil {
		body = &reserving{ctx: in.ctx, s: in.s, r: body, n: &in.reserved}
	} else {
		body = &roomy{s: in.s, r: body}
	}
	told(in.have)
	n, err := pour.Copy(f, in.have, sum, body, length, told)
	total = in.have + n
	switch {
	case err != nil:
		return total, err
	case in.size >= 0 && total < in.size:
		return total, fmt.Errorf("%w: %d of %d bytes came", stream.ErrUnreachable, total, in.size)
	case total > in.max:
		return total, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, in.max)
	}
	return total, nil
}

// lookEvery is the number of received bytes between checks of the disk's free space.
const lookEvery = 8 << 20

// roomy reads while the disk's free space is above its reserve.
type roomy struct {
	s *Store
	r io.Reader
	n int64 // since the last look
}

func (r *roomy) Read(p []byte) (int, error) {
	if r.n >= lookEvery {
		r.n = 0
		if err := r.s.reserve(0); err != nil {
			return 0, err
		}
	}
	n, err := r.r.Read(p)
	r.n += int64(n)
	return n, err
}

// onlyReader hides the other methods of a file, so that io.CopyBuffer uses the buffer it is given.
type onlyReader struct{ io.Reader }
