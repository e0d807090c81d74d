// Package checkpointcmd has the command that lists and downloads the checkpoints of a job.
package checkpointcmd

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

// shownCheckpoint is a checkpoint of a rank, and the peers that keep it.
type shownCheckpoint struct {
	Rank   int       `json:"rank"`
	Number uint64    `json:"number"`
	CID    string    `json:"cid"`
	Bytes  int64     `json:"bytes"`
	At     time.Time `json:"at"`
	// Provider made it and keeps its last two; "" if the rank does not run. Guardians have answered that they have it.
	Provider  string   `json:"provider,omitempty"`
	Guardians []string `json:"guardians,omitempty"`
	Dir       string   `json:"dir,omitempty"` // it was downloaded to
}

// Download unpacks a stored tree into a directory that is new or empty.
type Download func(ctx context.Context, c *api.Client, b job.Blob, dir string) error

// New makes the command `starling job checkpoints`.
func New(a *cli.App, download Download) *cobra.Command {
	rank, dir := cli.AllRanks, ""
	c := &cobra.Command{
		Use:   "checkpoints ID",
		Short: "List or download the checkpoints of a job",
		Long: `Lists the checkpoints that this peer has of each rank, at most two, the newest first. A rank that moves
to another provider continues from the newest. run --checkpoint PATH[:EVERY] names the directory. The provider
packs it when it has changed and is at rest. This peer fetches the packs while the job runs, and the job's
guardians fetch them from this peer. A rank that has ended well keeps none.

KEPT BY names the peers that have a checkpoint: this peer, the provider that made it, and the guardians that have
answered this peer that they store it. Nothing proves their answers. A peer that does not run the job has none.

A pack is what the provider says it is: its digest is checked, its content is not. --get downloads the newest one
of each rank into DIR, or of one rank with --rank. starling cp copies the directory of a running job as it is now.`,
		Example: `  starling job checkpoints jk3v5q2a
  starling job checkpoints jk3v5q2a -o json
  starling job checkpoints jk3v5q2a --rank 0 --get model`,
		Args: cli.ExactArgs(1),
	}
	c.Flags().IntVar(&rank, "rank", cli.AllRanks, "only the checkpoints of one rank")
	c.Flags().StringVar(&dir, "get", "", "directory to download the newest checkpoints to")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := a.Client()
		if err != nil {
			return err
		}
		j, err := api.GetJob.Call(c.Context(), client, api.ByID{ID: args[0]})
		if err != nil {
			return err
		}
		if c.Flags().Changed("rank") {
			if err := cli.CheckRank(j, rank); err != nil {
				return err
			}
		}
		shown := checkpointsOf(j, rank)
		if len(shown) == 0 {
			return noCheckpoints(j)
		}
		if dir != "" {
			var got []shownCheckpoint
			for i, s := range shown {
				if i > 0 && shown[i-1].Rank == s.Rank {
					continue // an older one
				}
				if s.Dir = dir; rank == cli.AllRanks && len(j.Ranks) > 1 {
					s.Dir = filepath.Join(dir, fmt.Sprint(s.Rank))
				}
				pack := job.Blob{CID: s.CID, Size: s.Bytes, Tree: true}
				if err := download(c.Context(), client, pack, s.Dir); err != nil {
					return fmt.Errorf("downloading checkpoint %d of rank %d: %w", s.Number, s.Rank, err)
				}
				got = append(got, s)
			}
			shown = got
		}
		return a.Show(shown, func(t *cli.Table) { checkpointTable(t, shown, time.Now()) })
	}
	return c
}

// checkpointsOf returns the checkpoints of one rank or all.
func checkpointsOf(j record.Job, rank int) (out []shownCheckpoint) {
	for i, r := range j.Ranks {
		if rank != cli.AllRanks && rank != i {
			continue
		}
		for _, c := range r.Checkpoints {
			s := shownCheckpoint{Rank: i, Number: c.Number, CID: c.CID, Bytes: c.Size, At: c.At}
			if r.State == record.RankRunning {
				s.Provider = r.Provider.String()
			}
			for _, g := range c.Guardians {
				s.Guardians = append(s.Guardians, g.String())
			}
			out = append(out, s)
		}
	}
	return out
}

func checkpointTable(t *cli.Table, shown []shownCheckpoint, now time.Time) {
	saved := len(shown) > 0 && shown[0].Dir != ""
	if saved {
		t.Head("RANK", "NUMBER", "BYTES", "AGE", "SAVED TO")
	} else {
		t.Head("RANK", "NUMBER", "BYTES", "AGE", "KEPT BY")
	}
	for _, s := range shown {
		last := "this peer"
		if s.Provider != "" {
			last += ", its provider " + brief(s.Provider)
		}
		for _, g := range s.Guardians {
			last += ", guardian " + brief(g)
		}
		if saved {
			last = s.Dir
		}
		t.Row(s.Rank, s.Number, s.Bytes, now.Sub(s.At).Round(time.Second), last)
	}
}

// brief is a name as other tables have it.
func brief(name string) string { return name[:min(len(name), 8)] }

// noCheckpoints returns the error of a job without checkpoints, with the reason.
func noCheckpoints(j record.Job) error {
	err, hint := fmt.Errorf("job %s has no checkpoints", j.ID), "starling why "+j.ID
	switch {
	case j.Spec.Checkpoint == nil:
		hint = "name the directory with run --checkpoint, or spec.checkpoint in a job file"
	case j.State == record.Succeeded:
		hint = fmt.Sprintf("a rank that ended well keeps none; starling get %s DIR fetches outputs", j.ID)
	}
	return &cli.Error{Code: cli.ExitFailed, Err: err, Hint: hint}
}
