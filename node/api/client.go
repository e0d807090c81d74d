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
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/starling-network/starling/node/buyer"
)

// ErrNoPeer says that no peer is running on this home directory.
var ErrNoPeer = errors.New("no peer is running here")

// Client talks to a peer's local API.
type Client struct {
	ep   Endpoint
	http *http.Client
}

// Dial reads the endpoint file in home. It does not connect.
func Dial(home, file string) (*Client, error) {
	b, err := os.ReadFile(filepath.Join(home, file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s", ErrNoPeer, home)
	}
	if err != nil {
		return nil, fmt.Errorf("reading where the peer listens: %w", err)
	}
	var ep Endpoint
	if err := json.Unmarshal(b, &ep); err != nil {
		return nil, fmt.Errorf("reading where the peer listens: %w", err)
	}
	return &Client{ep: ep, http: ep.HTTP()}, nil
}

// PID is the peer's process.
func (c *Client) PID() int { return c.ep.PID }

func (c *Client) do(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
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
	var e struct {
		Error *Error `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e); err != nil || e.Error == nil {
		return nil, fmt.Errorf("the peer answered %s", resp.Status)
	}
	e.Error.Status = resp.StatusCode
	return nil, e.Error
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

func (c *Client) get(ctx context.Context, path string, into any) error {
	resp, err := c.do(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

// Node describes the peer.
func (c *Client) Node(ctx context.Context) (n NodeInfo, err error) {
	return n, c.get(ctx, "/v1/node", &n)
}

// Peers lists the peer's connections.
func (c *Client) Peers(ctx context.Context) (p []PeerInfo, err error) {
	return p, c.get(ctx, "/v1/peers", &p)
}

// Offers lists the offers of a class that the peer can find; "" means all classes it knows.
func (c *Client) Offers(ctx context.Context, class string) (o []OfferInfo, err error) {
	return o, c.get(ctx, "/v1/offers?class="+url.QueryEscape(class), &o)
}

// Leases lists what the peer has sold.
func (c *Client) Leases(ctx context.Context) (l []SoldLease, err error) {
	return l, c.get(ctx, "/v1/leases", &l)
}

// PutBlob stores what r has; tree marks it as the tar of a directory.
func (c *Client) PutBlob(ctx context.Context, r io.Reader, tree bool) (b buyer.Blob, err error) {
	path := "/v1/blobs"
	if tree {
		path += "?tree=1"
	}
	resp, err := c.do(ctx, http.MethodPost, path, r, nil)
	if err != nil {
		return b, err
	}
	defer resp.Body.Close()
	return b, json.NewDecoder(resp.Body).Decode(&b)
}

// GetBlob reads a stored file.
func (c *Client) GetBlob(ctx context.Context, cid string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, http.MethodGet, "/v1/blobs/"+url.PathEscape(cid), nil, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Job returns one job; a unique beginning of its id is enough.
func (c *Client) Job(ctx context.Context, id string) (j buyer.Job, err error) {
	return j, c.get(ctx, "/v1/jobs/"+url.PathEscape(id), &j)
}

// Guarded lists the jobs of others that the peer guards.
func (c *Client) Guarded(ctx context.Context) (jobs []GuardedJob, err error) {
	return jobs, c.get(ctx, "/v1/guarded", &jobs)
}

// Stop stops a job.
func (c *Client) Stop(ctx context.Context, id string) error {
	resp, err := c.do(ctx, http.MethodDelete, "/v1/jobs/"+url.PathEscape(id), nil, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Why returns the job's decision trace so far.
func (c *Client) Why(ctx context.Context, id string) (s []buyer.Step, err error) {
	return s, c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/why", &s)
}

// Receipts returns the job's leases with their receipts and vouchers.
func (c *Client) Receipts(ctx context.Context, id string) (a []buyer.LeaseAccount, err error) {
	return a, c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/receipts", &a)
}

// Events follows a job: every step of its trace and the job after each change,
// until it has ended. Either function may be nil.
func (c *Client) Events(ctx context.Context, id string, step func(buyer.Step), change func(buyer.Job)) error {
	resp, err := c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/events?follow=1", nil, nil)
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
			var s buyer.Step
			if err := json.Unmarshal([]byte(data), &s); err != nil {
				return fmt.Errorf("reading events: %w", err)
			}
			if step != nil {
				step(s)
			}
		case "job":
			var j buyer.Job
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

// Log copies one rank's log to the two writers.
func (c *Client) Log(ctx context.Context, id string, rank int, follow bool, stdout, stderr io.Writer) error {
	q := "?rank=" + strconv.Itoa(rank)
	if follow {
		q += "&follow=1"
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/logs"+q, nil, nil)
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
		var h [buyer.FrameHeader]byte
		if _, err := io.ReadFull(br, h[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("reading a log: %w", err)
		}
		w := stdout
		switch h[0] {
		case buyer.StreamStdout:
		case buyer.StreamStderr:
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
