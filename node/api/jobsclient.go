package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/block"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/job"
)

func encode(v url.Values) string { return v.Encode() }

// send makes a request with a JSON body and reads the answer into into, unless that is nil.
func (c *Client) send(ctx context.Context, method, path string, body, into any, header http.Header) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	resp, err := c.do(ctx, method, path, r, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// Submit hands in a job with its secrets; the same key submits it once however often it is repeated.
func (c *Client) Submit(ctx context.Context, spec job.Job, v job.Values, key string) (j buyer.Job, err error) {
	b, err := job.Marshal(spec)
	if err != nil {
		return j, err
	}
	header := http.Header{"Idempotency-Key": {key}, "Content-Type": {"application/json"}}
	if spec.NeedsValues() {
		header.Set("Content-Type", SubmissionType)
		if b, err = json.Marshal(Submission{Job: spec, Values: v}); err != nil {
			return j, errors.New("the job's secrets cannot be encoded")
		}
	}
	resp, err := c.do(ctx, http.MethodPost, "/v1/jobs", bytes.NewReader(b), header)
	if err != nil {
		return j, err
	}
	defer resp.Body.Close()
	return j, json.NewDecoder(resp.Body).Decode(&j)
}

// Rerun submits a job once more, with changes.
func (c *Client) Rerun(ctx context.Context, id string, ch job.Changes, key string) (j buyer.Job, err error) {
	return j, c.send(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/rerun", ch, &j, http.Header{"Idempotency-Key": {key}})
}

// List returns one page of jobs, newest first.
func (c *Client) List(ctx context.Context, q buyer.Query) (p buyer.Page, err error) {
	return p, c.get(ctx, "/v1/jobs?"+queryOf(q), &p)
}

// Jobs lists all jobs that match, newest first, page by page.
func (c *Client) Jobs(ctx context.Context, q buyer.Query) ([]buyer.Job, error) {
	out := []buyer.Job{}
	for {
		p, err := c.List(ctx, q)
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

// Quote asks the market what a job would cost now. Nothing is reserved.
func (c *Client) Quote(ctx context.Context, spec job.Job) (q buyer.Quotation, err error) {
	return q, c.send(ctx, http.MethodPost, "/v1/quotes", spec, &q, nil)
}

// Spend sums up what was spent over the last days, today included.
func (c *Client) Spend(ctx context.Context, days int) (s buyer.Spend, err error) {
	return s, c.get(ctx, "/v1/spend?days="+strconv.Itoa(days), &s)
}

// AddKey makes an API key.
func (c *Client) AddKey(ctx context.Context, name string, l buyer.Limits) (k NewKey, err error) {
	return k, c.send(ctx, http.MethodPost, "/v1/keys", NewKey{Name: name, Limits: l}, &k, nil)
}

// Keys lists the API keys.
func (c *Client) Keys(ctx context.Context) (k []buyer.Key, err error) {
	return k, c.get(ctx, "/v1/keys", &k)
}

// RemoveKey ends an API key.
func (c *Client) RemoveKey(ctx context.Context, name string) error {
	return c.send(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(name), nil, nil, nil)
}

// Blocks lists the blocked peers.
func (c *Client) Blocks(ctx context.Context) (e []block.Entry, err error) {
	return e, c.get(ctx, "/v1/blocks", &e)
}

// Block puts a peer on the block list.
func (c *Client) Block(ctx context.Context, e block.Entry) (got block.Entry, err error) {
	return got, c.send(ctx, http.MethodPut, "/v1/blocks/"+e.Peer.String(), e, &got, nil)
}

// Unblock takes a peer off it.
func (c *Client) Unblock(ctx context.Context, p sign.Key) error {
	return c.send(ctx, http.MethodDelete, "/v1/blocks/"+p.String(), nil, nil, nil)
}

// Probes returns the records of the job's probes as their layouts (verify/exclusive).
func (c *Client) Probes(ctx context.Context, id string) (records [][]byte, err error) {
	return records, c.get(ctx, "/v1/jobs/"+url.PathEscape(id)+"/probes", &records)
}
