package livecmd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer"
	"github.com/starling-network/starling/node/exclusive"
	rules "github.com/starling-network/starling/verify/exclusive"
)

func newProbe(a *cli.App) *cobra.Command {
	return cli.Noun("", &cobra.Command{
		Use:   "probe",
		Short: "See whether a job has its hardware for itself",
		Long: `While a job's program runs, its buyer now and then has a small exact product computed in the program's
place, at instants that it draws, for a thousandth of the lease's time at the most. Two in a row at three fifths of
the speed that the units have shown before are contention: somebody else computes with what was leased. The job says
what then happens: "probes: off", "warn" (the default) or "move", or --probes of run.

What was asked and answered is signed by both, so that anyone can check a record without this peer; how long it took
is the buyer's word. A provider whose software was changed to make way for probes is not found out by them.`,
		Example: `  starling job probe show jk3v5q2a
  starling job probe ls jk3v5q2a
  starling job probe export jk3v5q2a probes.json
  starling job probe check probes.json`,
	}, probeShow(a), probeLs(a), probeExport(a), probeCheck(a))
}

func probeShow(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:   "show ID",
		Short: "Show the probes and hardware reports of a job",
		Long: `Shows for each rank what its probes found on its last provider, and what the provider signed of its
hardware before the program began and after it ended: temperature, clocks, memory errors, Xid errors.`,
		Example: `  starling job probe show jk3v5q2a`,
	}, 1, func(ctx context.Context, p cli.Peer, args []string) ([]buyer.Rank, error) {
		j, err := api.GetJob.Call(ctx, p, api.ByID{ID: args[0]})
		return j.Ranks, err
	}, func(t *cli.Table, _ cli.Peer, ranks []buyer.Rank) {
		for i, r := range ranks {
			rankProbes(t, i, r)
		}
	})
}

func rankProbes(t *cli.Table, i int, r buyer.Rank) {
	t.Row(fmt.Sprintf("rank %d", i), exclusiveText(r))
	if r.Exclusive == nil || r.Exclusive.Health == nil {
		return
	}
	h := r.Exclusive.Health
	for _, s := range []*buyer.Snapshot{h.Before, h.After} {
		if s == nil {
			continue
		}
		t.Row("  "+s.When.String(), fmt.Sprintf("%d × %s, %d MiB; signed by both", s.CPUs, s.CPUModel, s.MemoryMiB))
		for _, d := range s.Devices {
			t.Row("", deviceText(d))
		}
	}
	for _, c := range h.Changes {
		of := "machine"
		if c.Unit != (market.UnitID{}) {
			of = c.Unit.Short()
		}
		t.Row("  changed", of+": "+c.Text)
	}
}

func deviceText(d rules.Device) string {
	text := d.UUID + " " + d.Model
	if d.Tells&rules.TellsTemperature != 0 {
		text += fmt.Sprintf(", %d °C", d.TemperatureC)
	}
	if d.Tells&rules.TellsClock != 0 {
		text += fmt.Sprintf(", %d MHz", d.ClockMHz)
	}
	if d.Tells&rules.TellsECC != 0 {
		text += fmt.Sprintf(", memory errors %d corrected, %d not", d.Correctable, d.Uncorrectable)
	}
	if d.Tells&rules.TellsXid != 0 {
		text += fmt.Sprintf(", %d Xid errors", d.Xids)
	}
	if d.Throttle != "" {
		text += ", slowed by " + d.Throttle
	}
	return text
}

// exclusiveText is the result of probes, for a person.
func exclusiveText(r buyer.Rank) string {
	if text := r.Exclusive.Text(); text != "" {
		return text
	}
	return "no probe yet"
}

func probeLs(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:     "ls ID",
		Short:   "List the probes of a job's leases that are kept",
		Long:    `Lists the last 64 probes of each lease, and the last 64 that were slow or wrong.`,
		Example: `  starling job probe ls jk3v5q2a`,
		Args:    cli.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			g, records, err := probes(a, c, args[0])
			if err != nil {
				return err
			}
			return a.Show(exclusive.NewFile(g, records), func(t *cli.Table) { probesTable(t, g, records) })
		},
	}
}

func probes(a *cli.App, c *cobra.Command, id string) (g market.Genesis, records []rules.Record, err error) {
	client, err := a.Client()
	if err != nil {
		return g, nil, err
	}
	if g, err = a.Genesis(); err != nil {
		return g, nil, err
	}
	raw, err := api.JobProbes.Call(c.Context(), client, api.ByID{ID: id})
	if err != nil {
		return g, nil, err
	}
	for _, b := range raw {
		r, err := rules.UnmarshalRecord(b)
		if err != nil {
			return g, nil, err
		}
		records = append(records, r)
	}
	return g, records, nil
}

func probesTable(t *cli.Table, g market.Genesis, records []rules.Record) {
	t.Head("LEASE", "PROVIDER", "NUMBER", "SLOT", "TOOK", "TRIP", "RATE", "OF KNOWN", "SAYS")
	for _, r := range records {
		o, of := r.Observation(), "-"
		if r.Known > 0 {
			of = fmt.Sprintf("%.2f", float64(o.Rate())/float64(r.Known))
		}
		t.Row(r.Question.Lease.Short(), r.Lease.Core.Provider.Short(), r.Question.Number, r.Question.At,
			r.Elapsed.Round(10*time.Microsecond),
			r.Trip.Round(10*time.Microsecond), fmt.Sprintf("%.1f GOPS", float64(o.Rate())/1e9), of, says(g, r))
	}
}

// says is the result of a record, in a word or with its reason.
func says(g market.Genesis, r rules.Record) string {
	switch err := r.Check(g.Domain()); {
	case err == nil:
		return "right"
	case rules.Wrong(err):
		return "WRONG: " + cli.Clip(err.Error(), 60)
	default:
		return "nothing: " + cli.Clip(err.Error(), 60)
	}
}

func probeExport(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "export ID FILE",
		Short: "Write the probes of a job into a file that anybody can check",
		Long: `Writes the records of a job's probes and its network's genesis as JSON. FILE may be - for standard
output.`,
		Example: `  starling job probe export jk3v5q2a probes.json`,
		Args:    cli.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			g, records, err := probes(a, c, args[0])
			if err != nil {
				return err
			}
			if file, err := a.Export(args[1], exclusive.NewFile(g, records)); err != nil || !file {
				return err
			}
			a.Say("wrote %s to %s", cli.Count(len(records), "record"), args[1])
			return nil
		},
	}
}

// errProbes says that a file has records that show nothing, or wrong answers.
var errProbes = errors.New("not every record shows a right answer")

func probeCheck(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Check records of probes, without a peer or a network",
		Long: `Checks that each record's lease, question and answer belong together and are signed by buyer and
provider, and computes the drawn entries again. A record says "right", "WRONG" when the provider signed for what is
not the product, or "nothing". Exits with an error unless all are right. How long an answer took is signed by the
buyer alone.`,
		Example: `  starling job probe check probes.json`,
		Args:    cli.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := cli.ReadFile(args[0], exclusive.MaxFile)
			if err != nil {
				return &cli.Error{Code: cli.ExitUsage, Err: err}
			}
			f, records, err := exclusive.ParseFile(b)
			if err != nil {
				return &cli.Error{Code: cli.ExitUsage, Err: fmt.Errorf("%s: %w", args[0], err)}
			}
			if err := a.Show(f, func(t *cli.Table) { probesTable(t, f.Genesis, records) }); err != nil {
				return err
			}
			for _, r := range records {
				if r.Check(f.Genesis.Domain()) != nil {
					return errProbes
				}
			}
			return nil
		},
	}
}
