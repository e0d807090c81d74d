package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd/sources"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// savedOutput is one output on this machine.
type savedOutput struct {
	Rank  int    `json:"rank"`
	Path  string `json:"path"` // path in the program
	CID   string `json:"cid"`
	Bytes int64  `json:"bytes"`
	Dir   string `json:"dir"`
}

// NewGet makes the command `starling get`.
func NewGet(a *cli.App) *cobra.Command {
	rank, unchecked := cli.AllRanks, false
	c := &cobra.Command{
		Use:   "get ID DIR|s3://BUCKET/FOLDER",
		Short: "Download a job's outputs",
		Long: `Downloads the outputs of the job's ranks, each into a directory for its rank: /out of rank 2 becomes
DIR/2/out. For a job of one rank, or with --rank, there is no rank directory. The target directory of an output must be
new or empty. Nothing outside it is ever written, regardless of the provider's data.

With s3://BUCKET/FOLDER the outputs become objects of a folder, through this computer and its temporary directory:
FOLDER/2/out/… for rank 2. Their checksums are compared with those of the server. An object that is there already with
the same checksum is not sent again, and no other object is replaced: after an interruption, run the command again.
Empty directories are left out. See starling run --help for the keys.

A provider keeps outputs and logs for its provide.retain, 24 h by default; --keep of run requests another time. Your
peer downloads them when it is back, and needs at most a week after the job's end: get them by then. The outputs of a
lease fit into its disk. A directory has at most 100,000 entries, 128 levels deep.

Outputs of run --copies that your peer no longer has come from the providers with copies.

starling cp copies files of a running job. If the job's results are checked (run --verify replicate), outputs are
withheld until the check has ended, unless --unchecked is given.`,
		Example: `  starling get jk3v5q2a results
  starling get --rank 0 jk3v5q2a results
  starling get jk3v5q2a s3://bucket/results`,
		GroupID: cli.GroupJobs,
		Args:    cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			j, err := api.GetJob.Call(c.Context(), client, api.ByID{ID: args[0]})
			if err != nil {
				return err
			}
			if j.Unchecked() && !unchecked {
				return &cli.Error{Code: cli.ExitFailed, Err: fmt.Errorf("the results of job %s are held back: %s",
					j.ID, j.VerifyText()),
					Hint: "wait for the check, or get them with --unchecked"}
			}
			if c.Flags().Changed("rank") {
				if err := cli.CheckRank(j, rank); err != nil {
					return err
				}
			}
			if err := cli.RestoreOutputs(c.Context(), client, j); err != nil {
				return err
			}
			saved, err := save(a, c.Context(), client, j, rank, args[1])
			if err != nil {
				return err
			}
			if len(saved) == 0 {
				return noOutputs(j)
			}
			return a.Show(saved, func(t *cli.Table) {
				t.Head("RANK", "OUTPUT", "BYTES", "SAVED TO")
				for _, s := range saved {
					t.Row(s.Rank, s.Path, s.Bytes, s.Dir)
				}
			})
		},
	}
	c.Flags().BoolVar(&unchecked, "unchecked", false,
		"include results that are withheld until their check ends")
	c.Flags().IntVar(&rank, "rank", cli.AllRanks, "get the outputs of one rank only")
	return c
}

// noOutputs returns the error of a job without outputs, with the reason.
func noOutputs(j record.Job) error {
	_, over := j.Result()
	err, hint := fmt.Errorf("job %s has no outputs", j.ID), "starling status "+j.ID
	switch {
	case len(j.Spec.Outputs) == 0:
		hint = "name the directories to keep with --out, or spec.outputs in a job file"
	case !over && j.Stopping:
		err, hint = fmt.Errorf("job %s has no outputs yet: it is being stopped", j.ID), "starling wait "+j.ID
	case !over:
		err, hint = fmt.Errorf("job %s has no outputs yet: it is %s", j.ID, j.State), "starling wait "+j.ID
	}
	return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: hint}
}

// download writes the outputs of one rank or all beneath dir.
func download(ctx context.Context, c *api.Client, j record.Job, rank int, dir string) ([]savedOutput, error) {
	var saved []savedOutput
	for i, r := range j.Ranks {
		if rank != cli.AllRanks && rank != i {
			continue
		}
		base := dir
		if rank == cli.AllRanks && len(j.Ranks) > 1 {
			base = filepath.Join(dir, fmt.Sprint(i))
		}
		for _, o := range r.Outputs {
			s := savedOutput{Rank: i, Path: o.Path, CID: o.CID, Bytes: o.Size}
			var err error
			if s.Dir, err = outputDir(j, base, o.Path); err == nil {
				err = sources.Download(ctx, c, o.Source(), s.Dir)
			}
			if err != nil {
				return saved, fmt.Errorf("downloading %s of rank %d: %w", o.Path, i, err)
			}
			saved = append(saved, s)
		}
	}
	return saved, nil
}

// outputDir returns the directory of an output. A provider's output name must be one of the job's outputs.
func outputDir(j record.Job, base, output string) (string, error) {
	local := filepath.FromSlash(strings.TrimPrefix(path.Clean(output), "/"))
	if !slices.Contains(j.Spec.Outputs, job.Output{Path: output}) || !filepath.IsLocal(local) {
		return "", errors.New("the job asked for no such output")
	}
	return filepath.Join(base, local), nil
}
