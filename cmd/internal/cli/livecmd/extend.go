package livecmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
)

func newExtend(a *cli.App) *cobra.Command {
	var budget string
	c := &cobra.Command{
		Use:   "extend ID DURATION",
		Short: "Give a job more time",
		Long: `Adds DURATION to timeouts.run of a job. Its leases are extended at their current price if their
providers agree, and its programs run on. A provider refuses if it drains, closes before then, sells for a shorter time
or has raised its price. Its rank runs until the old end, and then moves to another provider for the rest, as
restart.max allows. A budget that equalled the highest possible cost grows with the time; any other budget stays unless
--budget is given.`,
		Example: `  starling job extend jk3v5q2a 2h
  starling job extend jk3v5q2a 30m --budget 12`,
		Args: cli.ExactArgs(2),
	}
	c.Flags().StringVar(&budget, "budget", "", "new budget, in tokens")
	c.RunE = func(c *cobra.Command, args []string) error {
		by, err := time.ParseDuration(args[1])
		if err != nil || by < job.MinTime {
			return cli.WithHint(cli.Usagef("%q is not a duration", args[1]), "write it as 90s, 45m or 2h")
		}
		g, err := a.Genesis()
		if err != nil {
			return err
		}
		req := api.ExtendRequest{By: job.Span(by)}
		if c.Flags().Changed("budget") {
			if req.Budget, err = cli.Amount("--budget", budget, g); err != nil {
				return err
			}
		}
		client, err := a.Client()
		if err != nil {
			return err
		}
		x, err := api.ExtendJob.Call(c.Context(), client, api.Extend{ID: args[0], Body: req})
		if err != nil {
			return fmt.Errorf("extending job %s: %w", args[0], err)
		}
		return a.Show(x, func(t *cli.Table) { extendTable(t, g, x) })
	}
	return c
}

func extendTable(t *cli.Table, g market.Genesis, x record.Extension) {
	at := func(when time.Time) string {
		if when.IsZero() {
			return "-"
		}
		return when.Local().Format(time.DateTime)
	}
	t.Row("job", x.Job)
	t.Row("time", time.Duration(x.Run).String()+" in all")
	if !x.Until.IsZero() {
		t.Row("until", at(x.Until))
	}
	t.Row("budget", g.FormatAmount(x.Budget))
	t.Row()
	t.Row("RANK", "PROVIDER", "STATE", "LEASE UNTIL", "COSTS MORE, AT MOST", "REASON")
	for _, r := range x.Ranks {
		provider, extra := "-", "-"
		if !r.Provider.IsZero() {
			provider = r.Provider.Short()
		}
		if r.Extra > 0 {
			extra = g.FormatAmount(r.Extra)
		}
		t.Row(r.Rank, provider, string(r.State), at(r.Until), extra, cli.Clip(r.Reason, 80))
	}
}
