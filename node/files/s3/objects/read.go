package objects

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/starling-network/starling/node/files/s3"
)

const (
	// maxPages bounds the requests of one listing beside a page for every leastPage of the objects that it may have.
	maxPages  = 64
	leastPage = 100
	// maxBytes bounds the sizes of the objects of one folder together.
	maxBytes = 1 << 50
	// MaxURL is how long a signed URL can be read.
	MaxURL = 7 * 24 * time.Hour
)

// Object is an object as its server describes it.
type Object struct {
	Name   s3.Name
	Rel    string // its path in the folder that was listed
	Size   int64  // bytes
	SHA256 string // in hexadecimal; empty if the server does not have it
	etag   string
}

// Stat requests the size of an object, and its SHA-256 if the server has that of all bytes: multipart uploads usually
// have those of their parts only.
func (c *Client) Stat(ctx context.Context, n s3.Name) (Object, error) {
	info, err := c.core.StatObject(ctx, n.Bucket, n.Key, minio.GetObjectOptions{Checksum: true})
	if err != nil {
		return Object{}, c.failed(n, err)
	}
	if info.Size < 0 || info.Size > maxBytes {
		return Object{}, c.failed(n, fmt.Errorf("%w: size %d bytes", ErrChanged, info.Size))
	}
	o := Object{Name: n, Size: info.Size, etag: info.ETag}
	if info.ChecksumMode == minio.ChecksumFullObjectMode.String() {
		if sum, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256); err == nil && len(sum) == 32 {
			o.SHA256 = hex.EncodeToString(sum)
		}
	}
	return o, nil
}

// List returns the objects of a folder, in the order of their paths, without their SHA-256. It returns s3.ErrKey if a
// folder could not hold them, and an error if there are none or more than most.
func (c *Client) List(ctx context.Context, folder s3.Name, most int) ([]Object, error) {
	p := &pages{}
	p.left.Store(maxPages + int64(most)/leastPage)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, pagesKey{}, p))
	defer cancel()
	opts := minio.ListObjectsOptions{Prefix: folder.Key, Recursive: folder.Pattern == "", FetchOwner: new(bool)}
	if i := strings.IndexAny(folder.Pattern, `*?[\`); i > 0 {
		opts.Prefix += folder.Pattern[:i]
	}
	var all []Object
	var bytes int64
	for info := range c.core.ListObjectsIter(ctx, folder.Bucket, opts) {
		if info.Err != nil {
			return nil, c.failed(folder, info.Err)
		}
		rel, ok, err := folder.Below(info.Key)
		if err != nil {
			return nil, c.failed(folder, err)
		}
		if !ok && strings.HasSuffix(info.Key, "/") && info.Size > 0 {
			err = fmt.Errorf("%w %s: %.80q: a file of %d bytes with the name of a folder", s3.ErrKey, folder.Bucket,
				info.Key, info.Size)
			return nil, c.failed(folder, err)
		}
		if !ok {
			continue
		}
		if bytes += info.Size; info.Size < 0 || info.Size > maxBytes || bytes > maxBytes {
			return nil, c.failed(folder, fmt.Errorf("%w: %s has %d bytes", ErrChanged, rel, info.Size))
		}
		if len(all) == most {
			return nil, c.failed(folder, fmt.Errorf("got more than %d objects, want at most that many: "+
				"store them as one archive, or name a smaller folder", most))
		}
		all = append(all, Object{Name: folder.Join(rel), Rel: rel, Size: info.Size, etag: info.ETag})
	}
	if err := ctx.Err(); err != nil {
		return nil, c.failed(folder, err)
	}
	if len(all) == 0 {
		return nil, c.failed(folder, fmt.Errorf("%w: got no object", ErrAbsent))
	}
	slices.SortFunc(all, func(a, b Object) int { return comparePaths(a.Rel, b.Rel) })
	return all, c.failed(folder, inOneFolder(all))
}

// comparePaths orders paths as a walk of their folder does.
func comparePaths(a, b string) int {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
}

// inOneFolder returns an error if two of some sorted objects have one path, or one is a folder of another.
func inOneFolder(all []Object) error {
	for i := 1; i < len(all); i++ {
		before, o := all[i-1].Rel, all[i].Rel
		if o == before || strings.HasPrefix(o, before+"/") {
			return fmt.Errorf("%w: %.80q and %.80q cannot be in one folder", s3.ErrKey, before, o)
		}
	}
	return nil
}

// URL signs a URL of an object that can be read for some time, at most MaxURL. With keys of a session it ends with the
// session. It sends no request, unless the region of the bucket is not known.
func (c *Client) URL(ctx context.Context, n s3.Name, during time.Duration) (string, error) {
	u, err := c.core.PresignedGetObject(ctx, n.Bucket, n.Key, min(max(during, time.Second), MaxURL), url.Values{})
	if err != nil {
		return "", c.failed(n, err)
	}
	return u.String(), nil
}

// Open reads an object of Stat or List. Reading fails with ErrChanged if the object is another by now, or if it does
// not have its size. A checksum of all bytes that the server has is verified.
func (c *Client) Open(ctx context.Context, o Object) (io.ReadCloser, error) {
	opts := minio.GetObjectOptions{Checksum: true}
	if o.etag != "" {
		if err := opts.SetMatchETag(o.etag); err != nil {
			return nil, c.failed(o.Name, err)
		}
	}
	body, info, _, err := c.core.GetObject(ctx, o.Name.Bucket, o.Name.Key, opts)
	if err != nil {
		return nil, c.failed(o.Name, err)
	}
	if info.Size >= 0 && info.Size != o.Size {
		body.Close()
		return nil, c.failed(o.Name, fmt.Errorf("%w: got %d bytes, want %d", ErrChanged, info.Size, o.Size))
	}
	return &exact{ReadCloser: body, c: c, o: o, left: o.Size}, nil
}

// exact is the body of an object, which ends at its size.
type exact struct {
	io.ReadCloser
	c    *Client
	o    Object
	left int64
}

func (e *exact) Read(p []byte) (int, error) {
	if int64(len(p)) > e.left+1 {
		p = p[:e.left+1] // one more than there may be, so that the body's end is seen
	}
	n, err := e.ReadCloser.Read(p)
	e.left -= int64(n)
	switch {
	case e.left < 0:
		return 0, e.c.failed(e.o.Name, fmt.Errorf("%w: got more than %d bytes", ErrChanged, e.o.Size))
	case err == io.EOF && e.left > 0:
		return n, e.c.failed(e.o.Name, fmt.Errorf("%w: got %d bytes, want %d", ErrChanged, e.o.Size-e.left, e.o.Size))
	case err == nil || err == io.EOF || errors.Is(err, context.Canceled):
		return n, err
	}
	return n, e.c.failed(e.o.Name, err)
}
