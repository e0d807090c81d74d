package api

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/starling-network/starling/node/api/route"
	"github.com/starling-network/starling/node/buyer/ranklog"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// ErrNoPeer means that no peer is running on this home directory.
var ErrNoPeer = errors.New("no peer is running here")

// Client talks to a peer's local API.
type Client struct {
	ep   Endpoint
	http *http.Client
}

// Dial reads the endpoint file in home. It does not connect. It returns ErrNoPeer if there is no such file.
func Dial(home, file string) (*Client, error) {
	b, err := os.ReadFile(filepath.Join(home, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, home)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the endpoint file: %w", err)
	}
	var ep Endpoint
	if err := json.Unmarshal(b, &ep); err != nil {
		return nil, fmt.Errorf("reading the endpoint file: %w", err)
	}
	return New(ep), nil
}

// New returns a client of the API at an endpoint.
func New(ep Endpoint) *Client { return &Client{ep: ep, http: ep.HTTP()} }

// Endpoint is the client's endpoint.
func (c *Client) Endpoint() Endpoint { return c.ep }

// PID is the peer's process.
func (c *Client) PID() int { return c.ep.PID }

// Do sends a request with the peer's token. The path has its query. An answer without success is an *Error; it returns
// ErrNoPeer if the peer does not answer.
func (c *Client) Do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response,
	error) {
	var source *bodyReader
	if body != nil {
		source = &bodyReader{r: body}
		body = source
	}
	req, err := http.NewRequestWithContext(ctx, method, c.ep.URL+path, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Header.Set("Authorization", "Bearer "+c.ep.Token)
	resp, err := c.http.Do(req)
	if err != nil {
		if source != nil && source.failed() != nil {
			return nil, source.failed()
		}
		var opErr *url.Error
		if errors.As(err, &opErr) && ctx.Err() == nil {
			return nil, fmt.Errorf("%w: %w", ErrNoPeer, opErr.Err)
		}
		return nil, err
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, route.ReadError(resp)
}

// bodyReader remembers why a body could not be read, so that this is not taken for the peer's silence.
type bodyReader struct {
	r   io.Reader
	err atomic.Pointer[error]
}

func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && err != io.EOF {
		b.err.Store(&err)
	}
	return n, err
}

func (b *bodyReader) failed() error {
	if e := b.err.Load(); e != nil {
		return *e
	}
	return nil
}

// Submit submits a job with its secrets. However often it is repeated with one key, it submits one job.
func (c *Client) Submit(ctx context.Context, spec job.Job, v job.Values, key string) (record.Job, error) {
	return SubmitJob.Call(ctx, c, Submit{Once: key, Body: Submission{Job: spec, Values: v}})
}

// Jobs lists all jobs that match, newest first, page by page.
func (c *Client) Jobs(ctx context.Context, q record.Query) ([]record.Job, error) {
	out := []record.Job{}
	for {
		p, err := ListJobs.Call(ctx, c, JobsQuery(q))
		if err != nil {
			return nil, err
		}
		out = append(out, p.Jobs...)
		if p.Next == "" {
			return out, nil
		}
		if p.Next == q.After {
			return nil, fmt.Errorf("listing jobs: the peer gives the same page again")
		}
		q.After = p.Next
	}
}

// GetBlob reads a stored file. The caller closes it.
func (c *Client) GetBlob(ctx context.Context, cid string) (io.ReadCloser, error) {
	resp, err := GetBlob.Do(ctx, c, ByCID{CID: cid})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Events follows a job: every step of its trace and the job after each change,
// until it has ended. Either function may be nil.
func (c *Client) Events(ctx context.Context, id string, step func(record.Step), change func(record.Job)) error {
	resp, err := JobEvents.Do(ctx, c, Events{ID: id, Follow: true})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(make([]byte, 64<<10), 16<<20)
	event := ""
	for sc.Scan() {
		line := sc.Text()
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			event = v
			continue
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		switch event {
		case "step":
			var s record.Step
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				return fmt.Errorf("reading events: %w", err)
			}
			if step != nil {
				step(s)
			}
		case "job":
			var j record.Job
			if err := json.Unmarshal([]byte(data), &j); err != nil {
				return fmt.Errorf("reading events: %w", err)
			}
			if change != nil {
				change(j)
			}
		}
	}
	return sc.Err()
}

// Log copies a rank's log, or a part of it, to the two writers.
func (c *Client) Log(ctx context.Context, q Log, stdout, stderr io.Writer) error {
	resp, err := JobLog.Do(ctx, c, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return Demultiplex(resp.Body, stdout, stderr)
}

// maxFrame is the longest frame that a log can have: the peer writes none above 1 MiB.
const maxFrame = 1 << 20

// Demultiplex splits a stream of log frames. A stream that ends within a frame is io.ErrUnexpectedEOF.
func Demultiplex(r io.Reader, stdout, stderr io.Writer) error {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		var h [ranklog.FrameHeader]byte
		if _, err := io.ReadFull(br, h[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a log: %w", err)
		}
		w := stdout
		switch h[0] {
		case ranklog.StreamStdout:
		case ranklog.StreamStderr:
			w = stderr
		default:
			return fmt.Errorf("reading a log: frame of unknown stream %d", h[0])
		}
		n := int64(binary.BigEndian.Uint32(h[4:]))
		if n > maxFrame || h[1]|h[2]|h[3] != 0 {
			return errors.New("reading a log: this is no frame")
		}
		if _, err := io.CopyN(w, br, n); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("reading a log: %w", err)
		}
	}
}
