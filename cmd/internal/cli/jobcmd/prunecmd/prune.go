// Package prunecmd has the command that removes old jobs.
package prunecmd

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

// pruned lists old ended jobs: removed, to be removed, or kept for a reason.
type pruned struct {
	Jobs   []prunedJob `json:"jobs"`
	DryRun bool        `json:"dryRun"`
}

type prunedJob struct {
	ID    string       `json:"id"`
	Name  string       `json:"name"`
	State record.State `json:"state"`
	Ended time.Time    `json:"ended"`
	api.RemovedJob
	Kept string `json:"kept,omitempty"` // reason; empty if the job is or would be removed
}

// New makes the command `starling job prune`.
func New(a *cli.App) *cobra.Command {
	var older string
	var dry bool
	c := cli.Ask(a, &cobra.Command{
		Use:   "prune",
		Short: "Remove old jobs with their logs and outputs",
		Long: `Removes this peer's jobs that ended long ago: their records, receipts, logs and outputs. A job stays
while a payment of it is pending, and an output stays while another job needs it. Removed jobs disappear from
job history and wallet spend, and their proofs can no longer be exported: save them first with starling proof export.

--older-than is the time since a job's end, at least 24h: the limits per day count its cost until then.`,
		Example: `  starling job prune --dry-run
  starling job prune --older-than 30d`,
	}, 0, func(ctx context.Context, p cli.Peer, _ []string) (pruned, error) {
		age, err := cli.ParseAge(older)
		if err != nil || age < record.RemoveAfter {
			return pruned{}, cli.Usagef("--older-than: %.40q, want 24h or more, such as 36h or 30d", older)
		}
		return prune(ctx, p, time.Now().Add(-age), dry)
	}, func(t *cli.Table, _ cli.Peer, p pruned) {
		p.table(t)
		a.Say("%s", p.summary())
	})
	c.Flags().StringVar(&older, "older-than", "7d", "least time since a job's end: 36h, 30d")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the jobs that would be removed; remove nothing")
	return c
}

// prune removes the jobs that ended before a time, the newest first. A dry run only lists them.
func prune(ctx context.Context, p cli.Peer, before time.Time, dry bool) (pruned, error) {
	out := pruned{Jobs: []prunedJob{}, DryRun: dry}
	all, err := p.Client.Jobs(ctx, record.Query{State: "ended", Limit: record.PageMax})
	for _, j := range all {
		if !j.Ended.Before(before) {
			continue
		}
		of := prunedJob{ID: j.ID, Name: j.Spec.Name, State: j.State, Ended: j.Ended}
		if !dry {
			of.RemovedJob, err = api.RemoveJob.Call(ctx, p.Client, api.ByID{ID: j.ID})
		}
		if needed, ok := errors.AsType[*api.Error](err); ok && needed.Code == api.CodeNeeded {
			of.Kept, err = needed.Message, nil
		}
		if err != nil {
			return out, err
		}
		out.Jobs = append(out.Jobs, of)
	}
	return out, err
}

func (p pruned) table(t *cli.Table) {
	if len(p.Jobs) == 0 {
		return
	}
	t.Head("ID", "NAME", "STATE", "ENDED", "LOGS", "OUTPUTS", "KEPT BECAUSE")
	for _, j := range p.Jobs {
		logs, outputs, kept := cli.Bytes(j.LogBytes), cli.Bytes(j.OutputBytes), "-"
		if p.DryRun || j.Kept != "" {
			logs, outputs = "-", "-"
		}
		if j.Kept != "" {
			kept = j.Kept
		}
		t.Row(j.ID, j.Name, j.State, j.Ended.UTC().Format("2006-01-02 15:04"), logs, outputs, kept)
	}
}

// summary is the result in one line.
func (p pruned) summary() string {
	jobs, bytes := 0, int64(0)
	for _, j := range p.Jobs {
		if j.Kept == "" {
			jobs++
			bytes += j.LogBytes + j.OutputBytes
		}
	}
	switch {
	case len(p.Jobs) == 0:
		return "no job ended that long ago"
	case p.DryRun:
		return "would remove " + cli.Count(jobs, "job")
	}
	return "removed " + cli.Count(jobs, "job") + ", " + cli.Bytes(bytes)
}
