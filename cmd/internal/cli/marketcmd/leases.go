package marketcmd

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
)

func newLeases(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "leases",
		Short: "List the leases of this peer's units and their earnings",
		Long: `Lists the holds and leases of this peer as a provider. EARNED is the amount of the buyer's best voucher,
CLAIMED the part already paid from the buyer's escrow, before the network's fee. Of the leases that ended more than a
minute ago it lists the last hundred that escrows paid for, with the state past and without class and receipts; the
last line counts all.`,
		Example: `  starling provider leases
  starling provider leases -o json`,
		Args: cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, g, err := a.Known()
			if err != nil {
				return err
			}
			leases, err := api.ListLeases.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			node, err := api.GetNode.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return a.Show(leases, func(t *cli.Table) {
				t.Head("LEASE", "BUYER", "RANK", "STATE", "UNITS", "OF", "RECEIPTS", "EARNED", "CLAIMED", "REASON")
				var sum market.Amount
				for _, l := range leases {
					id := "-"
					if !l.Lease.IsZero() {
						id = l.Lease.Short()
					}
					class, receipts := classText(l.Class, l.Simulated), fmt.Sprint(l.Receipts)
					if l.State == api.LeasePast {
						class, receipts = "-", "-"
					}
					sum += l.Earned
					t.Row(id, l.Buyer.Short(), l.Rank, l.State, l.Units, class, receipts,
						g.FormatAmount(l.Earned), claimedText(g, l), cli.Clip(l.Reason, 60))
				}
				t.Row()
				t.Row("earned", g.FormatAmount(sum))
				if e := node.Earnings; e != nil {
					t.Row("from escrows",
						g.FormatAmount(e.Earned)+" over all: "+g.FormatAmount(e.Claimed)+" claimed, "+
							g.FormatAmount(e.Unclaimed)+
							" not yet, "+g.FormatAmount(e.Lost)+" lost")
					if e.Wages > 0 {
						t.Row("of it wages", g.FormatAmount(e.Wages)+" claimed for guarding jobs")
					}
				}
			})
		},
	}
}

// claimedText is the claimed part of a lease's money, and the part that is lost or unfunded.
func claimedText(g market.Genesis, l api.SoldLease) string {
	switch {
	case l.Escrow.IsZero() && l.State != api.LeasePast:
		return "-"
	case l.Lost > 0:
		return g.FormatAmount(l.Claimed) + ", " + g.FormatAmount(l.Lost) + " lost"
	case l.Unfunded:
		return "escrow not seen"
	}
	return g.FormatAmount(l.Claimed)
}

// classText is a class for a table. It marks simulated units.
func classText(c market.Class, simulated bool) string {
	if simulated {
		return string(c) + " (simulated)"
	}
	return string(c)
}
