package livecmd

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/buyer/record"
	rules "github.com/starling-network/starling/verify/exclusive"
)

func newProbe(a *cli.App) *cobra.Command {
	return cli.Noun("", &cobra.Command{
		Use:   "probe",
		Short: "Check whether a job has its hardware exclusively",
		Long: `While a job's program runs, its buyer occasionally times a small exact matrix product on the leased
units, at random moments and for at most a thousandth of the lease's time. Two consecutive results below three fifths of
the proven speed are contention: the units are shared. The job sets the reaction: "probes: off", "warn" (the default)
or "move", or --probes of run.

Both sides sign question and answer, so that a record can be checked without this peer. The duration is stated by the
buyer alone. Probes do not detect provider software that yields to them.`,
		Example: `  starling job probe show jk3v5q2a
  starling proof show jk3v5q2a --kind probes
  starling proof export jk3v5q2a probes.json --kind probes`,
	}, probeShow(a))
}

func probeShow(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:   "show ID",
		Short: "Show the probes and hardware reports of a job",
		Long: `Shows for each rank the probe results of its last provider, and the provider's signed hardware reports
before the program began and after it ended: temperature, clocks, memory errors, Xid errors.`,
		Example: `  starling job probe show jk3v5q2a`,
	}, 1, func(ctx context.Context, p cli.Peer, args []string) ([]record.Rank, error) {
		j, err := api.GetJob.Call(ctx, p, api.ByID{ID: args[0]})
		return j.Ranks, err
	}, func(t *cli.Table, _ cli.Peer, ranks []record.Rank) {
		for i, r := range ranks {
			rankProbes(t, i, r)
		}
	})
}

func rankProbes(t *cli.Table, i int, r record.Rank) {
	t.Row(fmt.Sprintf("rank %d", i), exclusiveText(r))
	if r.Exclusive == nil || r.Exclusive.Health == nil {
		return
	}
	h := r.Exclusive.Health
	for _, s := range []*record.Snapshot{h.Before, h.After} {
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

// exclusiveText describes the result of probes.
func exclusiveText(r record.Rank) string {
	if text := r.Exclusive.Text(); text != "" {
		return text
	}
	return "no probe yet"
}
