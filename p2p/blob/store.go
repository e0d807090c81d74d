// Package blob keeps and moves content-addressed files. A blob is bytes; its name is their CIDv1 (raw codec, sha2-256).
// A folder travels as one blob, a deterministic tar archive. The store keeps
//
//	<dir>/blobs/<last two characters>/<cid>   complete and verified; files are read-only and never change
//	<dir>/partial/<cid>                       begun by Fetch, resumed by the next one
//	<dir>/holders/<cid>                       holders of the blob, a line each
//	<dir>/lists/<cid>                         SHA-256 of each chunk of the blob, 32 bytes each
//	<dir>/tmp/                                being written by Put, emptied at the start
//
// A blob becomes visible by one rename after its digest is known to be right.
package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/p2p/blob/pour"
	"github.com/starling-network/starling/p2p/blob/remove"
	"github.com/starling-network/starling/p2p/blob/tee"
)

const (
	// copyBuffer is the memory of one Put or Fetch.
	copyBuffer = 256 << 10
	// partialAge is how long a fetch that broke off can be resumed. Before that it makes room for others.
	partialAge = time.Hour
	// maxPartials is how many of them there are.
	maxPartials = 1024
)

// Store is a folder of blobs. It is safe for concurrent use by one process.
type Store struct {
	dir string
	max int64

	mu       sync.Mutex
	used     int64                     // bytes of complete blobs, and reserved by those being written
	partial  int64                     // bytes of fetches that broke off
	fetching map[cid.Cid]chan struct{} // closed when its Fetch ends

	holders  holders
	lists    lists
	arriving arrivals
	ahead    tee.Table
	disk     func(dir string) (left, all int64, ok bool) // free; tests have their own
}

// OpenStore opens or creates the store in dir. It holds at most maxBytes of complete blobs, and accepts no more when
// the disk's free space is down to the journal's reserve.
func OpenStore(dir string, maxBytes int64) (*Store, error) {
	s := &Store{dir: dir, max: maxBytes, fetching: make(map[cid.Cid]chan struct{}), disk: free}
	s.lists = lists{s: s, turn: make(chan struct{}, 1)}
	s.holders.dir = s.path("holders")
	if err := remove.All(s.path("tmp")); err != nil {
		return nil, fmt.Errorf("opening blob store: %w", err)
	}
	for _, sub := range []string{"blobs", "partial", "holders", "lists", "tmp"} {
		if err := os.MkdirAll(s.path(sub), 0o700); err != nil {
			return nil, fmt.Errorf("opening blob store: %w", diskError(err))
		}
	}
	if err := s.lists.sweep(); err != nil {
		return nil, fmt.Errorf("opening blob store: %w", err)
	}
	partials, err := s.partials()
	if err != nil {
		return nil, fmt.Errorf("opening blob store: %w", err)
	}
	for _, p := range partials {
		s.partial += p.Size()
	}
	s.dropPartials(0)
	err = filepath.WalkDir(s.path("blobs"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			s.used += info.Size()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening blob store: %w", err)
	}
	return s, nil
}

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

// Check refuses CIDs that cannot name a blob.
func Check(c cid.Cid) error {
	if !c.Defined() {
		return fmt.Errorf("%w: undefined", ErrBadCID)
	}
	if p := c.Prefix(); p.Version != 1 || p.Codec != cid.Raw || p.MhType != multihash.SHA2_256 ||
		p.MhLength != sha256.Size {
		return fmt.Errorf("%w: %s", ErrBadCID, c)
	}
	return nil
}

// Parse reads a CID in text or refuses it with ErrBadCID.
func Parse(text string) (cid.Cid, error) {
	c, err := cid.Decode(text)
	if err != nil {
		return cid.Undef, fmt.Errorf("%w: %w", ErrBadCID, err)
	}
	return c, Check(c)
}

// Sum is the CID of bytes.
func Sum(data []byte) cid.Cid {
	h := sha256.New()
	h.Write(data)
	return sumOf(h)
}

func sumOf(h hash.Hash) cid.Cid {
	mh, err := multihash.Encode(h.Sum(nil), multihash.SHA2_256)
	if err != nil {
		panic("blob: " + err.Error()) // the function and length are known
	}
	return cid.NewCidV1(cid.Raw, mh)
}

// file is where a complete blob is.
func (s *Store) file(c cid.Cid) string {
	name := c.String()
	return s.path("blobs", name[len(name)-2:], name)
}

// Has reports whether the store has the blob.
func (s *Store) Has(c cid.Cid) bool {
	_, err := s.Size(c)
	return err == nil
}

// Size is the size of the blob in bytes, or ErrNotFound.
func (s *Store) Size(c cid.Cid) (int64, error) {
	path, err := s.Path(c)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("reading blob: %w", err)
	}
	return info.Size(), nil
}

// Path is the file of the blob, which must not be written to, or ErrNotFound.
func (s *Store) Path(c cid.Cid) (string, error) {
	if err := Check(c); err != nil {
		return "", err
	}
	path := s.file(c)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: %s", ErrNotFound, c)
	} else if err != nil {
		return "", fmt.Errorf("reading blob: %w", err)
	}
	use(path, info)
	return path, nil
}

// Open opens the blob for reading, or returns ErrNotFound. An open blob stays readable after Remove.
func (s *Store) Open(c cid.Cid) (*os.File, error) {
	path, err := s.Path(c)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, c)
	} else if err != nil {
		return nil, fmt.Errorf("reading blob: %w", err)
	}
	return f, nil
}

// Remove removes the blob and its partial file; a missing one is no error.
func (s *Store) Remove(c cid.Cid) error {
	if err := Check(c); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetching[c] == nil {
		part, err := os.Stat(s.path("partial", c.String()))
		if err == nil {
			err = s.dropPartial(part)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing blob: %w", err)
		}
	}
	info, err := os.Stat(s.file(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.Remove(s.file(c))
	}
	if err != nil {
		return fmt.Errorf("removing blob: %w", err)
	}
	s.used -= info.Size()
	if err := errors.Join(s.holders.drop(c), s.lists.drop(c)); err != nil {
		return fmt.Errorf("removing blob: %w", err)
	}
	return nil
}

// reserve takes n bytes of the allowance. It returns ErrFull, or ErrDiskFull if the disk's free space is at its floor.
func (s *Store) reserve(n int64) error {
	if left, all, ok := s.disk(s.dir); ok && left < floor(all) {
		return fmt.Errorf("%w: %d bytes are free, %d are kept so", ErrDiskFull, left, floor(all))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.max-s.used-s.partial {
		s.dropPartials(n - (s.max - s.used - s.partial))
	}
	if n > s.max-s.used-s.partial {
		return fmt.Errorf("%w: %d bytes more, %d of %d in use", ErrFull, n, s.used, s.max)
	}
	s.used += n
	return nil
}

// partials returns the interrupted and running fetches, oldest first.
func (s *Store) partials() ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(s.path("partial"))
	if err != nil {
		return nil, err
	}
	var out []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			out = append(out, info)
		}
	}
	slices.SortFunc(out, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return out, nil
}

// dropPartials removes the partial files of old fetches, and of others until room bytes are free. s.mu is held.
func (s *Store) dropPartials(room int64) {
	all, err := s.partials()
	if err != nil {
		return // nothing is gained
	}
	for i, p := range all {
		if c, err := cid.Decode(p.Name()); err == nil && s.fetching[c] != nil {
			continue // it is not counted
		}
		if room <= 0 && time.Since(p.ModTime()) <= partialAge && len(all)-i <= maxPartials {
			return
		}
		if s.dropPartial(p) == nil {
			room -= p.Size()
		}
	}
}

// dropPartial removes a counted partial blob. s.mu is held.
func (s *Store) dropPartial(p fs.FileInfo) error {
	err := os.Remove(s.path("partial", p.Name()))
	if err == nil {
		s.partial -= p.Size()
	}
	return err
}

// countPartial adds the size of a fetch's partial file if sign is 1, or subtracts it if sign is -1.
func (s *Store) countPartial(c cid.Cid, sign int64) {
	if info, err := os.Stat(s.path("partial", c.String())); err == nil {
		s.partial += sign * info.Size()
	}
}

func (s *Store) release(n int64) {
	s.mu.Lock()
	s.used -= n
	s.mu.Unlock()
}

// keep makes the verified file at tmp the blob c. Its size is already reserved, and released again when
// the blob was there before.
func (s *Store) keep(tmp string, c cid.Cid, size int64) error {
	if err := os.MkdirAll(filepath.Dir(s.file(c)), 0o700); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Stat(s.file(c)); err == nil {
		s.used -= size
		now := time.Now()
		_ = os.Chtimes(s.file(c), now, now) // it is used again
		_ = os.Remove(tmp)                  // else it is removed at the next start
		return nil
	}
	if err := os.Rename(tmp, s.file(c)); err != nil {
		return err
	}
	now := time.Now()
	_ = os.Chtimes(s.file(c), now, now) // a fetch may have begun long ago
	_ = os.Chmod(s.file(c), 0o400)      // a reminder only
	return nil
}

// Put stores the content of r and returns its CID and size. Errors: ErrFull, ErrDiskFull, the reader's, the context's;
// nothing is kept then.
func (s *Store) Put(ctx context.Context, r io.Reader) (cid.Cid, int64, error) {
	c, size, err := s.put(ctx, r)
	if err != nil {
		return cid.Undef, 0, fmt.Errorf("storing blob: %w", diskError(err))
	}
	return c, size, nil
}

// reserving reads from r and reserves room in the store for the bytes that it read.
type reserving struct {
	ctx context.Context
	s   *Store
	r   io.Reader
	n   *int64 // reserved bytes
}

func (v *reserving) Read(p []byte) (int, error) {
	if err := v.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := v.r.Read(p)
	if rerr := v.s.reserve(int64(n)); rerr != nil {
		return 0, rerr
	}
	*v.n += int64(n)
	return n, err
}

func (s *Store) put(ctx context.Context, r io.Reader) (c cid.Cid, size int64, err error) {
	f, err := os.CreateTemp(s.path("tmp"), "put-*")
	if err != nil {
		return cid.Undef, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
			s.release(size)
		}
	}()
	h := sha256.New()
	if _, err := pour.Copy(f, 0, h, &reserving{ctx: ctx, s: s, r: r, n: &size}, 0, nil); err != nil {
		return cid.Undef, size, err
	}
	// Before the rename, or a crash could leave a blob with a name and without its bytes.
	if err := f.Sync(); err != nil {
		return cid.Undef, size, err
	}
	c = sumOf(h)
	if err := s.keep(f.Name(), c, size); err != nil {
		return cid.Undef, size, err
	}
	_ = f.Close() // everything is on the disk already
	return c, size, nil
}

// PutFile stores the file at path.
func (s *Store) PutFile(ctx context.Context, path string) (cid.Cid, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return cid.Undef, 0, fmt.Errorf("storing blob: %w", err)
	}
	defer f.Close()
	return s.Put(ctx, f)
}
