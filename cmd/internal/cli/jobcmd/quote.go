package jobcmd

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/imagecmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// NewQuote makes the command `starling quote`.
func NewQuote(a *cli.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "quote [flags] FILE|MODULE|IMAGE",
		Short: "Estimate the cost of a job",
		Long: `Publishes the order of the job, and shows the providers that would accept it, with their prices.
Nothing is uploaded, reserved or paid. The tag of an image is resolved, and its digest shown. starling run --dry-run
does the same. FILE is a job file (.yaml, .yml, .json, or - for standard input); for a program, describe the job with
the flags of starling run.`,
		Example: `  starling quote job.yaml
  starling quote -n 4 --timeout 2h --max-price 0.05 train.wasm
  starling quote --gpus h100:8 --max-price 3 ghcr.io/acme/train:v1 -o json`,
		GroupID: cli.GroupJobs,
		Args:    cli.ExactArgs(1),
	}
	flags := JobFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		spec, err := quoted(a, c.Context(), flags, args[0])
		if err != nil {
			return err
		}
		return quote(a, c.Context(), spec)
	}
	return c
}

// quoted is a job for which quotes are requested.
func quoted(a *cli.App, ctx context.Context, flags *jobfile.Flags, arg string) (job.Job, error) {
	if arg == "-" || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg)) {
		if !reflect.DeepEqual(*flags, jobfile.Flags{}) {
			return job.Job{}, cli.Usagef("job flags cannot be combined with a job file: set them in the file")
		}
		return LoadJob(a, arg)
	}
	token, err := Token(a)
	if err != nil {
		return job.Job{}, err
	}
	if err := a.WholeKeys(ctx, flags.Exclude); err != nil {
		return job.Job{}, err
	}
	flags.Module = arg
	return flags.Job(token)
}

func quote(a *cli.App, ctx context.Context, spec job.Job) error {
	g, err := a.Genesis()
	if err != nil {
		return err
	}
	client, err := a.Client()
	if err != nil {
		return err
	}
	sub, err := unsealed(a, ctx, spec)
	if err != nil {
		return err
	}
	a.WarnTrust(ctx, client)
	q, err := api.QuoteJob.Call(ctx, client, api.Quote{Body: sub})
	if err != nil {
		return imagecmd.NoImage(spec, err)
	}
	if q.Image != "" {
		spec.Image = pinned(a, spec.Image, q.Image)
	}
	if err := a.Show(q, func(t *cli.Table) { quoteTable(t, g, spec, q) }); err != nil {
		return err
	}
	if !q.Places {
		a.WarnAlone(ctx, client)
		return &cli.Error{Code: cli.ExitNoMatch, Err: fmt.Errorf("the job cannot be placed now: %s", q.Reason)}
	}
	return nil
}

// lamportsText is a job's cost in SOL.
func lamportsText(l record.Lamports) string {
	text := "and of the peer's SOL about " + chain.FormatSOL(l.Fees) + " for fees, at most " +
		chain.FormatSOL(l.Most) + " if priority fees rise"
	if l.Rent > 0 {
		text += ", and " + chain.FormatSOL(l.Rent) + " for rent, which is refunded"
	}
	return text
}

func quoteTable(t *cli.Table, g market.Genesis, spec job.Job, q record.Quotation) {
	jobTable(t, spec)
	t.Row()
	t.Row("PROVIDER", "UNITS", "REGION", "PRICE", "ROOM", "ROUTE", "RANKS", "DETAIL")
	for _, o := range q.Quotes {
		ranks, detail := "-", o.Misfit
		if detail == "" && o.Ready {
			detail = "has the image"
		}
		if o.Ranks > 0 {
			ranks = fmt.Sprint(o.Ranks)
		}
		t.Row(o.Provider.Short(), unitsText(o.Units), o.Region, g.FormatAmount(market.Amount(o.Price)), o.Leases,
			o.Route+" in "+cli.Took(o.Took), ranks, detail)
	}
	for _, d := range q.Declined {
		t.Row(d.Provider.Short(), "-", "-", "-", "-", "-", "-", d.Reason)
	}
	t.Row()
	if q.Places {
		t.Row(fmt.Sprintf("%s for %v would cost %s, at most %s", cli.Count(int(spec.Count), "rank"),
			spec.Timeouts.Run, g.FormatAmount(q.Cost), g.FormatAmount(q.MaxCost)))
		if q.Lamports.Fees > 0 {
			t.Row(lamportsText(q.Lamports))
		}
	}
}
