package sources

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/files/hub"
	"github.com/starling-network/starling/node/files/s3/objects"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
)

// Sign returns new URLs for the sources of a job that runs again whose URLs are signed, by source: for objects of S3
// and gated files of the hub. Their contents are those of the job: a source that has another one now is an error. If
// the keys that sign are missing, URLs that are still valid are kept.
func Sign(ctx context.Context, a *cli.App, spec job.Job, p *cli.Progress) (map[string][]string, error) {
	var stale []string
	for _, source := range spec.Sources() {
		signed := slices.ContainsFunc(spec.Blobs[source].URLs, web.Signed)
		if signed && (job.IsS3(source) || job.IsHub(source)) {
			stale = append(stale, source)
		}
	}
	if len(stale) == 0 {
		return nil, nil
	}
	s := signer{spec: spec, p: p}
	var err error
	if s.hub, err = hub.FromEnv(a.Getenv); err != nil {
		return nil, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	if slices.ContainsFunc(stale, job.IsS3) {
		keys, err := objects.FromEnv(a.Getenv)
		if err != nil {
			return nil, s.keep(stale, err)
		}
		s.buckets = newBuckets(resolver{}, keys, spec, p)
	}
	return s.all(ctx, stale)
}

// signer signs the URLs of a job's sources anew.
type signer struct {
	spec    job.Job
	buckets *buckets // is optional; if nil, no source is in S3
	hub     hub.Client
	p       *cli.Progress
}

// keep returns nil if all sources in S3 have URLs that are still valid, otherwise why no new ones are signed.
func (s signer) keep(sources []string, missing error) error {
	for _, source := range sources {
		for _, u := range s.spec.Blobs[source].URLs {
			if !job.IsS3(source) {
				continue
			}
			if end := ends(u); time.Now().After(end) {
				err := fmt.Errorf("input %s: the signed URL of the job ended at %s, and no new one is signed: %w",
					source, end.UTC().Format(time.RFC3339), missing)
				return cli.WithHint(Explain(err), "set the keys, or submit the job again")
			}
		}
	}
	s.p.Say("warning: the job keeps its signed URLs of S3, which may end before it does: %v", missing)
	return nil
}

// ends is the end of a URL that Amazon's scheme signs (Authenticating Requests: Using Query Parameters, version 4). It
// is zero for other URLs.
func ends(signed string) time.Time {
	u, err := url.Parse(signed)
	if err != nil {
		return time.Time{}
	}
	q := u.Query()
	began, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil {
		return time.Time{}
	}
	during, err := time.ParseDuration(q.Get("X-Amz-Expires") + "s")
	if err != nil {
		return time.Time{}
	}
	return began.Add(during)
}

// all signs the URLs of sources.
func (s signer) all(ctx context.Context, sources []string) (map[string][]string, error) {
	out := map[string][]string{}
	var mu sync.Mutex
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(atOnce)
	for _, source := range sources {
		eg.Go(func() error {
			s.p.Status("signing a URL of %s", source)
			at, err := s.sign(ctx, source, s.spec.Blobs[source])
			if err != nil {
				return cli.WithHint(Explain(fmt.Errorf("signing a new URL of input %s: %w", source, err)),
					"submit the job again for its inputs as they are now")
			}
			mu.Lock()
			defer mu.Unlock()
			out[source] = []string{at}
			return nil
		})
	}
	if err := eg.Wait(); err != nil {
		return nil, err
	}
	s.p.Say("signed new URLs of %s", cli.Count(len(out), "input"))
	return out, nil
}

// sign returns a URL of a source with the content that it had.
func (s signer) sign(ctx context.Context, source string, had job.Blob) (string, error) {
	if job.IsHub(source) {
		return s.gated(ctx, source, had)
	}
	n, _, err := job.S3Name(source)
	if err != nil {
		return "", err
	}
	o, err := s.buckets.c.Stat(ctx, n)
	if err != nil {
		return "", err
	}
	if err := same(had, o.SHA256, o.Size); err != nil {
		return "", err
	}
	return s.buckets.c.URL(ctx, n, s.buckets.valid)
}

// gated returns a URL of a file of the hub.
func (s signer) gated(ctx context.Context, source string, had job.Blob) (string, error) {
	f, err := hub.Parse(source)
	if err != nil {
		return "", err
	}
	found, err := s.hub.Find(ctx, f)
	switch {
	case err != nil:
		return "", err
	case found.Gated:
		return "", fmt.Errorf("%w: the hub signs no URL of it", objects.ErrChanged)
	}
	return found.URL, same(had, found.Sum, found.Size)
}

// same returns an error if a source has another content than before. The new sum and size are optional: providers
// check the content.
func same(had job.Blob, sum string, size int64) error {
	if sum != "" {
		if now, ok := job.Named(job.WithSum(web.Scheme, sum)); !ok || now.CID != had.CID {
			return fmt.Errorf("%w: got sha256=%.64s, want %s", objects.ErrChanged, sum, digestText(had.CID))
		}
	}
	if size > 0 && had.Size > 0 && size != had.Size {
		return fmt.Errorf("%w: got %d bytes, want %d", objects.ErrChanged, size, had.Size)
	}
	return nil
}
