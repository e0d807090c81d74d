// Package marketcmd has the commands of the market: the offers of other peers and, below starling provider, this
// peer's offers, leases, GPUs and guarded jobs.
package marketcmd

import (
	"fmt"
	"slices"
	"strings"
	"time"

	rules "github.com/starling-network/starling/verify/audit"

	"github.com/spf13/cobra"
	"github.com/starling-network/starling/cmd/internal/cli"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
)

// NewOffers makes the command `starling offers`.
func NewOffers(a *cli.App) *cobra.Command {
	var class string
	c := &cobra.Command{
		Use:   "offers",
		Short: "List the offers of other peers",
		Long: `Searches for offers and probes each provider. A class such as gpu/h100 selects that class alone, a family
such as gpu every class in it. Simulated units, which exist only on simulated networks, are marked. "no" under ANSWERS
means that the provider did not answer a probe within the last two minutes; orders are sent to it last. RUNS lists its
runtimes, OUTSIDE the network access of containers: none, an allowlist, or the internet. IMAGES is the number of public
container images that the provider says it has, so that a job of one of them starts without a download: among equal
providers they come first. -o json has the first eight bytes of their digests.

On a network with audits, PROVEN is the number of free units with a fresh audit record that this peer has checked, of
the number in the offer. Only those units serve orders without --unproven. -o json has the reason for the difference,
and the units' measurements.`,
		Example: `  starling offers
  starling offers --class gpu -o json`,
		GroupID: cli.GroupPeer,
		Args:    cli.ExactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, g, err := a.Known()
			if err != nil {
				return err
			}
			offers, err := api.ListOffers.Call(c.Context(), client, api.ByClass{Class: class})
			if err != nil {
				return err
			}
			a.WarnTrust(c.Context(), client)
			if len(offers) == 0 {
				a.WarnAlone(c.Context(), client)
			}
			slices.SortFunc(offers, func(x, y api.OfferInfo) int {
				if x.Price != y.Price {
					if x.Price < y.Price {
						return -1
					}
					return 1
				}
				return strings.Compare(x.Provider.String(), y.Provider.String())
			})
			return a.Show(offers, func(t *cli.Table) {
				head := []string{"PROVIDER", "CLASS", "MODEL", "REGION", "FREE", "EACH", "PRICE/UNIT-HOUR", "RTT",
					"ANSWERS", "EXPIRES"}
				if g.AuditSlots > 0 {
					head = append(head, "PROVEN")
				}
				head = append(head, "RUNS", "OUTSIDE", "IMAGES")
				t.Head(head...)
				for _, o := range offers {
					answers := "no"
					if o.Answered {
						answers = "yes"
					}
					row := []any{o.Provider.Short(), o.Class, modelText(o.Model, o.Simulated), o.Region,
						fmt.Sprintf("%d/%d", o.Free, o.Total), unitSize(o.PerUnit),
						g.FormatAmount(market.Amount(o.Price)), cli.Millis(o.RTT), answers, "in " +
							cli.Span(time.Until(o.Expires))}
					if g.AuditSlots > 0 {
						row = append(row, fmt.Sprintf("%d/%d", o.Checked, o.Proven)+provenAs(market.Class(o.Class)))
					}
					row = append(row, strings.Join(o.Runtimes, ","), o.Egress, len(o.Ready))
					t.Row(row...)
				}
			})
		},
	}
	c.Flags().StringVar(&class, "class", "", "class or family of units (default all)")
	return c
}

// provenAs returns the class under which units of a class are proven, if audits cannot distinguish the class.
func provenAs(c market.Class) string {
	if as := rules.ProvenAs(c); as != c {
		return " as " + string(as)
	}
	return ""
}

// unitSize is the size of one unit, for a table.
func unitSize(r market.Resources) string {
	text := fmt.Sprintf("%dm CPU %dMiB mem %dMiB disk", r.MilliCPU, r.MemoryMiB, r.DiskMiB)
	if r.VRAMMiB > 0 {
		text += fmt.Sprintf(" %dMiB VRAM", r.VRAMMiB)
	}
	return text
}

// modelText is a model's name for a table. It marks simulated units.
func modelText(model string, simulated bool) string {
	if model == "" {
		model = "-"
	}
	if simulated {
		return model + " (simulated)"
	}
	return model
}
