// Package blobcmd has the commands on the files that a peer stores: add, get, ls and gc.
package blobcmd

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/sources"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/p2p/blob"
)

// New makes the command `starling peer blob`.
func New(a *cli.App) *cobra.Command {
	return cli.Noun("", &cobra.Command{
		Use:        "blob",
		SuggestFor: []string{"blobs"},
		Short:      "Store, read, list and remove files of this peer",
		Long: `Files of jobs are stored by their content: the inputs and outputs of this peer's jobs, and the files of
the jobs that it runs for others. A file is named by its CID, which has its SHA-256. Files that jobs and leases need
stay; of the others, the least recently used are removed when the disk or the store is nearly full.`,
		Example: `  starling peer blob add model.bin
  starling peer blob ls
  starling peer blob get bafkrei… model.bin
  starling peer blob gc --dry-run`,
	}, newAdd(a), newGet(a), newLs(a), newGC(a))
}

func newAdd(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:   "add PATH",
		Short: "Store a file or directory, and show its CID",
		Long: `Stores a file unchanged, or a directory as a tar archive: equal ones have equal CIDs. A file that no job
needs may be removed when the disk is nearly full.`,
		Example: `  starling peer blob add model.bin
  starling peer blob add dataset/ -o json | jq -r .cid`,
	}, 1, func(ctx context.Context, p cli.Peer, args []string) (job.Blob, error) {
		return sources.Store(ctx, p.Client, args[0])
	}, func(t *cli.Table, _ cli.Peer, b job.Blob) {
		t.Head("CID", "SIZE")
		t.Row(b.CID, cli.Bytes(b.Size))
	})
}

func newGet(a *cli.App) *cobra.Command {
	var unpack bool
	c := &cobra.Command{
		Use:   "get CID PATH",
		Short: "Write a stored file to PATH, which must not exist",
		Example: `  starling peer blob get bafkrei… model.bin
  starling peer blob get --unpack bafkrei… dataset/`,
		Args: cli.ExactArgs(2),
	}
	c.Flags().BoolVar(&unpack, "unpack", false, "unpack the archive of a directory")
	c.RunE = func(c *cobra.Command, args []string) error {
		if _, err := blob.Parse(args[0]); err != nil {
			return &cli.Error{Code: cli.ExitUsage, Err: err, Hint: "starling peer blob ls"}
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		r, err := client.GetBlob(c.Context(), args[0])
		if err != nil {
			return err
		}
		defer r.Close()
		if unpack {
			return blob.Unpack(c.Context(), r, args[1], math.MaxInt64)
		}
		if err = cli.Save(r, args[1], 0o644); errors.Is(err, fs.ErrExist) {
			err = &cli.Error{Code: cli.ExitUsage, Err: err}
		}
		return err
	}
	return c
}

func newLs(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:   "ls",
		Short: "List stored files, the largest first",
		Long: `Lists the stored files. AGE is the time since the last use. HOLDERS are those who brought the file:
peers, API keys, and URLs; - is this peer itself. NEEDED BY is a job of this peer, a lease that it sold, or a job that
it guards; - means that the file may be removed.`,
		Example: `  starling peer blob ls
  starling peer blob ls -o json | jq '.[] | select(.needed == [])'`,
	}, 0, cli.Get(api.ListBlobs), func(t *cli.Table, _ cli.Peer, all []api.StoredBlob) { table(t, all) })
}

func newGC(a *cli.App) *cobra.Command {
	var dry bool
	c := cli.Ask(a, &cobra.Command{
		Use:   "gc",
		Short: "Remove stored files that nothing needs",
		Long: `Removes the files that no job, lease or guarded job needs, and shows the freed room. Files that were
used in the last 15 minutes stay: a job may be about to need them.`,
		Example: `  starling peer blob gc --dry-run
  starling peer blob gc`,
	}, 0, func(ctx context.Context, p cli.Peer, _ []string) ([]api.StoredBlob, error) {
		return api.CleanBlobs.Call(ctx, p.Client, api.DryRun{DryRun: dry})
	}, func(t *cli.Table, _ cli.Peer, all []api.StoredBlob) {
		table(t, all)
		a.Say("%s", summary(all, dry))
	})
	c.Flags().BoolVar(&dry, "dry-run", false, "show the files that would be removed; remove nothing")
	return c
}

func summary(all []api.StoredBlob, dry bool) string {
	var bytes int64
	for _, b := range all {
		bytes += b.Size
	}
	did := "removed "
	if dry {
		did = "would remove "
	}
	return did + cli.Count(len(all), "file") + ", " + cli.Bytes(bytes)
}

func table(t *cli.Table, all []api.StoredBlob) {
	if len(all) == 0 {
		return
	}
	now := time.Now()
	t.Head("CID", "SIZE", "AGE", "HOLDERS", "NEEDED BY")
	for _, b := range all {
		t.Row(b.CID, cli.Bytes(b.Size), cli.Ago(now, b.Used), holders(b.Holders),
			cli.Dash(strings.Join(b.Needed, ", ")))
	}
}

// holders are at most three, in short.
func holders(all []string) string {
	all = slices.Clone(all)
	for i, h := range all {
		kind, name, _ := strings.Cut(h, " ")
		if n := len(name); n > 16 {
			name = "…" + name[n-8:]
		}
		all[i] = kind + " " + name
	}
	if n := len(all); n > 3 {
		return strings.Join(all[:2], ", ") + ", " + cli.Count(n-2, "other")
	}
	return cli.Dash(strings.Join(all, ", "))
}
