package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/starling-network/starling/p2p/closed"
)

const (
	// resumes is how often a layer's connection may break.
	resumes = 8
	// resumeAfter is how long is waited then, at first, and twice as long each time.
	resumeAfter = 100 * time.Millisecond
	// stall is how long no byte may come.
	stall = time.Minute
)

var errStalled = errors.New("no byte came for a minute")

// blob reads one blob of a registry to its length and resumes after broken connections. It does not check the digest.
type blob struct {
	ctx    context.Context
	client *http.Client
	url    string
	size   int64 // the end, in the blob
	part   bool  // these are not all bytes of the blob

	at     int64
	breaks int
	body   io.ReadCloser
	cancel context.CancelCauseFunc // of the request
}

func (r *repository) blob(ctx context.Context, d v1.Descriptor) *blob {
	return &blob{ctx: ctx, client: r.client, url: r.url(d), size: d.Size}
}

func (r *repository) url(d v1.Descriptor) string {
	n := r.name
	return fmt.Sprintf("%s://%s/v2/%s/blobs/%s", n.Scheme(), n.RegistryStr(), n.RepositoryStr(), d.Digest)
}

func (b *blob) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), b.size-b.at)]
	for {
		if b.at == b.size {
			return 0, io.EOF
		}
		n, err := b.read(p)
		b.at += int64(n)
		if n > 0 {
			return n, nil
		}
		_ = b.Close()
		var answer *transport.Error
		if b.ctx.Err() != nil || errors.As(err, &answer) && !answer.Temporary() || errors.Is(err, errTooMuch) ||
			refused(err) {
			return 0, err
		}
		if b.breaks++; b.breaks > resumes {
			return 0, fmt.Errorf("connection broke %d times: %w", b.breaks, err)
		}
		select {
		case <-time.After(resumeAfter << (b.breaks - 1)):
		case <-b.ctx.Done():
			return 0, context.Cause(b.ctx)
		}
	}
}

// refused reports whether this package refused the address of a request.
func refused(err error) bool {
	return errors.Is(err, closed.ErrClosed) || errors.Is(err, errPlain) || errors.Is(err, errRedirects)
}

// read reads from the open connection, or from a new one.
func (b *blob) read(p []byte) (int, error) {
	if b.body == nil {
		if err := b.open(); err != nil {
			return 0, err
		}
	}
	cancel := b.cancel
	t := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer t.Stop()
	n, err := b.body.Read(p)
	if n == 0 && (err == nil || err == io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *blob) open() error {
	ctx, cancel := context.WithCancelCause(b.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
	if err != nil {
		cancel(nil)
		return err
	}
	want := []int{http.StatusOK}
	if b.at > 0 || b.part {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", b.at, b.size-1))
		want = []int{http.StatusPartialContent}
	}
	res, err := b.client.Do(req)
	if err == nil {
		if err = transport.CheckError(res, want...); err != nil {
			_ = res.Body.Close()
		}
	}
	if err != nil {
		cancel(nil)
		return err
	}
	b.body, b.cancel = res.Body, cancel
	return nil
}

// Close ends the connection that there may be.
func (b *blob) Close() error {
	if b.body != nil {
		b.cancel(nil)
		_ = b.body.Close()
		b.body = nil
	}
	return nil
}
