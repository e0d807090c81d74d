package client

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/ipfs/go-cid"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

// submitWait is how long a job waits for an entry and the slot before it is refused.
const submitWait = 10 * time.Second

// Submit takes the job's files into the client's store, where they are not there yet, journals the job and starts it.
// Providers fetch the files from this client. The errors are those of buyer.Submit.
func (c *Client) Submit(ctx context.Context, spec job.Job) (buyer.Job, error) {
	if !spec.Uploaded() {
		var err error
		if spec, err = c.Upload(ctx, spec); err != nil {
			return buyer.Job{}, err
		}
	}
	c.Ready(ctx, submitWait) // if not ready, Submit returns the reason
	return c.Buyer().Submit(ctx, buyer.Submission{Spec: spec})
}

// Run submits a job and waits for its end. A failed job is no error; see its State.
func (c *Client) Run(ctx context.Context, spec job.Job) (buyer.Job, error) {
	j, err := c.Submit(ctx, spec)
	if err != nil {
		return j, err
	}
	return c.Wait(ctx, j.ID)
}

// Upload takes the files that the job names by path into the client's store. A URL needs its SHA-256: providers read
// it, and the client does not.
func (c *Client) Upload(ctx context.Context, spec job.Job) (job.Job, error) {
	blobs := map[string]job.Blob{}
	for _, source := range spec.Sources() {
		if b, ok := job.Named(source); ok {
			blobs[source] = b
			continue
		}
		if job.IsURL(source) {
			return spec, fmt.Errorf("%w: %s: give it as https://…#sha256=…", job.ErrInvalid, source)
		}
		b, err := c.uploadOne(ctx, source)
		if err != nil {
			return spec, fmt.Errorf("taking in %s: %w", source, err)
		}
		blobs[source] = b
	}
	return spec.WithBlobs(blobs)
}

func (c *Client) uploadOne(ctx context.Context, path string) (job.Blob, error) {
	info, err := os.Stat(path)
	if err != nil {
		return job.Blob{}, err
	}
	if info.IsDir() {
		t, err := c.blobs.PutTree(ctx, path, math.MaxInt64)
		return job.Blob{CID: t.CID.String(), Size: t.Size, Tree: true}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return job.Blob{}, err
	}
	defer f.Close()
	return c.Put(ctx, f)
}

// Put stores the content of r in the client's store, to be named in a job's Blobs.
func (c *Client) Put(ctx context.Context, r io.Reader) (job.Blob, error) {
	id, n, err := c.blobs.Put(ctx, r)
	return job.Blob{CID: id.String(), Size: n}, err
}

// Get reads a file of the client's store, such as an output of a job: a directory is the tar of it. The caller closes
// it.
func (c *Client) Get(text string) (io.ReadCloser, error) {
	id, err := cid.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%q is not a CID: %w", text, err)
	}
	return c.blobs.Open(id)
}

// Jobs lists all jobs, newest first.
func (c *Client) Jobs() []buyer.Job { return c.Buyer().Jobs() }

// Job returns one job by its id or a unique beginning of it; buyer.ErrNoJob.
func (c *Client) Job(id string) (buyer.Job, error) { return c.Buyer().Job(id) }

// Wait returns a job when it has ended.
func (c *Client) Wait(ctx context.Context, id string) (buyer.Job, error) {
	return c.Buyer().Wait(ctx, id)
}

// Stop ends a job's work; its debts are still paid.
func (c *Client) Stop(ctx context.Context, id string) error { return c.Buyer().Stop(ctx, id) }

// Why returns the decisions for a job so far: the providers asked, their quotes, and the choice with its reasons.
func (c *Client) Why(id string) ([]buyer.Step, error) {
	steps, _, err := c.Buyer().Trace(id, 0)
	return steps, err
}

// Logs copies the stdout and stderr of one rank of a job; with follow, until the job has ended.
func (c *Client) Logs(ctx context.Context, id string, rank int, follow bool, stdout, stderr io.Writer) error {
	r, w := io.Pipe()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		w.CloseWithError(c.Buyer().Log(ctx, id, rank, buyer.LogQuery{Follow: follow}, w))
	}()
	err := api.Demultiplex(r, stdout, stderr)
	r.CloseWithError(err)
	<-copied
	return err
}

// Receipts returns a job's leases with their receipts and vouchers: its cost, signed by both sides.
func (c *Client) Receipts(ctx context.Context, id string) ([]buyer.LeaseAccount, error) {
	return c.Buyer().Receipts(ctx, id)
}

// Quote searches for providers of the class, checks that they answer, and returns their offers.
func (c *Client) Quote(ctx context.Context, class market.Class) ([]buyer.Known, error) {
	if err := class.Check(); err != nil {
		return nil, err
	}
	return c.Buyer().Exchange().Offers(ctx, class), nil
}

// Status describes the client and its connections.
func (c *Client) Status(ctx context.Context) api.NodeInfo { return c.node.Status().Info(ctx) }
