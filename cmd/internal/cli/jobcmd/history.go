package jobcmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
)

func newHistory(a *cli.App) *cobra.Command {
	var since, state, name, after string
	var limit int
	c := &cobra.Command{
		Use:   "history",
		Short: "List past jobs and their cost",
		Long: `Lists all jobs in this peer's journal, newest first, in pages. --since takes a duration (36h, 7d) or a
day (2006-01-02, UTC). --state takes a state, or open or ended.`,
		Example: `  starling job history
  starling job history --since 7d --state failed
  starling job history --name train --limit 200 -o json`,
		Args: cli.ExactArgs(0),
	}
	f := c.Flags()
	f.StringVar(&since, "since", "", "list only jobs submitted since then")
	f.StringVar(&state, "state", "", "list only jobs in this state")
	f.StringVar(&name, "name", "", "list only jobs with this text in their name")
	f.IntVar(&limit, "limit", 50, "jobs on a page")
	f.StringVar(&after, "after", "", "list the page after this key, which the last page prints")
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := record.Query{State: state, Name: name, Limit: limit, After: after}
		if limit < 1 {
			return cli.Usagef("--limit: %d, want at least 1", limit)
		}
		if since != "" {
			at, err := cli.ParseSince("--since", since, time.Now())
			if err != nil {
				return err
			}
			q.Since = at
		}
		g, err := a.Genesis()
		if err != nil {
			return err
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		p, err := api.ListJobs.Call(c.Context(), client, api.JobsQuery(q))
		if err != nil {
			return err
		}
		if err := a.Show(p, func(t *cli.Table) { historyTable(t, g, p.Jobs) }); err != nil {
			return err
		}
		if p.Next != "" && a.Output == cli.OutputTable {
			a.Say("there are more: --after %s", p.Next)
		}
		return nil
	}
	return c
}

func historyTable(t *cli.Table, g market.Genesis, jobs []record.Job) {
	t.Head("ID", "NAME", "STATE", "SUBMITTED", "RAN", "RANKS", "COST", "PAID", "SOL", "KEY", "REASON")
	short := Shortest(jobs)
	for _, j := range jobs {
		ran, key := "-", "-"
		if !j.Started.IsZero() {
			ran = j.Ran(time.Now()).Round(time.Second).String()
		}
		if j.Key != "" {
			key = j.Key
		}
		t.Row(short[j.ID], j.Spec.Name, j.State, j.Created.UTC().Format("2006-01-02 15:04"), ran, len(j.Ranks),
			g.FormatAmount(j.Owed),
			g.FormatAmount(j.Paid), chain.FormatSOL(j.Lamports.Fees), key, cli.Clip(j.Reason, 60))
	}
}
