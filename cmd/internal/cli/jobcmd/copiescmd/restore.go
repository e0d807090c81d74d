package copiescmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// Download writes a stored blob to a path that is not there, or unpacks a tree into a new or empty directory.
type Download func(ctx context.Context, c *api.Client, b job.Blob, to string) error

// restored is an output on this machine.
type restored struct {
	Rank  int    `json:"rank"`
	Path  string `json:"path"` // path in the program
	CID   string `json:"cid"`
	Bytes int64  `json:"bytes"`
	Dir   string `json:"dir"`
}

// read returns the copies of an exported file, whose job's id begins with id.
func read(file, id string) (s record.ShownCopies, err error) {
	text, err := cli.ReadFile(file, api.MaxCopies)
	if err != nil {
		return s, &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("reading the exported copies: %w", err)}
	}
	err = json.Unmarshal(text, &s)
	switch {
	case err != nil: // its text may have a part of the key
		err = errors.New("not a file of job copies --export")
	case !strings.HasPrefix(s.Job, id):
		err = fmt.Errorf("got the copies of job %.40q, want those of %s", s.Job, id)
	case len(s.Outputs) == 0:
		err = errors.New("it has no outputs")
	}
	if err != nil {
		return s, cli.Usagef("%s: %v", file, err)
	}
	return s, nil
}

// restore writes the outputs of an exported file to a directory, and shows them.
func restore(a *cli.App, ctx context.Context, p cli.Peer, id string, f flags, download Download) error {
	s, err := read(f.from, id)
	if err != nil {
		return err
	}
	all, err := fetch(ctx, p.Client, s, f.dir, download)
	if err != nil {
		return err
	}
	return a.Show(all, func(t *cli.Table) {
		t.Head("RANK", "OUTPUT", "BYTES", "SAVED TO")
		for _, r := range all {
			t.Row(r.Rank, r.Path, r.Bytes, r.Dir)
		}
	})
}

// fetch has the peer fetch the outputs of exported copies, and writes them beneath dir as starling get does.
func fetch(ctx context.Context, c *api.Client, s record.ShownCopies, dir string, download Download) ([]restored,
	error) {
	all := []restored{}
	for i, rank := range s.Outputs {
		base := dir
		if len(s.Outputs) > 1 {
			base = filepath.Join(dir, fmt.Sprint(i))
		}
		for _, o := range rank {
			local := filepath.FromSlash(strings.TrimPrefix(path.Clean(o.Path), "/"))
			if !filepath.IsLocal(local) || local == "." {
				return nil, cli.Usagef("output %.80q of rank %d: not a path below a directory", o.Path, i)
			}
			all = append(all, restored{i, o.Path, o.CID, o.Size, filepath.Join(base, local)})
		}
	}
	if _, err := api.ImportCopies.Call(ctx, c, api.CopiesRecord{Body: s}); err != nil {
		return nil, cli.WithHint(err, "providers send copies to the peer that paid for them, while they are paid: its "+
			"home needs the identity.json of that peer")
	}
	n := 0
	for i, rank := range s.Outputs {
		for _, o := range rank {
			if err := download(ctx, c, o.Source(), all[n].Dir); err != nil {
				return all[:n], fmt.Errorf("downloading %s of rank %d: %w", o.Path, i, err)
			}
			n++
		}
	}
	return all, nil
}
