package peercmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/spend"
)

func newKey(a *cli.App) *cobra.Command {
	return cli.Noun("", &cobra.Command{
		Use:   "key",
		Short: "Manage API keys with spending limits",
		Long: `An API key is a token for the local API that may submit jobs, within its own limits and those of the
peer, and has access to its own jobs only. The peer stores a hash of it.`,
	}, newKeyAdd(a), newKeyLs(a), newKeyRm(a))
}

func newKeyAdd(a *cli.App) *cobra.Command {
	var perJob, perDay string
	c := &cobra.Command{
		Use:   "add NAME",
		Short: "Make an API key and print its token, once",
		Example: `  starling peer key add ci --per-day 10 --per-job 2
  curl -H "Authorization: Bearer $(starling peer key add ci)" $URL/v1/jobs`,
		Args: cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, err := a.Genesis()
			if err != nil {
				return err
			}
			var l spend.Limits
			for _, f := range []struct {
				flag, text string
				to         *market.Amount
			}{{"--per-job", perJob, &l.PerJob}, {"--per-day", perDay, &l.PerDay}} {
				if f.text == "" {
					continue
				}
				if *f.to, err = cli.Amount(f.flag, f.text, g); err != nil {
					return err
				}
				if *f.to == 0 {
					return cli.Usagef("%s: a limit of zero allows no purchase; leave it out for no limit", f.flag)
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
			if a.Output != cli.OutputTable {
				return a.Show(k, nil)
			}
			fmt.Fprintln(a.Out, k.Token)
			a.Say("the token is not shown again; end it with `starling peer key rm %s`", k.Name)
			return nil
		},
	}
	c.Flags().StringVar(&perJob, "per-job", "", "highest cost of one job, in tokens (default no limit)")
	c.Flags().StringVar(&perDay, "per-day", "",
		"highest cost of one UTC day, in tokens (default no limit)")
	return c
}

func newKeyLs(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:     "ls",
		Short:   "List the API keys and their limits",
		Example: `  starling peer key ls`,
	}, 0, cli.Get(api.ListKeys), func(t *cli.Table, p cli.Peer, keys []spend.Key) {
		t.Head("NAME", "PER JOB", "PER DAY", "AGE", "HASH")
		for _, k := range keys {
			t.Row(k.Name, cli.LimitText(p.Genesis, k.Limits.PerJob), cli.LimitText(p.Genesis, k.Limits.PerDay),
				cli.Ago(time.Now(), k.Created), strings.ToLower(k.Hash.String()[:8]))
		}
	})
}

func newKeyRm(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME",
		Short:   "End an API key; its jobs continue",
		Example: `  starling peer key rm ci`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			return api.RemoveKey.Send(c.Context(), client, api.ByName{Name: args[0]})
		},
	}
}
