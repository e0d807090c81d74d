package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-network/starling/chain/program"
	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/node/api"
	rules "github.com/starling-network/starling/verify/audit"
)

func newNode(a *App) *cobra.Command {
	return &cobra.Command{
		Use:        "status",
		SuggestFor: []string{"node"},
		Short:      "Show this peer: keys, addresses, network, chain and wallet",
		Long: `Shows the peer that runs on this home directory. One of its addresses is what others give as bootstrap to join the network
by it.`,
		Example: `  starling peer status
  starling init --bootstrap "$(starling --home other peer status -o json | jq -r '.addrs[0]')"`,
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := a.Client()
			if err != nil {
				return err
			}
			n, err := api.GetNode.Call(c.Context(), client, api.None{})
			if err != nil {
				return err
			}
			return a.Show(n, func(t *Table) { nodeTable(t, n, client.PID()) })
		},
	}
}

func nodeTable(t *Table, n api.NodeInfo, pid int) {
	t.Row("peer", n.Peer)
	t.Row("key", n.Key)
	t.Row("owner", n.Owner)
	for i, addr := range n.Addrs {
		name := "addresses"
		if i > 0 {
			name = ""
		}
		t.Row(name, addr)
	}
	reachRows(t, n.Reach)
	t.Row("region", n.Region)
	t.Row("network", n.Genesis.Tag())
	chain := "answers"
	if !n.ChainUp {
		chain = "does not answer"
	}
	if n.ChainErr != "" {
		chain += ": " + n.ChainErr
	}
	t.Row("chain", chain)
	if n.Program != nil {
		t.Row("program", codeText(n.Genesis, *n.Program))
	}
	t.Row("slot", n.Slot)
	t.Row("balance", n.Genesis.FormatAmount(n.Balance))
	t.Row("peers", n.Peers)
	units := "sells nothing"
	if n.Units > 0 {
		units = fmt.Sprintf("%d of %d free", n.FreeUnits, n.Units)
	}
	t.Row("units", units)
	t.Row("jobs", n.Jobs)
	t.Row("version", n.Version)
	t.Row("running", fmt.Sprintf("for %s, process %d", ago(time.Now(), n.Started), pid))
}

// codeText describes a program's code and its upgrade authority.
func codeText(g market.Genesis, d program.Deployed) string {
	text := "as the genesis names it"
	if g.Code.IsZero() {
		text = "code " + d.Code.Short() + ", the genesis names none"
	}
	switch {
	case d.Final():
		return text + ", final"
	case d.SingleKey():
		return text + "; one key can change it: " + d.Authority.String()
	}
	return text + "; another program can change it, such as a multisig: " + d.Authority.String()
}

func newOffers(a *App) *cobra.Command {
	var class string
	c := &cobra.Command{
		Use:   "offers",
		Short: "List what other peers sell",
		Long: `Looks for offers and asks each provider whether it is there. A class such as gpu/h100 is that class alone, a family such as
gpu is every class in it. Units that are not hardware, which there are only on simulated networks, say so. An offer that says "no" under ANSWERS was found
but its provider did not answer a probe within the last two minutes; orders are not sent to it first. RUNS is what it runs, OUTSIDE
what containers reach outside: nothing, an allowlist, or the internet.

On a network that audits, PROVEN says of how many free units this peer has checked a fresh audit record, of so many that the offer
says have one: only those are sold to orders without --unproven. -o json has why of no more, and what the units have shown.`,
		Example: `  starling offers
  starling offers --class gpu -o json`,
		GroupID: groupPeer,
		Args:    exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, g, err := a.known()
			if err != nil {
				return err
			}
			offers, err := api.ListOffers.Call(c.Context(), client, api.ByClass{Class: class})
			if err != nil {
				return err
			}
			if len(offers) == 0 {
				a.warnAlone(c.Context(), client)
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
			return a.Show(offers, func(t *Table) {
				head := []string{"PROVIDER", "CLASS", "MODEL", "REGION", "FREE", "EACH", "PRICE/UNIT-HOUR", "RTT", "ANSWERS", "EXPIRES"}
				if g.AuditSlots > 0 {
					head = append(head, "PROVEN")
				}
				head = append(head, "RUNS", "OUTSIDE")
				t.Head(head...)
				for _, o := range offers {
					answers := "no"
					if o.Answered {
						answers = "yes"
					}
					row := []any{o.Provider.Short(), o.Class, modelText(o.Model, o.Simulated), o.Region, fmt.Sprintf("%d/%d", o.Free, o.Total), unitSize(o.PerUnit),
						g.FormatAmount(market.Amount(o.Price)), millis(o.RTT), answers, "in " + span(time.Until(o.Expires))}
					if g.AuditSlots > 0 {
						row = append(row, fmt.Sprintf("%d/%d", o.Checked, o.Proven)+provenAs(market.Class(o.Class)))
					}
					row = append(row, strings.Join(o.Runtimes, ","), o.Egress)
					t.Row(row...)
				}
			})
		},
	}
	c.Flags().StringVar(&class, "class", "", "class or family of units (default all)")
	return c
}

// provenAs returns the class that the units of a class are proven as, if audits cannot distinguish the class.
func provenAs(c market.Class) string {
	if as := rules.ProvenAs(c); as != c {
		return " as " + string(as)
	}
	return ""
}

// classText is a class for a table; of simulated units it says so.
func classText(c market.Class, simulated bool) string {
	if simulated {
		return string(c) + " (simulated)"
	}
	return string(c)
}

// unitSize is the size of one unit, for a table.
func unitSize(r market.Resources) string {
	text := fmt.Sprintf("%dm CPU %dMiB mem %dMiB disk", r.MilliCPU, r.MemoryMiB, r.DiskMiB)
	if r.VRAMMiB > 0 {
		text += fmt.Sprintf(" %dMiB VRAM", r.VRAMMiB)
	}
	return text
}

// claimedText is the claimed part of a lease's money, and the part that did not or will not come.
func claimedText(g market.Genesis, l api.SoldLease) string {
	switch {
	case l.Escrow.IsZero():
		return "-"
	case l.Lost > 0:
		return g.FormatAmount(l.Claimed) + ", " + g.FormatAmount(l.Lost) + " lost"
	case l.Unfunded:
		return "escrow not seen"
	}
	return g.FormatAmount(l.Claimed)
}

func newLeases(a *App) *cobra.Command {
	return &cobra.Command{
		Use:   "leases",
		Short: "List what this peer has sold and earned",
		Long: `Lists the holds and leases of this peer as a provider. EARNED is what the buyer's best voucher says, CLAIMED what
was paid of it from the buyer's escrow, before the network's fee.`,
		Example: `  starling provider leases
  starling provider leases -o json`,
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			client, g, err := a.known()
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
			return a.Show(leases, func(t *Table) {
				t.Head("LEASE", "BUYER", "RANK", "STATE", "UNITS", "OF", "RECEIPTS", "EARNED", "CLAIMED", "REASON")
				var sum market.Amount
				for _, l := range leases {
					id := "-"
					if !l.Lease.IsZero() {
						id = l.Lease.Short()
					}
					sum += l.Earned
					t.Row(id, l.Buyer.Short(), l.Rank, l.State, l.Units, classText(l.Class, l.Simulated), l.Receipts, g.FormatAmount(l.Earned), claimedText(g, l), clip(l.Reason, 60))
				}
				t.Row()
				t.Row("earned", g.FormatAmount(sum))
				if e := node.Earnings; e != nil {
					t.Row("from escrows", g.FormatAmount(e.Earned)+" over all: "+g.FormatAmount(e.Claimed)+" claimed, "+g.FormatAmount(e.Unclaimed)+" not yet, "+g.FormatAmount(e.Lost)+" lost")
					if e.Wages > 0 {
						t.Row("of it wages", g.FormatAmount(e.Wages)+" claimed for guarding jobs")
					}
				}
			})
		},
	}
}

// warnAlone warns if the peer is connected to no other, which is why it finds nothing.
func (a *App) warnAlone(ctx context.Context, c *api.Client) {
	n, err := api.GetNode.Call(ctx, c, api.None{})
	if err != nil || n.Peers > 0 {
		return
	}
	a.say("warning: this peer is connected to no other, so it finds no offers")
	a.say("hint: check bootstrap in config.yaml and the peer's log; `starling peer ping ADDRESS` says why a peer cannot be reached")
}
