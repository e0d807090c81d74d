// Package volumecmd has the commands on volumes: create, ls, extend and rm. A volume is a job of runtime "volume", so
// these are the calls of the commands on jobs.
package volumecmd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/cmd/internal/cli/jobcmd"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	"github.com/starling-network/starling/node/job"
	"github.com/starling-network/starling/node/job/jobfile"
)

// NewVolume makes the command `starling volume`.
func NewVolume(a *cli.App) *cobra.Command {
	return cli.Noun(cli.GroupJobs, &cobra.Command{
		Use:   "volume",
		Short: "Keep files on a provider between jobs",
		Long: `A volume is a directory on one provider that outlives jobs, for a paid time. It is rented in units of
10 GiB, metered and paid like a job, and starling ps lists it as one. Jobs find it by starling run --volume NAME:/PATH,
or volumes in a job file; they run at the volume's provider alone. One program at a time writes to a volume, others can
read it (NAME:/PATH:ro). When its time ends, programs that use it are stopped, and its files are removed. To copy files
into it or out of it, run a container that has it and waits, and use scp, sftp or rsync by starling ssh --config.

Nobody proves that a provider keeps a volume's files, or that it does not read them: keep other copies, and encrypt
secrets. The peer that created a volume pays for it. If that peer is away for longer than a payment interval, the
volume ends, unless it was created with -d: then three other peers pay meanwhile, from its deposit.`,
		Example: `  starling volume create data --size 20Gi --for 7d --with cpu --max-price 0.0002
  starling run --volume data:/data --max-price 0.05 train.wasm
  starling run -d -it --volume data:/data --max-price 0.05 python:3.12   # then starling ssh --config --write ID,
  scp model.bin starling-ID:/data/                                       # and scp
  starling volume ls
  starling volume extend data 2d
  starling volume rm data`,
	}, newCreate(a), newLs(a), newExtend(a), newRm(a))
}

func newCreate(a *cli.App) *cobra.Command {
	var f jobfile.Flags
	var size, span, with string
	var o jobcmd.SubmitOptions
	c := &cobra.Command{
		Use:   "create NAME --size SIZE --for TIME",
		Short: "Rent a volume, and wait until it can be used",
		Long: `Orders disk of a provider, and waits until the volume can be used. SIZE is rounded up to units of
10 GiB, whose prices starling offers --class disk lists. Jobs with the volume run at its provider: name their class
by --with, or choose the provider.`,
		Example: `  starling volume create data --size 20Gi --for 7d --max-price 0.0002
  starling volume create data --size 10Gi --for 12h --provider 4zvwRjXU --max-price 0.0002`,
		Args: cli.ExactArgs(1),
	}
	s := c.Flags()
	s.StringVar(&size, "size", "10Gi", "room of the volume")
	s.StringVar(&span, "for", "24h", "paid time, such as 12h or 7d")
	s.StringSliceVar(&f.Regions, "region", nil, "regions of the provider (default anywhere)")
	s.StringSliceVar(&f.Only, "provider", nil, "keys of the accepted providers, or their first eight characters")
	s.StringVar(&with, "with", "", "accept providers that sell this class, too, such as gpu/h100")
	s.StringSliceVar(&f.Exclude, "exclude", nil, "keys of excluded providers, or the first eight characters")
	s.StringVar(&f.MaxPrice, "max-price", "", "highest price of a unit-hour, in tokens; required")
	s.StringVar(&f.Budget, "budget", "", "highest cost of the volume (default its cost at --max-price)")
	s.BoolVarP(&o.Detach, "detach", "d", false, "give the volume to guardians, which pay while the peer is away")
	c.RunE = func(c *cobra.Command, args []string) error {
		spec, err := volumeJob(a, c.Context(), f, args[0], size, span)
		if err == nil && with != "" {
			spec.Placement.Only, err = selling(a, c.Context(), market.Class(with), spec.Placement.Only)
		}
		if err != nil {
			return err
		}
		client, g, j, err := jobcmd.HandIn(a, c.Context(), spec, o)
		if err != nil {
			return err
		}
		if j, err = ready(a, c.Context(), client, g, j); err != nil {
			return err
		}
		return a.Show(j, func(t *cli.Table) { table(t, g, []record.Job{j}, nil) })
	}
	return c
}

// volumeJob returns the job that is a volume.
func volumeJob(a *cli.App, ctx context.Context, f jobfile.Flags, name, size, span string) (job.Job, error) {
	token, err := jobcmd.Token(a)
	if err != nil {
		return job.Job{}, err
	}
	for _, keys := range [][]string{f.Only, f.Exclude} {
		if err := a.WholeKeys(ctx, keys); err != nil {
			return job.Job{}, err
		}
	}
	if f, err = f.ForVolume(size); err != nil {
		return job.Job{}, cli.Usagef("%v", err)
	}
	d, err := duration(span)
	if err != nil {
		return job.Job{}, err
	}
	f.Name, f.Run = name, d.String()
	return f.Job(token)
}

// selling returns the providers that sell disk and units of a class, among the accepted ones; those with most free disk
// first, and as many as a job can name.
func selling(a *cli.App, ctx context.Context, class market.Class, accepted []sign.Key) ([]sign.Key, error) {
	if err := class.Check(); err != nil {
		return nil, cli.Usagef("--with: %v", err)
	}
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	offers := func(c market.Class) (map[sign.Key]uint32, error) {
		all, err := api.ListOffers.Call(ctx, client, api.ByClass{Class: string(c)})
		out := map[sign.Key]uint32{}
		for _, o := range all {
			if len(accepted) == 0 || slices.Contains(accepted, o.Provider) {
				out[o.Provider] = max(out[o.Provider], o.Free)
			}
		}
		return out, err
	}
	disk, err := offers(market.Disk)
	if err != nil {
		return nil, err
	}
	both, err := offers(class)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(both, func(p sign.Key, _ uint32) bool { return disk[p] == 0 })
	if len(both) == 0 {
		return nil, cli.WithHint(&cli.Error{Code: cli.ExitNoMatch,
			Err: fmt.Errorf("no known provider sells disk and units of class %s", class)},
			"`starling offers --class disk` lists the providers of disk")
	}
	keys := slices.SortedFunc(maps.Keys(both), func(p, q sign.Key) int {
		return cmp.Or(cmp.Compare(disk[q], disk[p]), bytes.Compare(p[:], q[:]))
	})
	return keys[:min(len(keys), market.MaxExclude)], nil
}

// duration reads a time such as 12h or 7d.
func duration(text string) (time.Duration, error) {
	d, err := cli.ParseAge(text)
	if err != nil || d < job.MinTime {
		return 0, cli.WithHint(cli.Usagef("%q is not a duration", text), "write it as 45m, 12h or 7d")
	}
	return d, nil
}

// ready waits until a volume can be used, and returns an error if it ends before.
func ready(
	a *cli.App, ctx context.Context, client *api.Client, g market.Genesis, j record.Job,
) (record.Job, error) {
	over := func(j record.Job) bool { _, over := j.Result(); return over }
	j, err := jobcmd.Watch(a, ctx, client, g, j, func(j record.Job) bool {
		return over(j) || len(j.Ranks) == 1 && j.Ranks[0].Runs()
	})
	if err == nil && over(j) {
		err = &cli.Error{Code: cli.ExitNoMatch, Err: fmt.Errorf("volume %s was not made: %s", j.Spec.Name, j.Reason)}
	}
	return j, err
}

func newLs(a *cli.App) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the volumes of this peer",
		Long:    `Lists volumes with their size and provider, the end of their paid time, and their cost so far.`,
		Example: `  starling volume ls
  starling volume ls -a -o json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, g, err := a.Known()
			if err != nil {
				return err
			}
			list, err := volumes(c.Context(), client, "", all)
			if err != nil {
				return err
			}
			costs := map[string]market.Amount{}
			for _, j := range list {
				if costs[j.ID], err = cost(c.Context(), client, j); err != nil {
					return err
				}
			}
			if len(list) == 0 {
				a.Say("there is no volume; `starling volume create` makes one")
			}
			return a.Show(list, func(t *cli.Table) { table(t, g, list, costs) })
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "include ended volumes")
	return c
}

// volumes lists the volumes with a text in their names, newest first.
func volumes(ctx context.Context, client *api.Client, name string, all bool) ([]record.Job, error) {
	q := record.Query{Limit: record.PageMax, Name: name}
	if !all {
		q.State = "open"
	}
	jobs, err := client.Jobs(ctx, q)
	return slices.DeleteFunc(jobs, func(j record.Job) bool { return j.Spec.Runtime != job.RuntimeVolume }), err
}

// cost returns the cost of a volume so far.
func cost(ctx context.Context, client *api.Client, j record.Job) (sum market.Amount, err error) {
	if j.State.Ended() {
		return j.Owed, nil
	}
	leases, err := api.JobReceipts.Call(ctx, client, api.ByID{ID: j.ID})
	for _, l := range leases {
		sum += l.Owed
	}
	return sum, err
}

func table(t *cli.Table, g market.Genesis, list []record.Job, costs map[string]market.Amount) {
	short := jobcmd.Shortest(list)
	t.Head("NAME", "SIZE", "STATE", "PROVIDER", "PAID UNTIL", "COST", "ID", "REASON")
	for _, j := range list {
		provider, until, state := "-", "-", string(j.State)
		if len(j.Ranks) == 1 && !j.Ranks[0].Provider.IsZero() {
			provider = j.Ranks[0].Provider.Short()
		}
		if at := j.Until(); !at.IsZero() && !j.State.Ended() {
			until = at.Local().Format(time.DateTime)
		}
		if j.State.Ended() {
			state = "ended"
		}
		size := fmt.Sprintf("%d GiB", uint64(j.Spec.Resources.Units)*market.DiskUnitMiB>>10)
		t.Row(j.Spec.Name, size, state, provider, until, g.FormatAmount(costs[j.ID]), short[j.ID],
			cli.Clip(j.Reason, 60))
	}
}

// find returns the open volume of a name or id.
func find(ctx context.Context, client *api.Client, name string) (record.Job, error) {
	list, err := volumes(ctx, client, name, false)
	if err != nil {
		return record.Job{}, err
	}
	for _, j := range list {
		if j.Spec.Name == name {
			return j, nil
		}
	}
	missing := cli.WithHint(cli.Usagef("no volume is called %q", name), "`starling volume ls` lists them")
	j, err := api.GetJob.Call(ctx, client, api.ByID{ID: name})
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Status == http.StatusNotFound {
		return j, missing
	}
	if err == nil && j.Spec.Runtime != job.RuntimeVolume {
		return j, missing
	}
	return j, err
}

func newExtend(a *cli.App) *cobra.Command {
	var budget string
	c := &cobra.Command{
		Use:   "extend NAME TIME",
		Short: "Pay for more time of a volume",
		Long: `Extends the lease of a volume at its price, as starling job extend does. Its provider refuses if it
drains, sells for a shorter time, or has raised its price.`,
		Example: `  starling volume extend data 2d`,
		Args:    cli.ExactArgs(2),
	}
	c.Flags().StringVar(&budget, "budget", "", "new budget, in tokens")
	c.RunE = func(c *cobra.Command, args []string) error {
		by, err := duration(args[1])
		if err != nil {
			return err
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
		j, err := find(c.Context(), client, args[0])
		if err != nil {
			return err
		}
		x, err := api.ExtendJob.Call(c.Context(), client, api.Extend{ID: j.ID, Body: req})
		if err != nil {
			return fmt.Errorf("extending volume %s: %w", args[0], err)
		}
		return a.Show(x, func(t *cli.Table) {
			t.Row("volume", args[0])
			t.Row("paid until", x.Until.Local().Format(time.DateTime))
			for _, r := range x.Ranks {
				t.Row("lease", strings.TrimSuffix(string(r.State)+": "+r.Reason, ": "))
			}
		})
	}
	return c
}

func newRm(a *cli.App) *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use:     "rm NAME...",
		Aliases: []string{"remove"},
		Short:   "Remove volumes and their files",
		Long: `Ends the leases of volumes. Their files are removed at once, programs that use them are stopped, and
the rest of the deposit is refunded.`,
		Example: `  starling volume rm data`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.WithHint(cli.Usagef("rm needs a name"), "%s", c.UseLine())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			var ids []string
			for _, name := range args {
				j, err := find(c.Context(), client, name)
				if err != nil {
					return err
				}
				ids = append(ids, j.ID)
			}
			return jobcmd.Stop(a, c.Context(), client, ids, wait)
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "wait until it has ended and everything is paid")
	return c
}
