package jobcmd

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/multiformats/go-multihash"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/files/web"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/stream"
)

// statusEvery is how many bytes come from one report of progress to the next.
const statusEvery = 4 << 20

// readURL reads a URL once for its digest, by the rules of providers, and shows it.
func readURL(ctx context.Context, c *web.Client, source string, p *cli.Progress) (job.Blob, error) {
	var shown int64 = -statusEvery
	id, size, err := c.Sum(ctx, source, func(done, total int64) {
		if done-shown < statusEvery {
			return
		}
		shown = done
		all := ""
		if total >= 0 {
			all = " of " + stream.Size(total)
		}
		p.Status("reading %s for its SHA-256: %s%s", web.Public(source), stream.Size(done), all)
	})
	if err != nil {
		return job.Blob{}, unread(source, err)
	}
	h, err := multihash.Decode(id.Hash())
	if err != nil {
		return job.Blob{}, fmt.Errorf("reading %s for its SHA-256: %w", web.Public(source), err)
	}
	p.Say("input %s has sha256=%s, %s", web.Public(source), hex.EncodeToString(h.Digest), stream.Size(size))
	return job.Blob{CID: id.String(), Size: size, URLs: []string{source}}, nil
}

// unread is the error of a URL that was not read.
func unread(source string, err error) error {
	var f *web.Failure
	if !errors.As(err, &f) {
		return fmt.Errorf("reading %s for its SHA-256: %w", web.Public(source), err)
	}
	return cli.WithHint(&cli.Error{Code: cli.ExitUsage, Err: f},
		"download it, and give the file; or give its digest, %s#sha256=…, if providers can read it",
		web.Public(source))
}
