package sources

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/files/hub"
	"github.com/starling-network/starling/node/files/ipfs"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/stream"
)

// statusEvery is the number of bytes between two progress reports.
const statusEvery = 4 << 20

// resolver resolves web sources to contents, and shows their digests.
type resolver struct {
	peer *api.Client // stores files that providers cannot read
	web  *web.Client
	hub  hub.Client
	ipfs ipfs.Client
}

func newResolver(peer *api.Client, env func(name string) string) (resolver, error) {
	w, err := web.New(web.Config{})
	if err != nil {
		return resolver{}, err
	}
	h, err := hub.FromEnv(env)
	if err != nil {
		return resolver{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	i, err := ipfs.FromEnv(env)
	if err != nil {
		return resolver{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	return resolver{peer, w, h, i}, nil
}

// resolve returns the content of a source.
func (r resolver) resolve(ctx context.Context, source string, p *cli.Progress) (job.Blob, error) {
	switch {
	case job.IsHub(source):
		return r.ofHub(ctx, source, p)
	case job.IsIPFS(source):
		return r.ofIPFS(ctx, source, p)
	}
	return r.read(ctx, source, source, p)
}

// read reads a URL once for its digest, by the rules of providers. name is the source that contains the URL.
func (r resolver) read(ctx context.Context, name, url string, p *cli.Progress) (job.Blob, error) {
	var shown int64 = -statusEvery
	id, size, err := r.web.Sum(ctx, url, func(done, total int64) {
		if done-shown < statusEvery {
			return
		}
		shown = done
		all := ""
		if total >= 0 {
			all = " of " + stream.Size(total)
		}
		p.Status("reading %s for its SHA-256: %s%s", web.Public(name), stream.Size(done), all)
	})
	if err != nil {
		return job.Blob{}, unread(url, err)
	}
	p.Say("input %s has %s, %s", web.Public(name), digestText(id.String()), stream.Size(size))
	return job.Blob{CID: id.String(), Size: size, URLs: []string{url}}, nil
}

// digestText is the SHA-256 in a CID of the network's own form.
func digestText(text string) string {
	id, err := blob.Parse(text)
	if err != nil {
		return text
	}
	h, err := multihash.Decode(id.Hash())
	if err != nil {
		return text
	}
	return "sha256=" + hex.EncodeToString(h.Digest)
}

// unread is the error of a URL that was not read.
func unread(url string, err error) error {
	var f *web.Failure
	if !errors.As(err, &f) {
		return fmt.Errorf("reading %s for its SHA-256: %w", web.Public(url), err)
	}
	return cli.WithHint(&cli.Error{Code: cli.ExitUsage, Err: f},
		"download it, and give the file; or give its digest, %s#sha256=…, if providers can read it", web.Public(url))
}

// ofHub requests a file from the hub. A file that needs the user's token is stored on the peer.
func (r resolver) ofHub(ctx context.Context, source string, p *cli.Progress) (job.Blob, error) {
	f, err := hub.Parse(source)
	if err != nil {
		return job.Blob{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	p.Status("requesting %s from the hub", source)
	found, err := r.hub.Find(ctx, f)
	if err != nil {
		return job.Blob{}, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", source, err)}
	}
	switch {
	case found.Gated:
		body, err := r.hub.Open(ctx, found)
		if err != nil {
			return job.Blob{}, fmt.Errorf("%s: %w", source, err)
		}
		defer body.Close()
		p.Status("uploading %s", source)
		b, err := api.PutBlob.Call(ctx, r.peer, api.Upload{Data: body})
		if err != nil {
			return job.Blob{}, fmt.Errorf("uploading %s: %w", source, err)
		}
		return b.Source(), nil
	case found.Sum == "":
		return r.read(ctx, source, found.URL, p)
	}
	b, ok := job.Named(job.WithSum(found.URL, found.Sum))
	if !ok {
		return job.Blob{}, fmt.Errorf("%s: the hub answered with a malformed SHA-256", source)
	}
	b.Size = found.Size
	p.Say("input %s has sha256=%s, %s, commit %.12s", source, found.Sum, stream.Size(found.Size), found.Commit)
	return b, nil
}
