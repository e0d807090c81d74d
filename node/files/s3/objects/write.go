package objects

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/node/files/s3"
)

const (
	// partSize is the length of the parts of large objects, and the most that goes in one request. The checksum of an
	// object in one request is its SHA-256, so that it can be an input without being read.
	partSize = 64 << 20
	threads  = 4
	// giveUp is the number of failed objects after which no other is begun.
	giveUp = 16
)

// ErrExists means that another object has the name of one that was to be written.
var ErrExists = errors.New("another object with this name exists")

// Incomplete is the error of a folder that was not written whole.
type Incomplete struct {
	Missing []string // names of objects, sorted
	Total   int      // objects in the folder
	Cause   error    // of the first failure
}

// shown is the number of missing objects that an error names.
const shown = 5

func (e *Incomplete) Error() string {
	names := e.Missing[:min(len(e.Missing), shown)]
	more := ""
	if n := len(e.Missing) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d of %d objects are missing: %q%s: %v", len(e.Missing), e.Total, names, more, e.Cause)
}

// Unwrap returns the cause.
func (e *Incomplete) Unwrap() error { return e.Cause }

// PutFolder writes the files below dir as objects of a folder, several at a time, and returns their number and bytes.
// An object that is there already with the same checksum is not sent again. PutFolder never replaces another object: it
// returns ErrExists. On errors it continues with the other objects, and returns an *Incomplete. Empty directories are
// left out. progress is optional and gets the bytes so far, and all bytes.
func (c *Client) PutFolder(ctx context.Context, to s3.Name, dir string, progress func(done, all int64)) (n int,
	bytes int64, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, 0, err
	}
	defer root.Close()
	files, bytes, err := filesOf(root)
	if err != nil {
		return 0, 0, fmt.Errorf("listing the files of %s: %w", dir, err)
	}
	p := putter{c: c, root: root, to: to, all: bytes, progress: progress}
	eg, ectx := errgroup.WithContext(ctx)
	eg.SetLimit(atOnce)
	for _, rel := range files {
		eg.Go(func() error { return p.one(ectx, rel) })
	}
	_ = eg.Wait() // its error is one of p's
	if len(p.missing) > 0 {
		slices.Sort(p.missing)
		return len(files), bytes, &Incomplete{p.missing, len(files), p.cause}
	}
	return len(files), bytes, nil
}

// filesOf lists the regular files below a folder, and their bytes.
func filesOf(root *os.Root) (files []string, bytes int64, err error) {
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is no regular file (%v)", name, info.Mode().Type())
		}
		if err != nil {
			return err
		}
		files, bytes = append(files, name), bytes+info.Size()
		return nil
	})
	return files, bytes, err
}

// putter writes the objects of one folder.
type putter struct {
	c    *Client
	root *os.Root
	to   s3.Name

	mu       sync.Mutex
	done     int64
	all      int64
	progress func(done, all int64)
	missing  []string
	cause    error
}

// one writes an object. It returns an error only if none of the others should be begun.
func (p *putter) one(ctx context.Context, rel string) error {
	err := ctx.Err()
	if err == nil {
		err = p.put(ctx, rel)
	}
	if err == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.missing = append(p.missing, rel)
	if p.cause == nil {
		p.cause = err
	}
	if len(p.missing) >= giveUp || errors.Is(err, ErrAccess) {
		return err
	}
	return nil
}

func (p *putter) put(ctx context.Context, rel string) error {
	f, err := p.root.Open(rel)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := sumOf(f)
	if err != nil {
		return fmt.Errorf("reading %s: %w", rel, err)
	}
	n := p.to.Join(rel)
	there, err := p.c.sumAt(ctx, n, s.kind)
	switch {
	case err == nil && there == s:
		p.count(s.size)
		return nil
	case err == nil:
		return p.c.failed(n, ErrExists)
	case !errors.Is(err, ErrAbsent):
		return err
	}
	info, err := p.send(ctx, n, io.NewSectionReader(f, 0, s.size), s)
	if err != nil {
		return p.c.failed(n, err)
	}
	stored := s
	if stored.text = checksum(info, s.kind); stored.text == "" || info.Size != s.size {
		if stored, err = p.c.sumAt(ctx, n, s.kind); err != nil {
			return fmt.Errorf("verifying: %w", err)
		}
	}
	if stored.text == "" { // the server has no checksums
		stored.text = s.text
	}
	if stored != s {
		return p.c.failed(n, fmt.Errorf("%w: %s %s of %d bytes, want %s of %d bytes", ErrChanged, s.kind, stored.text,
			stored.size, s.text, s.size))
	}
	return nil
}

// send sends an object with its checksum, which the server verifies. The checksum of a small one is in the request's
// head: some servers keep the encoding that checksums after the content need.
func (p *putter) send(ctx context.Context, n s3.Name, from io.Reader, s sum) (minio.UploadInfo, error) {
	opts := minio.PutObjectOptions{
		PartSize: partSize, NumThreads: threads, Progress: counter{p}, DisableContentSha256: true,
	}
	if s.size > partSize {
		opts.Checksum = s.kind
		return p.c.core.Client.PutObject(ctx, n.Bucket, n.Key, from, s.size, opts)
	}
	raw, err := base64.StdEncoding.DecodeString(s.text)
	if err != nil {
		return minio.UploadInfo{}, err
	}
	opts.UserMetadata = map[string]string{s.kind.Key(): s.text}
	return p.c.core.PutObject(ctx, n.Bucket, n.Key, from, s.size, "", hex.EncodeToString(raw), opts)
}

// count adds bytes that were sent.
func (p *putter) count(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done += n; p.progress != nil {
		p.progress(p.done, p.all)
	}
}

// counter is the reader that the library reads beside a file.
type counter struct{ p *putter }

func (c counter) Read(b []byte) (int, error) {
	c.p.count(int64(len(b)))
	return len(b), nil
}

// sum is the size and checksum of all bytes of an object.
type sum struct {
	size int64
	kind minio.ChecksumType
	text string // in base64; empty if it is not known
}

// sumOf reads a file for the checksum that its object gets.
func sumOf(f *os.File) (sum, error) {
	info, err := f.Stat()
	if err != nil {
		return sum{}, err
	}
	s := sum{size: info.Size(), kind: minio.ChecksumSHA256}
	var h hash.Hash = sha256.New()
	if s.size > partSize {
		s.kind, h = minio.ChecksumFullObjectCRC32C, crc32.New(crc32.MakeTable(crc32.Castagnoli))
	}
	n, err := io.Copy(h, f)
	if err == nil && n != s.size {
		err = fmt.Errorf("got %d bytes, want %d", n, s.size)
	}
	s.text = base64.StdEncoding.EncodeToString(h.Sum(nil))
	return s, err
}

// sumAt requests the size and checksum of an object.
func (c *Client) sumAt(ctx context.Context, n s3.Name, kind minio.ChecksumType) (sum, error) {
	info, err := c.core.StatObject(ctx, n.Bucket, n.Key, minio.GetObjectOptions{Checksum: true})
	if err != nil {
		return sum{}, c.failed(n, err)
	}
	s := sum{size: info.Size, kind: kind}
	if info.ChecksumMode == minio.ChecksumFullObjectMode.String() {
		s.text = info.Checksum(kind)
	}
	return s, nil
}

// checksum is that of a kind in the answer to an upload; empty if it is one of the parts' checksums.
func checksum(info minio.UploadInfo, kind minio.ChecksumType) string {
	text := info.ChecksumCRC32C
	if kind.Is(minio.ChecksumSHA256) {
		text = info.ChecksumSHA256
	}
	if strings.Contains(text, "-") {
		return ""
	}
	return text
}
