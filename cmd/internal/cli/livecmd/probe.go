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
		Short: "See whether a job has its hardware for itself",
		Long: `While a job's program runs, its buyer now and then has a small exact product computed in the program's
place, at instants that it draws, for a thousandth of the lease's time at the most. Two in a row at three fifths of
the speed that the units have shown before are contention: somebody else computes with what was leased. The job says
what then happens: "probes: off", "warn" (the default) or "move", or --probes of run.

What was asked and answered is signed by both, so that anyone can check a record without this peer; how long it took
is the buyer's word. A provider whose software was changed to make way for probes is not found out by them.`,
		Example: `  starling job probe show jk3v5q2a
  starling proof show jk3v5q2a --kind probes
  starling proof export jk3v5q2a probes.json --kind probes`,
	}, probeShow(a))
}

func probeShow(a *cli.App) *cobra.Command {
	return cli.Ask(a, &cobra.Command{
		Use:   "show ID",
		Short: "Show the probes and hardware reports of a job",
		Long: `Shows for each rank what its probes found on its last provider, and what the provider signed of its
hardware before the program began and after it ended: temperature, clocks, memory errors, Xid errors.`,
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

// exclusiveText is the result of probes, for a person.
func exclusiveText(r record.Rank) string {
	if text := r.Exclusive.Text(); text != "" {
		return text
	}
	return "no probe yet"
}
