package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/closed"
)

const (
	// maxBreaks is how often a transfer may break until steady bytes come without a break, maxTries how often it may
	// before any server answers.
	maxBreaks = 8
	maxTries  = 2
	steady    = 64 << 20
	// leastBytes is the number of bytes that must come in the time of pace.stall.
	leastBytes = 64 << 10
	// skipped bounds the bytes that servers send again because they do not resume, beside one time the file.
	skipped = 1 << 20
	// maxSize is the most that Sum reads.
	maxSize = 1 << 50
)

// File is a file of the web, at one or more URLs. It implements blob.Source, with *Failure for the errors that a
// buyer gets.
type File struct {
	c    *Client
	urls []string
	size int64 // 0 if it is not known
}

var _ blob.Source = File{}

// File returns the file of size bytes at URLs, which are tried in their order; 0 is an unknown size.
func (c *Client) File(urls []string, size int64) File { return File{c, urls, size} }

// Open implements blob.Source.
func (f File) Open(ctx context.Context, _ cid.Cid, offset, most int64) (io.ReadCloser, int64, error) {
	r := &reader{file: f, ctx: ctx, at: offset, total: -1, patience: f.c.pace.stall}
	if err := r.again(); err != nil {
		r.Close()
		return nil, 0, err
	}
	switch {
	case f.size > 0 && r.total >= 0 && r.total != f.size:
		r.Close()
		return nil, 0, r.bad(fmt.Sprintf("size: got %d bytes, want %d", r.total, f.size), nil)
	case f.size > 0:
		r.total = f.size
	}
	if r.total > most {
		r.Close()
		return nil, 0, fmt.Errorf("%w: %s: %d bytes, at most %d", blob.ErrTooLarge, Public(f.urls[r.next]), r.total,
			most)
	}
	return r, r.total, nil
}

// Sum reads a URL once for its digest and size. progress is optional; its total is -1 if it is not known.
func (c *Client) Sum(ctx context.Context, at string, progress func(done, total int64)) (cid.Cid, int64, error) {
	if err := Check(at); err != nil {
		return cid.Undef, 0, err
	}
	body, total, err := c.File([]string{at}, 0).Open(ctx, cid.Undef, 0, maxSize)
	if err != nil {
		return cid.Undef, 0, err
	}
	defer body.Close()
	return blob.SumOf(&counting{body, 0, total, progress})
}

// counting reports the progress of a reader.
type counting struct {
	io.Reader
	done, total int64
	progress    func(done, total int64)
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if c.done += int64(n); c.progress != nil {
		c.progress(c.done, c.total)
	}
	return n, err
}

// reader reads a file to its length, over connections that may break.
type reader struct {
	file  File
	ctx   context.Context
	at    int64 // read so far
	total int64 // -1 if it is not known

	next    int   // the URL that is read
	breaks  int   // since steady bytes came without one
	brokeAt int64 // the last of them
	opened  bool  // a server has answered once
	skipped int64 // bytes that came twice

	client *http.Client // of body
	body   io.ReadCloser
	whole  bool // its end is the end of the file
	cancel context.CancelCauseFunc
	using  context.Context // of the connection; cancel ends it

	patience time.Duration // left for the next leastBytes
	got      int64         // of them
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.total >= 0 {
		p = p[:min(int64(len(p)), r.total-r.at)]
	}
	for {
		if r.at == r.total {
			return 0, io.EOF
		}
		n, err := r.read(p)
		if r.at += int64(n); n > 0 {
			return n, nil
		}
		if err == io.EOF && r.total < 0 {
			return 0, io.EOF
		}
		if err == io.EOF && r.whole {
			return 0, r.bad(fmt.Sprintf("size: got %d bytes, want %d", r.at, r.total), nil)
		}
		r.close()
		if err := r.broken(err); err != nil {
			return 0, err
		}
		if err := r.again(); err != nil {
			return 0, err
		}
	}
}

// broken counts a break and waits, or returns an error if there were too many.
func (r *reader) broken(cause error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if r.at-r.brokeAt >= steady {
		r.breaks = 0
	}
	r.brokeAt = r.at
	if r.breaks++; r.breaks > maxBreaks || !r.opened && r.breaks > maxTries {
		return r.unreachable(fmt.Errorf("broken %d times: %w", r.breaks, cause))
	}
	r.next = (r.next + 1) % len(r.file.urls)
	select {
	case <-time.After(r.file.c.pace.pause << (r.breaks - 1)):
		return nil
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// read reads from the connection.
func (r *reader) read(p []byte) (int, error) {
	cancel, began := r.cancel, time.Now()
	t := time.AfterFunc(r.patience, func() { cancel(errStalled) })
	n, err := r.body.Read(p)
	t.Stop()
	r.patience -= time.Since(began)
	if cause := context.Cause(r.using); err == io.EOF && cause != nil {
		err = cause // a server may end its answer because the connection is being closed
	}
	if r.got += int64(n); r.got >= leastBytes {
		r.got, r.patience = 0, r.file.c.pace.stall
	}
	return n, err
}

// again connects to the URLs in turn until a server answers. After a permanent error of one URL the others are tried.
func (r *reader) again() error {
	var refused error
	for left := len(r.file.urls); ; {
		err := r.open()
		if err == nil {
			return nil
		}
		var f *Failure
		switch {
		case r.ctx.Err() != nil:
			return context.Cause(r.ctx)
		case errors.Is(err, blob.ErrDigest), errors.Is(err, blob.ErrTooLarge):
			return err
		case errors.As(err, &f):
			if refused == nil || errors.Is(f, ErrAbsent) {
				refused = err
			}
			if left--; left == 0 {
				return refused
			}
			r.next = (r.next + 1) % len(r.file.urls)
			continue
		}
		if err := r.broken(err); err != nil {
			return err
		}
	}
}

// open connects to the server of a URL. Its errors are final if they are a *Failure.
func (r *reader) open() error {
	at := r.file.urls[r.next]
	u, err := url.Parse(at)
	if err != nil || Check(at) != nil {
		return r.bad("unsupported URL", err)
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	t := time.AfterFunc(r.file.c.pace.open, func() { cancel(errStalled) })
	defer t.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		cancel(nil)
		return r.bad("unsupported URL", err)
	}
	req.Header.Set("User-Agent", "starling-input/1")
	req.Header.Set("Accept-Encoding", "identity")
	if r.at > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", r.at))
	}
	client := r.file.c.client(r.file.c.hosts[dialled(u)])
	res, err := client.Do(req)
	if err != nil {
		cancel(nil)
		client.CloseIdleConnections()
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = fmt.Errorf("%s: %w", Public(u.URL), u.Err) // without the query
		}
		if final(err) {
			return r.unreachable(err)
		}
		return err
	}
	r.client, r.body, r.cancel, r.using, r.opened = client, res.Body, cancel, ctx, true
	r.whole = res.ContentLength < 0
	r.got, r.patience = 0, r.file.c.pace.stall
	if err := r.answer(res); err != nil {
		r.close()
		return err
	}
	return nil
}

// final reports whether a request would fail again: it would lead where none may, or to no server that can be trusted.
func final(err error) bool {
	var cert *tls.CertificateVerificationError
	var name *net.DNSError
	return errors.Is(err, closed.ErrClosed) || errors.Is(err, errForm) || errors.Is(err, errRedirects) ||
		errors.As(err, &cert) || errors.As(err, &name) && name.IsNotFound
}

// answer reads the head of an answer.
func (r *reader) answer(res *http.Response) error {
	total, from := res.ContentLength, int64(0)
	switch code := res.StatusCode; {
	case code == http.StatusOK:
	case code == http.StatusPartialContent && r.at > 0:
		var err error
		if from, total, err = parseRange(res.Header.Get("Content-Range")); err != nil || from != r.at {
			return r.bad("the server sent another range than requested", err)
		}
	case code == http.StatusRequestedRangeNotSatisfiable && r.at > 0:
		return fmt.Errorf("%w: %s has no byte %d", blob.ErrDigest, Public(r.file.urls[r.next]), r.at)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests,
		code >= 500:
		return fmt.Errorf("answered %s", res.Status)
	case code == http.StatusForbidden && Signed(r.file.urls[r.next]):
		return r.bad(fmt.Sprintf("status of the server: %d: a signed URL may have expired: submit the job again", code),
			nil)
	default:
		return r.bad(fmt.Sprintf("status of the server: %d", code), nil)
	}
	if e := res.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return r.bad(fmt.Sprintf("content encoding: got %.20q, want none: it changes the digest", e), nil)
	}
	if r.total >= 0 && total >= 0 && total != r.total {
		return r.bad(fmt.Sprintf("size: changed from %d to %d bytes", r.total, total), nil)
	}
	if r.total < 0 {
		r.total = total
	}
	if from < r.at {
		return r.skip(r.at - from)
	}
	return nil
}

// skip reads past bytes that came before.
func (r *reader) skip(n int64) error {
	if r.skipped += n; r.skipped > r.at+skipped {
		return r.unreachable(errors.New("the server does not resume downloads"))
	}
	buf := make([]byte, 64<<10)
	for n > 0 {
		m, err := r.read(buf[:min(n, int64(len(buf)))])
		if n -= int64(m); err != nil && n > 0 {
			return fmt.Errorf("reading again: %w", err)
		}
	}
	return nil
}

// parseRange reads "bytes 5-9/10", or "bytes 5-9/*" with a total of -1.
func parseRange(text string) (from, total int64, err error) {
	span, all, ok := strings.Cut(strings.TrimPrefix(text, "bytes "), "/")
	first, _, dash := strings.Cut(span, "-")
	if !ok || !dash {
		return 0, 0, fmt.Errorf("Content-Range %.80q", text)
	}
	if from, err = strconv.ParseInt(first, 10, 64); err != nil || from < 0 {
		return 0, 0, fmt.Errorf("Content-Range %.80q", text)
	}
	if all == "*" {
		return from, -1, nil
	}
	if total, err = strconv.ParseInt(all, 10, 64); err != nil || total < from {
		return 0, 0, fmt.Errorf("Content-Range %.80q", text)
	}
	return from, total, nil
}

func (r *reader) close() {
	if r.body != nil {
		r.cancel(nil)
		_ = r.body.Close()
		r.client.CloseIdleConnections()
		r.body = nil
	}
}

// Close ends the connection.
func (r *reader) Close() error {
	r.close()
	return nil
}

// bad is an answer that every provider would get.
func (r *reader) bad(advice string, cause error) error {
	return &Failure{Class: ErrAbsent, URL: Public(r.file.urls[r.next]), Advice: advice, Cause: cause}
}

// unreachable is the same error for every address: the author of a URL must not learn about this machine's network.
func (r *reader) unreachable(cause error) error {
	return &Failure{Class: ErrUnread, URL: Public(r.file.urls[r.next]), Cause: cause,
		Advice: "its server must be on the internet, with HTTPS and a valid certificate, and so must all that it " +
			"redirects to"}
}
