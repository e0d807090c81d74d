package sources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/files/ipfs"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
	"github.com/starling-network/starling/p2p/blob/remove"
	"github.com/starling-network/starling/p2p/stream"
)

// maxRead bounds a file of IPFS that providers read, bytes.
const maxRead = 1 << 42

// ofIPFS reads a file or directory of IPFS once, and checks it against its CID. A provider reads a file from the
// gateway, as any URL, and checks the SHA-256. Directories, and files that it could not read, are stored on the peer.
func (r resolver) ofIPFS(ctx context.Context, source string, p *cli.Progress) (job.Blob, error) {
	n, err := ipfs.Parse(source)
	if err != nil {
		return job.Blob{}, &cli.Error{Code: cli.ExitUsage, Err: err}
	}
	p.Status("requesting %s", source)
	found, err := r.ipfs.Find(ctx, n)
	if err != nil {
		return job.Blob{}, unreadIPFS(err)
	}
	if found.Dir {
		return r.directory(ctx, source, found, p)
	}
	at := r.ipfs.URL(n)
	read := func(most int64, use func(io.Reader) error) error {
		var last int64
		return piped(func(w io.Writer) error { return found.Write(ctx, w, most) }, func(done int64) {
			if done-last >= statusEvery {
				last = done
				p.Status("reading %s for its SHA-256: %s of %s", source, stream.Size(done), stream.Size(found.Size))
			}
		}, use)
	}
	out := job.Blob{URLs: []string{at}}
	if err := r.opens(ctx, at, found.Size); err == nil {
		err = read(maxRead, func(b io.Reader) error {
			id, size, err := blob.SumOf(b)
			out.CID, out.Size = id.String(), size
			return err
		})
		if err != nil {
			return job.Blob{}, unreadIPFS(fmt.Errorf("%s: %w", source, err))
		}
	} else if ctx.Err() != nil {
		return job.Blob{}, context.Cause(ctx)
	} else {
		p.Say("providers cannot read %s from the gateway: it goes through this computer: %v", source, err)
		err := read(api.MaxBlob, func(b io.Reader) error {
			stored, err := api.PutBlob.Call(ctx, r.peer, api.Upload{Data: b})
			out = stored.Source()
			return err
		})
		if err != nil {
			return job.Blob{}, unreadIPFS(fmt.Errorf("uploading %s: %w", source, err))
		}
	}
	p.Say("input %s has %s, %s", source, digestText(out.CID), stream.Size(out.Size))
	return out, nil
}

// opens returns an error if providers cannot read a URL of size bytes.
func (r resolver) opens(ctx context.Context, at string, size int64) error {
	if err := web.Check(at); err != nil {
		return err
	}
	body, got, err := r.web.File([]string{at}, size).Open(ctx, blob.Sum(nil), 0, max(size, 1))
	if err != nil {
		var f *web.Failure
		if errors.As(err, &f) {
			err = errors.New(f.Told())
		}
		return err
	}
	if err := body.Close(); err != nil || size == 0 && got > 0 {
		return errors.Join(err, fmt.Errorf("size: got %d bytes, want %d", got, size))
	}
	return nil
}

// directory stores a directory of IPFS on the peer.
func (r resolver) directory(ctx context.Context, source string, found ipfs.Found, p *cli.Progress) (b job.Blob,
	err error) {
	dir, err := os.MkdirTemp("", "starling-ipfs-")
	if err != nil {
		return b, fmt.Errorf("making a temporary directory: %w", err)
	}
	defer func() { err = errors.Join(err, remove.All(dir)) }()
	p.Status("reading %s", source)
	size, err := found.Save(ctx, dir, api.MaxBlob)
	if err != nil {
		return b, unreadIPFS(fmt.Errorf("%s: %w", source, err))
	}
	p.Status("uploading %s", source)
	if b, err = Store(ctx, r.peer, dir); err != nil {
		return b, fmt.Errorf("uploading %s: %w", source, err)
	}
	p.Say("input %s is a directory, %s, through this computer", source, stream.Size(size))
	return b, nil
}

// unreadIPFS adds the exit code to an error of a user's name or gateway.
func unreadIPFS(err error) error {
	for _, class := range []error{ipfs.ErrAbsent, ipfs.ErrBlock, ipfs.ErrForm, ipfs.ErrLarge} {
		if errors.Is(err, class) {
			return cli.WithHint(&cli.Error{Code: cli.ExitUsage, Err: err},
				"IPFS_GATEWAY names another gateway, such as http://127.0.0.1:8080 of a node on this computer")
		}
	}
	return err
}
