package proofcmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/api"
	"github.com/starling-network/starling/node/proof"
	rules "github.com/starling-network/starling/verify/audit"
)

func proofAudit(a *cli.App) *cobra.Command {
	var run bool
	c := &cobra.Command{
		Use:   "audit",
		Short: "List the audits of this peer's units, or run one now",
		Long: `Time is divided into windows (audit_slots of the genesis), and the first block of each window draws
whether it has an audit (one in audit_one_in). Half a minute later every idle unit proves its hardware to a randomly
drawn committee: it multiplies unpredictable matrices and reads random places of its memory, and the committee measures
the time. All units begin at one instant, so that no card answers for two. Audits are unpredictable, so that no hardware
is rented for one. The record of a unit that passed is a proof (proof ls).

It lists the last 24 audits of each unit, the newest first. TOPS is int8 arithmetic in 10¹² operations a second,
READS 32-byte reads at random places of its memory in 10⁶ a second, and MEMORY their spread. No round trip is
subtracted from the times, so a unit is at least this fast. A record is anchored once the chain has its hash under a
root: one root covers all units of a window, for one fee.

A unit names its card by a hash of the card's UUID. If two units name the same card, a buyer accepts the unit that it
saw pass first, and treats the other as unproven until both have passed in one window. A UUID costs no stake, because
any provider can copy one.

With --run it audits this peer's idle units in the present window, if its first block draws an audit, and waits. A
window without an audit, or with a begun audit, is an error. A peer also does this by itself. It answers each window
once, and skips the window of its start: a peer with a restored journal must not answer twice.`,
		Example: `  starling proof audit -o json
  starling proof audit --run`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			list := api.ListAudits
			if run {
				a.Say("waiting for the window's first block, which may draw an audit, then for the committee")
				list = api.RunAudit
			}
			past, err := list.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return a.Show(past, func(t *cli.Table) { auditTable(t, past) })
		},
	}
	c.Flags().BoolVar(&run, "run", false, "audit this peer's idle units now, and wait")
	return c
}

func auditTable(t *cli.Table, past []proof.PastAudit) {
	t.Head("UNIT", "CLASS", "WINDOW", "AGE", "TOPS", "READS", "MEMORY", "RECORD", "STANDING", "")
	for _, p := range past {
		window, age := fmt.Sprint(uint64(p.Window)), cli.Ago(time.Now(), p.At)
		if p.Failed != "" {
			t.Row(p.Unit.Short(), p.Class, window, age, "", "", "", "", p.Standing,
				"not passed: "+cli.Clip(p.Failed, 160))
			continue
		}
		r, passed := p.Rates, "passed"
		if p.Anchored != "" {
			passed = "passed, anchored"
		}
		t.Row(p.Unit.Short(), p.Class, window, age, proof.TOPS(r), proof.MegaReads(r),
			fmt.Sprintf("%d MiB", r.Memory>>20), p.Record.Short(), p.Standing, passed)
	}
	if len(past) == 0 {
		t.Row("none yet")
	}
}

func proofFloors(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "floors",
		Short: "List the classes that audits prove, and their floors",
		Long: `Lists the least figures of a unit of a class: TOPS of int8 arithmetic, 32-byte reads a second at random
places of its memory, and memory. SOURCE is measured (with card, place and date), published by a third party, or assumed
from a data sheet. Hardware of any other class is proven and sold as its family alone.`,
		Example: `  starling proof floors`,
		Args:    cli.ExactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			type line struct {
				Class      market.Class `json:"class"`
				Operations uint64       `json:"operations"`
				Reads      uint64       `json:"reads"`
				VRAMMiB    uint32       `json:"vramMiB,omitempty"`
				Source     string       `json:"source"`
			}
			var all []line
			for _, k := range rules.Floors() {
				all = append(all, line{k.Class, k.Operations, k.Reads, k.VRAMMiB, k.Source})
			}
			return a.Show(all, func(t *cli.Table) {
				t.Head("CLASS", "TOPS", "READS", "MEMORY", "SOURCE")
				for _, l := range all {
					memory := "-"
					if l.VRAMMiB > 0 {
						memory = fmt.Sprintf("%d MiB", l.VRAMMiB)
					}
					r := rules.Rates{Operations: l.Operations, Reads: l.Reads}
					t.Row(l.Class, proof.TOPS(r), proof.MegaReads(r), memory, l.Source)
				}
			})
		},
	}
}

func proofWatch(a *cli.App) *cobra.Command {
	var end bool
	c := &cobra.Command{
		Use:   "watch [PROVIDER UNIT]",
		Short: "Watch another provider's unit for double sales",
		Long: `Reads every ten minutes the published leases and receipts of a unit, until --end. A unit is named by its
id, as in the leases and receipts of its buyers. This peer always watches the units that it buys or sells. Without
arguments it lists the watched units.`,
		Example: `  starling proof watch 7xKX…gAsU 5f0c21aa…`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && !end {
				return nil
			}
			return cli.ExactArgs(2)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			var units []api.Watched
			if len(args) == 0 {
				units, err = api.ListWatched.Call(c.Context(), client, api.None{})
			} else {
				var of api.Watched
				if of.Provider, err = a.PeerKey(c.Context(), args[0]); err != nil {
					return err
				}
				h, parseErr := sign.ParseHash(args[1])
				if parseErr != nil {
					return cli.Usagef("%.80q is not a unit id, want 64 hexadecimal digits", args[1])
				}
				of.Unit = market.UnitID(h)
				watch := api.WatchUnit
				if end {
					watch = api.UnwatchUnit
				}
				units, err = watch.Call(c.Context(), client, of)
			}
			if err != nil {
				return err
			}
			return a.Show(units, func(t *cli.Table) {
				t.Head("PROVIDER", "UNIT")
				for _, w := range units {
					t.Row(w.Provider, w.Unit)
				}
			})
		},
	}
	c.Flags().BoolVar(&end, "end", false, "end the watch")
	return c
}
