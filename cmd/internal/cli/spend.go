package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
)

func newSpend(a *App) *cobra.Command {
	days := 7
	c := &cobra.Command{
		Use:   "spend",
		Short: "Show what was spent by day and key, against the limits",
		Long: `Sums up the jobs of the last days by the UTC day on which they were submitted and the key that submitted them: SPENT by
those that have ended, OPEN, what those that have not can still come to cost, and SOL, what the transactions of all took in
fees, about. SPENT and OPEN count against the limits per day:
buy.limits in config.yaml for the whole peer, those of ` + "`starling peer key add`" + ` for each key.`,
		Example: `  starling wallet spend
  starling wallet spend --days 30 -o json`,
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := a.genesis()
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
			return a.Show(s, func(t *Table) { spendTable(t, g, s) })
		},
	}
	c.Flags().IntVar(&days, "days", days, "how many days, today included")
	return c
}

// limitText is an amount that may be no limit at all.
func limitText(g market.Genesis, n market.Amount) string {
	if n == 0 {
		return "-"
	}
	return g.FormatAmount(n)
}

func spendTable(t *Table, g market.Genesis, s buyer.Spend) {
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
	row := func(who string, l buyer.Limits, used market.Amount) {
		left := "-"
		if l.PerDay > 0 {
			left = money(l.PerDay - min(used, l.PerDay))
		}
		t.Row(who, limitText(g, l.PerJob), limitText(g, l.PerDay), money(used), left)
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
		t.Row(p.Provider.Short(), money(p.Committed), limitText(g, s.Limits.PerProviderPerDay))
	}
}

func newKey(a *App) *cobra.Command {
	return noun("", &cobra.Command{
		Use:   "key",
		Short: "Make and end API keys with spending limits",
		Long: `An API key is a token for the local API that may submit jobs, within limits of its own beside those of the peer, and sees
only its own jobs. This peer keeps a hash of it.`,
	}, newKeyAdd(a), newKeyLs(a), newKeyRm(a))
}

func newKeyAdd(a *App) *cobra.Command {
	var perJob, perDay string
	c := &cobra.Command{
		Use:   "add NAME",
		Short: "Make an API key and print its token, once",
		Example: `  starling peer key add ci --per-day 10 --per-job 2
  curl -H "Authorization: Bearer $(starling peer key add ci)" $URL/v1/jobs`,
		Args: exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := a.genesis()
			if err != nil {
				return err
			}
			var l buyer.Limits
			for _, f := range []struct {
				flag, text string
				to         *market.Amount
			}{{"--per-job", perJob, &l.PerJob}, {"--per-day", perDay, &l.PerDay}} {
				if f.text == "" {
					continue
				}
				if *f.to, err = amount(f.flag, f.text, g); err != nil {
					return err
				}
				if *f.to == 0 {
					return Usagef("%s: nothing could be bought with it; leave it out for no limit", f.flag)
				}
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			k, err := api.AddKey.Call(c.Context(), client, api.NewKey{Name: args[0], Limits: l})
			if err != nil {
				return err
			}
			if a.output != outputTable {
				return a.Show(k, nil)
			}
			fmt.Fprintln(a.Out, k.Token)
			a.say("this is the only time that it is shown; end it with `starling peer key rm %s`", k.Name)
			return nil
		},
	}
	c.Flags().StringVar(&perJob, "per-job", "", "the most one job may cost, in tokens (default no limit)")
	c.Flags().StringVar(&perDay, "per-day", "", "the most the jobs of one UTC day may cost together, in tokens (default no limit)")
	return c
}

func newKeyLs(a *App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Short:   "List the API keys and their limits",
		Example: `  starling peer key ls`,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			g, err := a.genesis()
			if err != nil {
				return err
			}
			client, err := a.Client()
			if err != nil {
				return err
			}
			keys, err := api.ListKeys.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return a.Show(keys, func(t *Table) {
				t.Head("NAME", "PER JOB", "PER DAY", "AGE", "HASH")
				for _, k := range keys {
					t.Row(k.Name, limitText(g, k.Limits.PerJob), limitText(g, k.Limits.PerDay), ago(time.Now(), k.Created), strings.ToLower(k.Hash.String()[:8]))
				}
			})
		},
	}
}

func newKeyRm(a *App) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Short:   "End an API key; its jobs go on",
		Example: `  starling peer key rm ci`,
		Args:    exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			return api.RemoveKey.Send(c.Context(), client, api.ByName{Name: args[0]})
		},
	}
}
