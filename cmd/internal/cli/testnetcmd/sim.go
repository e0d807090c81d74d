package testnetcmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/testnet/sim"
	"github.com/starling-network/starling/testnet/sim/play"
)

func testnetSim(a *cli.App) *cobra.Command {
	o := play.Defaults
	c := &cobra.Command{
		Use:   "sim",
		Short: "Simulate audits of hardware against all known cheats",
		Long: `Simulates audits between honest peers and adversaries of every known kind, and prints the outcomes. The
adversaries sell cards as better ones, use one card for many identities, omit work, lie in committees, invent results,
sign too many receipts, do not pay leases, or trade with themselves for reputation. Honest peers have noise, flipped
bits, restored backups and hostile committee members. Nothing is started or measured: hardware and networks are models,
by the classes and the noise of node/device/sim, with assumed figures. The judging code is that of a peer. If an
attack changes signed data, whole records are made and checked. The same seed gives the same table.

  FIRST AUDIT  adversaries stopped before any sale by the first audit, or found by the first check of signed data
  CAUGHT       adversaries delisted within 24 audits, or never sold; found within 24 checks; or without a gain
  SOLD         windows after which they could be sold
  DELISTED     peers delisted; for honest peers an error, given for each audit
  RECORDS      records made in full, and checked by the code of a peer

The protocol does not claim to catch kinds with a limit; the limit states the reason. The targets follow at the end,
each beside the measured value, and the exit code is 0 only if all of them are met: at least 99.9 % of every other kind
are caught, at most 0.01 % of honest audits end in delisting, no honest peer is slashed, no peer gains more than one
interval by its receipts, at most a tenth of a forger's results pass, and honest providers score above providers that
trade with themselves.`,
		Example: `  starling testnet sim
  starling testnet sim --adversaries 100 --honest 500
  starling testnet sim -o json | jq '.lines[] | select(.limit) | {kind, caught, limit}'`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Adversaries < 1 || o.Honest < 1 || o.Windows < 1 {
				return cli.Usagef("--adversaries, --honest and --windows must be at least 1")
			}
			rep, err := sim.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if err := a.Show(rep, func(t *cli.Table) { simTable(t, rep) }); err != nil {
				return err
			}
			if misses := rep.Misses(); len(misses) > 0 {
				return fmt.Errorf("targets missed: %s", strings.Join(misses, "; "))
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", o.Seed, "seed of all random choices")
	c.Flags().IntVar(&o.Adversaries, "adversaries", o.Adversaries, "number of adversaries of each kind")
	c.Flags().IntVar(&o.Honest, "honest", o.Honest, "honest peers")
	c.Flags().IntVar(&o.Windows, "windows", o.Windows, "number of audits of each honest peer")
	return c
}

func simTable(t *cli.Table, rep sim.Report) {
	percent := func(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
	t.Head("KIND", "THREAT", "FIRST AUDIT", "CAUGHT", "SOLD", "DELISTED", "RECORDS", "DESCRIPTION AND LIMIT")
	audits := 0
	for _, l := range rep.Lines {
		what := l.What
		if l.Limit != "" {
			what += "; limit: " + l.Limit
		}
		threat, first, caught, delisted := fmt.Sprint(l.Threat), percent(l.First), percent(l.Caught),
			fmt.Sprint(l.Delisted)
		if l.Threat == 0 {
			threat = "-"
		}
		if l.Honest {
			if len(l.Figures) == 0 {
				audits += l.Audits
			}
			first, caught = "-", "-"
			delisted = fmt.Sprintf("%d of %d audits", l.Delisted, l.Audits)
		}
		t.Row(l.Kind, threat, first, caught, percent(l.Sold), delisted, l.Records, what)
	}
	t.Row()
	t.Row("FAULT OF AN HONEST PEER", "TRIALS", "WITHHELD", "HARMLESS", "SLASHED")
	for _, f := range rep.Faults {
		t.Row(f.Fault, f.Trials, f.Withheld, f.Harmless, f.Slashed)
	}
	t.Row()
	t.Row("MEMORY THAT CAN BE MISSING, AT MOST", "MADE AGAIN", "IN THE HOST", "IDENTITIES AT ONCE", "AUDIT TAKES",
		"OF ITS TIME")
	for _, s := range rep.Limits {
		t.Row(s.Class, percent(s.Made), percent(s.Host), inOne(s.InOne), fmt.Sprintf("%.2f s", s.Products+s.Walk),
			fmt.Sprintf("%.3f %%", 100*s.Overhead))
	}
	t.Row()
	t.Row("COLLUDING STAKE", "5 OF 7", "5 OF 9", "8 OF 11", "8 OF 13", "3 OF 7", "4 OF 11")
	for _, c := range rep.Capture {
		t.Row(percent(c.Share), sci(c.First), sci(c.FirstChosen), sci(c.Appeal), sci(c.AppealChosen), sci(c.Block),
			sci(c.BlockAppeal))
	}
	t.Row()
	t.Row("TARGET", "MEASURED", "MUST BE", "HOLDS", "MEASURED OVER")
	for _, f := range rep.Targets {
		holds := "yes"
		if !f.Met() {
			holds = "NO"
		}
		t.Row(f.What, f.Measured(), f.Target(), holds, f.Of)
	}
	t.Row()
	t.Row("audits of honest peers", audits)
	t.Row("seed", rep.Options.Seed)
	t.Row("seconds", fmt.Sprintf("%.1f", rep.Seconds))
}

func sci(p float64) string { return fmt.Sprintf("%.2g", p) }

// inOne is the number of identities that a card can answer for at a window's instant.
func inOne(n int) string {
	if n == 0 {
		return "not bounded"
	}
	return fmt.Sprint(n)
}
