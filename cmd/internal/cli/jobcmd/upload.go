package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// upload stores every file of the job on the peer, and reads the URLs without a digest.
func upload(
	ctx context.Context, a *cli.App, c *api.Client, spec job.Job, p *cli.Progress,
) (map[string]job.Blob, error) {
	r, err := newResolver(c, a.Getenv)
	if err != nil {
		return nil, err
	}
	sources := spec.Sources()
	out := make(map[string]job.Blob, len(sources))
	for i, source := range sources {
		if b, ok := job.Named(source); ok {
			out[source] = b
			continue
		}
		if job.IsURL(source) {
			if out[source], err = r.resolve(ctx, source, p); err != nil {
				return nil, err
			}
			continue
		}
		p.Status("uploading %d of %d: %s", i+1, len(sources), source)
		b, err := uploadOne(ctx, c, source)
		if err != nil {
			return nil, fmt.Errorf("uploading %s: %w", source, err)
		}
		out[source] = b
	}
	return out, nil
}

// uploadOne stores a file unchanged, or a directory as an archive of blob.Pack.
func uploadOne(ctx context.Context, c *api.Client, path string) (job.Blob, error) {
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
