// Package sources finds the contents of a job's sources for the command line, before the job is submitted.
//
//	file, directory                                ──▶ stored on the peer
//	https://…                                      ──▶ read once for its SHA-256; providers read the URL
//	hf://…                                         ──▶ SHA-256 of the hub; providers read the hub's URL
//	ipfs://CID[/PATH]   checked against the CID    ──▶ SHA-256; providers read the gateway's URL
//	s3://BUCKET/KEY     SHA-256 of its metadata    ──▶ a signed URL, which providers read
//	s3://BUCKET/FOLDER/ one input for each object  ──▶ signed URLs
//
// Contents that providers cannot read are stored on the peer: gated files of the hub, objects of a server that is not
// on the internet, folders with more objects than a job has inputs, directories of IPFS, and its files if the gateway
// serves no URLs to providers. Download is the way back of what Store stored.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/files/s3/objects"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// Upload returns the job with the contents of its sources. Files are stored on the peer c. Folders of S3 may become
// several inputs.
func Upload(ctx context.Context, a *cli.App, c *api.Client, spec job.Job, p *cli.Progress) (job.Job, error) {
	r, err := newResolver(c, a.Getenv)
	if err != nil {
		return spec, err
	}
	out := map[string]job.Blob{}
	if slices.ContainsFunc(spec.Sources(), job.IsS3) {
		keys, err := objects.FromEnv(a.Getenv)
		if err != nil {
			return spec, Explain(err)
		}
		b := newBuckets(r, keys, spec, p)
		if spec, err = b.expand(ctx, spec); err != nil {
			return spec, Explain(err)
		}
		if out, err = b.contents(ctx, spec.Sources()); err != nil {
			return spec, Explain(err)
		}
	}
	sources := spec.Sources()
	for i, source := range sources {
		if _, found := out[source]; found {
			continue
		}
		if b, ok := job.Named(source); ok {
			out[source] = b
			continue
		}
		if job.IsURL(source) {
			if out[source], err = r.resolve(ctx, source, p); err != nil {
				return spec, err
			}
			continue
		}
		p.Status("uploading %d of %d: %s", i+1, len(sources), source)
		b, err := Store(ctx, c, source)
		if err != nil {
			return spec, fmt.Errorf("uploading %s: %w", source, err)
		}
		out[source] = b
	}
	return spec.WithBlobs(out)
}

// Store stores a file unchanged, or a directory as an archive of blob.Pack.
func Store(ctx context.Context, c *api.Client, path string) (job.Blob, error) {
	info, err := os.Stat(path)
	if err != nil {
		return job.Blob{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	var body io.ReadCloser
	switch {
	case info.IsDir():
		r, w := io.Pipe()
		packed := make(chan struct{})
		go func() {
			defer close(packed)
			w.CloseWithError(blob.Pack(ctx, w, path, math.MaxInt64))
		}()
		defer func() {
			r.Close()
			<-packed
		}()
		body = r
	case info.Mode().IsRegular():
		if body, err = os.Open(path); err != nil {
			return job.Blob{}, &cli.Error{Code: cli.ExitUsage, Err: err}
		}
		defer body.Close()
	default:
		return job.Blob{}, cli.Usagef("%s is neither a file nor a directory", path)
	}
	b, err := api.PutBlob.Call(ctx, c, api.Upload{Data: body, Tree: info.IsDir()})
	if errors.Is(err, blob.ErrTree) {
		err = &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return job.Blob{CID: b.CID, Size: b.Size, Tree: b.Tree}, err
}

// Download writes a stored file of the peer to path, which must not exist, or unpacks a tree into path, which must be
// new or empty. After an error nothing of it is left.
func Download(ctx context.Context, c *api.Client, b job.Blob, path string) error {
	r, err := c.GetBlob(ctx, b.CID)
	if err != nil {
		return err
	}
	defer r.Close()
	if b.Tree { // an archive is larger than the files in it, but a small entry counts for more
		return blob.Unpack(ctx, r, path, b.Size+blob.MaxEntries*blob.EntryBytes)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return cli.Save(r, path, 0o644)
}
