package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/sources"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/files/s3"
	"github.com/starling-network/starling/node/files/s3/objects"
)

// inBucket reports whether outputs go to S3.
func inBucket(to string) bool { return strings.HasPrefix(to, s3.Scheme) }

// ready returns an error if outputs go to a bucket that is not there, before there is a job.
func ready(a *cli.App, ctx context.Context, to string) error {
	if !inBucket(to) {
		return nil
	}
	n, c, err := bucket(a, to)
	if err == nil {
		err = c.Ready(ctx, n)
	}
	return sources.Explain(err)
}

// bucket is a folder in S3 and the client for it.
func bucket(a *cli.App, to string) (s3.Name, *objects.Client, error) {
	n, err := s3.ParseFolder(to)
	if err != nil {
		return n, nil, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	c, err := objects.FromEnv(a.Getenv)
	return n, c, err
}

// save writes the outputs of one rank or all to a directory, or to a folder in S3.
func save(a *cli.App, ctx context.Context, c *api.Client, j record.Job, rank int, to string) ([]savedOutput, error) {
	if !inBucket(to) {
		return download(ctx, c, j, rank, to)
	}
	n, s, err := bucket(a, to)
	if err != nil {
		return nil, sources.Explain(err)
	}
	dir, err := os.MkdirTemp(a.Getenv("TMPDIR"), "starling-get-")
	if err != nil {
		return nil, fmt.Errorf("making a temporary directory: %w", err)
	}
	saved, err := upload(a, ctx, c, j, rank, n, s, dir)
	return saved, errors.Join(err, os.RemoveAll(dir))
}

// upload writes the outputs of one rank or all to a folder in S3, by way of a temporary directory.
func upload(a *cli.App, ctx context.Context, c *api.Client, j record.Job, rank int, n s3.Name, s *objects.Client,
	dir string) ([]savedOutput, error) {
	p := a.Progress()
	defer p.Clear()
	p.Status("downloading the outputs of job %s", j.ID)
	saved, err := download(ctx, c, j, rank, dir)
	if err != nil {
		return nil, err
	}
	for i := range saved {
		rel, err := filepath.Rel(dir, saved[i].Dir)
		if err != nil {
			return nil, err
		}
		saved[i].Dir = n.Join(filepath.ToSlash(rel)).String()
	}
	_, _, err = s.PutFolder(ctx, n, dir, func(done, all int64) {
		p.Status("uploading to %s: %d of %d KiB", n, done>>10, all>>10)
	})
	if err != nil {
		return nil, cli.WithHint(sources.Explain(fmt.Errorf("uploading the outputs of job %s to %s: %w", j.ID, n, err)),
			"starling get %s %s sends the missing objects", j.ID, n)
	}
	return saved, nil
}
