package moneycmd

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/spend"
)

func newSpend(a *cli.App) *cobra.Command {
	days := 7
	c := &cobra.Command{
		Use:   "spend",
		Short: "Show spending by day and key, against the limits",
		Long: `Sums up the jobs of the last days by the UTC day and the key of their submission. SPENT is the cost of
ended jobs, OPEN the highest further cost of open jobs, and SOL the approximate transaction fees of all. SPENT and OPEN
count against the limits per day: buy.limits in config.yaml for the whole peer, and the limits of starling peer key add
for each key.`,
		Example: `  starling wallet spend
  starling wallet spend --days 30 -o json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := a.Genesis()
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			s, err := api.GetSpending.Call(c.Context(), client, api.Days{Days: days})
			if err != nil {
				return err
			}
			return a.Show(s, func(t *cli.Table) { spendTable(t, g, s) })
		},
	}
	c.Flags().IntVar(&days, "days", days, "number of days, including today")
	return c
}

func spendTable(t *cli.Table, g market.Genesis, s spend.Report) {
	money := g.FormatAmount
	used := map[string]market.Amount{} // today, by key
	var all market.Amount
	today := s.Resets.Add(-time.Second).UTC().Format(time.DateOnly)
	for _, d := range s.Days {
		if d.Day == today {
			used[d.Key] += d.Spent + d.Open
			all += d.Spent + d.Open
		}
	}
	t.Head("LIMITS", "PER JOB", "PER DAY", "TODAY", "LEFT")
	row := func(who string, l spend.Limits, used market.Amount) {
		left := "-"
		if l.PerDay > 0 {
			left = money(l.PerDay - min(used, l.PerDay))
		}
		t.Row(who, cli.LimitText(g, l.PerJob), cli.LimitText(g, l.PerDay), money(used), left)
	}
	row("this peer", s.Limits, all)
	for _, k := range s.Keys {
		row("key "+k.Name, k.Limits, used[k.Name])
	}
	t.Row("today ends at 00:00 UTC, in " + time.Until(s.Resets).Round(time.Minute).String())
	t.Row()
	t.Row("DAY", "KEY", "JOBS", "SPENT", "OPEN", "SOL")
	for _, d := range s.Days {
		key := d.Key
		if key == "" {
			key = "-"
		}
		t.Row(d.Day, key, d.Jobs, money(d.Spent), money(d.Open), chain.FormatSOL(d.Fees))
	}
	if len(s.Providers) == 0 {
		return
	}
	t.Row()
	t.Row("PROVIDER", "TODAY", "LIMIT PER DAY")
	for _, p := range s.Providers {
		t.Row(p.Provider.Short(), money(p.Committed), cli.LimitText(g, s.Limits.PerProviderPerDay))
	}
}
